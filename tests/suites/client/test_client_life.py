"""Clients that come, go, die and come back; and a master that does."""

import signal

import pytest

from one_master import accepts
from ports import free_port
from waiting import wait_until

RPC_FAIL = -900


def test_a_client_that_closes_takes_its_objects_along(master, start_client):
    leaving, staying = start_client(), start_client()
    assert leaving.put("left", b"value", config={"preferred_segments": [leaving.segment]}) == 0
    assert leaving.put("kept", b"value", config={"preferred_segments": [staying.segment]}) == 0
    assert leaving.close() == 0
    assert master.segments() == [staying.segment]
    assert staying.get("left") == b""
    assert staying.is_exist("left") == 0
    assert staying.get("kept") == b"value"


@pytest.mark.master(client_ttl=5)
def test_objects_of_a_dead_client_go_after_its_ttl(master, start_client):
    dead, alive = start_client(), start_client()
    assert dead.put("lost", b"value", config={"preferred_segments": [dead.segment]}) == 0
    assert dead.put("kept", b"value", config={"preferred_segments": [alive.segment]}) == 0
    dead.kill()
    wait_until(lambda: master.segments() == [alive.segment], "the dead client's segment to go")
    assert alive.is_exist("lost") == 0
    assert alive.get("lost") == b""
    assert alive.get("kept") == b"value", "the writer's death does not matter, the segment's owner lives"
    # The key is free for a new object.
    assert alive.put("lost", b"new value") == 0
    assert alive.get("lost") == b"new value"


@pytest.mark.master(client_ttl=5)
def test_a_client_that_restarts_under_its_host_name(master, start_client):
    name = f"127.0.0.1:{free_port()}"
    other = start_client()
    before = start_client(hostname=name)
    assert before.segment == name
    assert before.put("old", b"old value", config={"preferred_segments": [name]}) == 0
    before.kill()

    after = start_client(hostname=name)
    assert after.segment == name
    wait_until(lambda: master.segments() == sorted([name, other.segment]), "the dead client's segment to go")
    assert other.is_exist("old") == 0
    # Nothing that belongs to the new client went with the old one of the same name.
    assert after.put("new", b"new value", config={"preferred_segments": [name]}) == 0
    assert after.put("old", b"written anew", config={"preferred_segments": [name]}) == 0
    assert other.get_batch(["new", "old"]) == [b"new value", b"written anew"]


def test_a_client_finds_its_way_back_to_a_restarted_master(master, start_master, client):
    assert client.put("before", b"value") == 0
    master.kill()
    assert client.put("meanwhile", b"value") == RPC_FAIL

    again = start_master(rpc_port=master.rpc_port)
    wait_until(lambda: again.segments() == [client.segment], "the client to mount its segment again")
    assert client.is_exist("before") == 0
    assert client.put("after", b"value") == 0
    assert client.get("after") == b"value"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_a_master_ends_when_it_is_asked_to(master, client, how):
    assert client.put("key", b"value") == 0
    assert master.stop(how) == 0
    assert not accepts(master.rpc_port)
    assert not accepts(master.metrics_port)
    assert client.put("another", b"value") == RPC_FAIL
