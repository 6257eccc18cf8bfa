"""Several clients: where replicas lie, and moving them while they are used."""

import pytest

from waiting import wait_until

INVALID_PARAMS = -600
OBJECT_NOT_FOUND = -704
TASK_NOT_FOUND = -1400


def endpoints(client, key):
    """Where the object's replicas lie, each checked to be whole."""
    replicas = client.get_replica_desc(key)
    assert all(each["status"] == "COMPLETE" for each in replicas)
    return {each["endpoint"] for each in replicas}


def endpoint_of(client):
    """The name that replica descriptors give to the client's segment."""
    probe = f"probe of {client.segment}"
    assert client.put(probe, b"probe", config={"preferred_segments": [client.segment]}) == 0
    [endpoint] = endpoints(client, probe)
    assert client.remove(probe, force=True) == 0
    return endpoint


def complete(client, task):
    """Waits for a copy or move task to end, and for it to have ended well."""
    task_id, result = task
    assert result == 0

    def outcome():
        answer, result = client.query_task(task_id)
        assert result == 0
        return answer["status"] in ("SUCCESS", "FAILED") and answer

    assert wait_until(outcome, "the task to end")["status"] == "SUCCESS"


@pytest.fixture
def pair(start_client):
    """Two clients with a segment each."""
    return start_client(), start_client()


def test_one_client_reads_what_another_wrote(pair):
    writer, reader = pair
    for index in range(20):
        assert writer.put(f"key-{index}", f"value {index}".encode()) == 0
    for index in range(20):
        assert reader.get(f"key-{index}") == f"value {index}".encode()


def test_a_client_without_a_segment(master, start_client):
    owner, guest = start_client(), start_client(segment_size=0)
    assert master.segments() == [owner.segment]
    assert guest.put("key", b"value") == 0
    assert owner.get("key") == b"value"
    assert guest.get("key") == b"value"


def test_preferred_segments(pair):
    here, there = pair
    assert endpoint_of(here) != endpoint_of(there)
    for index in range(10):
        assert here.put(f"there-{index}", b"value", config={"preferred_segments": [there.segment]}) == 0
        assert endpoints(here, f"there-{index}") == {endpoint_of(there)}
    assert here.put("no such segment", b"value", config={"preferred_segments": ["nowhere"]}) == 0
    assert here.get("no such segment") == b"value"


def test_replicas_on_two_clients(pair):
    one, two = pair
    both = {endpoint_of(one), endpoint_of(two)}
    assert one.put("twice", b"value", config={"replica_num": 2}) == 0
    assert endpoints(one, "twice") == both
    assert one.put("more than there are", b"value", config={"replica_num": 5}) == 0
    assert endpoints(two, "more than there are") == both
    assert one.get("twice") == two.get("twice") == b"value"


@pytest.mark.master(client_ttl=5)
def test_a_second_replica_outlives_the_first_one_s_client(master, pair):
    one, two = pair
    assert one.put("twice", b"value", config={"replica_num": 2}) == 0
    assert one.put("once", b"value", config={"preferred_segments": [one.segment]}) == 0
    survivor = endpoint_of(two)
    one.kill()
    wait_until(lambda: master.segments() == [two.segment], "the dead client's segment to go")
    assert endpoints(two, "twice") == {survivor}
    assert two.get("twice") == b"value"
    assert two.is_exist("once") == 0


@pytest.mark.master(client_ttl=5)
def test_a_copy(master, pair):
    source, target = pair
    assert source.put("key", b"value" * 1000, config={"preferred_segments": [source.segment]}) == 0
    complete(source, source.create_copy_task("key", [target.segment]))
    assert endpoints(source, "key") == {endpoint_of(source), endpoint_of(target)}
    # Only the copy is left to read from when the source is gone.
    source.kill()
    wait_until(lambda: master.segments() == [target.segment], "the dead client's segment to go")
    assert target.get("key") == b"value" * 1000


def test_a_move(pair):
    source, target = pair
    assert source.put("key", b"value" * 1000, config={"preferred_segments": [source.segment]}) == 0
    complete(target, target.create_move_task("key", source.segment, target.segment))
    assert endpoints(source, "key") == {endpoint_of(target)}
    assert source.get("key") == target.get("key") == b"value" * 1000


def test_many_tasks_at_once(pair):
    one, two = pair
    keys = [f"key-{index}" for index in range(40)]
    values = [f"value {index}".encode() * 100 for index in range(40)]
    assert one.put_batch(keys, values, config={"preferred_segments": [one.segment]}) == 0
    tasks = [one.create_move_task(key, one.segment, two.segment) for key in keys[:20]]
    tasks += [one.create_copy_task(key, [two.segment]) for key in keys[20:]]
    for task in tasks:
        complete(one, task)
    at_two = endpoint_of(two)
    assert all(endpoints(one, key) == {at_two} for key in keys[:20])
    assert all(endpoints(one, key) == {at_two, endpoint_of(one)} for key in keys[20:])
    assert one.get_batch(keys) == two.get_batch(keys) == values


def test_tasks_that_cannot_be(pair):
    one, two = pair
    assert one.put("key", b"value", config={"preferred_segments": [one.segment]}) == 0
    assert one.create_copy_task("absent", [two.segment])[1] == OBJECT_NOT_FOUND
    assert one.create_copy_task("key", ["nowhere"])[1] == INVALID_PARAMS
    assert one.create_copy_task("key", [])[1] == INVALID_PARAMS
    assert one.create_move_task("absent", one.segment, two.segment)[1] == OBJECT_NOT_FOUND
    assert one.create_move_task("key", one.segment, "nowhere")[1] == INVALID_PARAMS
    assert one.query_task((1, 2)) == (None, TASK_NOT_FOUND)


@pytest.mark.master(default_kv_lease_ttl=1)
def test_clearing_the_replicas_of_one_segment(pair):
    one, two = pair
    assert one.put("key", b"value", config={"replica_num": 2}) == 0
    left = endpoint_of(two)
    assert two.batch_replica_clear(["key"], one.segment) == [], "only the writer may"
    assert one.batch_replica_clear(["key", "absent"], one.segment) == ["key"]
    assert endpoints(one, "key") == {left}
    wait_until(lambda: one.batch_replica_clear(["key"]) == ["key"], "the read's lease to end")
    assert one.is_exist("key") == 0
