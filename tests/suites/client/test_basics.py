"""One client: what it writes it reads back, and what it removes is gone."""

import pytest

from clients import ClientError

INVALID_PARAMS = -600
OBJECT_NOT_FOUND = -704


@pytest.mark.smoke
def test_write_read_remove(master, client):
    assert client.health_check() == 0
    assert master.segments() == [client.segment]

    assert client.put("greeting", b"hello") == 0
    assert client.is_exist("greeting") == 1
    assert client.get("greeting") == b"hello"
    assert client.get_size("greeting") == 5
    assert master.keys() == {"greeting"}

    assert client.remove("greeting", force=True) == 0
    assert client.is_exist("greeting") == 0
    assert client.get("greeting") == b""
    assert client.get_size("greeting") == OBJECT_NOT_FOUND
    assert client.remove("greeting") == OBJECT_NOT_FOUND
    assert master.keys() == set()


def test_a_second_put_keeps_the_first_value(client):
    assert client.put("key", b"first") == 0
    assert client.put("key", b"second") == 0
    assert client.get("key") == b"first"


def test_a_key_can_be_written_again_after_removal(client):
    assert client.put("key", b"first") == 0
    assert client.remove("key") == 0
    assert client.put("key", b"second") == 0
    assert client.get("key") == b"second"


def test_what_cannot_be_stored_is_refused(client):
    assert client.put("no value", b"") == INVALID_PARAMS
    assert client.put("", b"no key") == INVALID_PARAMS
    assert client.put("soft pin without ENABLE", b"value", config={"soft_pin_ttl_ms": 1000}) == INVALID_PARAMS
    assert client.put("no replicas", b"value", config={"replica_num": 0}) == INVALID_PARAMS


def test_batches(client):
    keys = [f"batch-{index}" for index in range(400)]
    values = [f"value {index}".encode() * (index + 1) for index in range(400)]
    assert client.put_batch(keys, values) == 0
    assert client.get_batch(keys) == values
    assert client.batch_is_exist([keys[0], "absent", keys[-1]]) == [1, 0, 1]
    assert client.get_batch([keys[7], "absent"]) == [values[7], b""]
    assert set(client.batch_get_replica_desc([keys[7], "absent"])) == {keys[7]}
    assert client.batch_remove([keys[0], "absent"], force=True) == [0, OBJECT_NOT_FOUND]
    assert client.batch_is_exist(keys) == [0] + [1] * 399


def test_registered_memory(client):
    keys, values = ["one", "two"], [b"1" * 100_000, b"2" * 70_000]
    assert client.put_registered(keys, values) == [0, 0]
    assert client.get_registered(keys + ["absent"], [100_000, 70_000, 10]) == (
        [100_000, 70_000, OBJECT_NOT_FOUND],
        values + [bytes(10)],
    )


def test_parts_of_one_object(client):
    assert client.put_parts("parts", b"first,", b"second,", b"third") == 0
    assert client.get("parts") == b"first,second,third"


def test_removal_by_regex(client):
    keys = ["layer/1/a", "layer/1/b", "layer/12/a", "other"]
    assert client.put_batch(keys, [b"value"] * 4) == 0
    assert client.remove_by_regex("([") == INVALID_PARAMS
    assert client.remove_by_regex("^nothing$") == 0
    assert client.remove_by_regex(r"^layer/1/.*$") == 2
    assert client.batch_is_exist(keys) == [0, 0, 1, 1]
    # A pattern matches anywhere in a key, not only all of it; the keys just looked up have a lease.
    assert client.remove_by_regex("a|e", force=True) == 2
    assert client.batch_is_exist(keys) == [0, 0, 0, 0]


def test_removal_of_everything(master, client):
    assert client.put_batch(["a", "b", "c"], [b"value"] * 3) == 0
    assert client.is_exist("b") == 1
    assert client.remove_all() == 2, "the key with a lease stays"
    assert master.keys() == {"b"}
    assert client.remove_all(force=True) == 1
    assert master.keys() == set()
    assert client.put("a", b"again") == 0
    assert client.get("a") == b"again"


def test_upsert(client):
    assert client.upsert("key", b"inserted") == 0
    assert client.get("key") == b"inserted"
    [before] = client.get_replica_desc("key")

    assert client.upsert("key", b"replaced") == 0, "same size: written in place"
    assert client.get("key") == b"replaced"
    assert client.get_replica_desc("key") == [before]

    assert client.upsert("key", b"another size") == 0
    assert client.get("key") == b"another size"
    assert client.get_size("key") == 12

    assert client.upsert_batch(["key", "new"], [b"1", b"2"]) == 0
    assert client.get_batch(["key", "new"]) == [b"1", b"2"]


@pytest.mark.parametrize(
    "key",
    [
        "ключ-鍵-🔑",
        "with spaces\tand\nlines",
        "nul\0inside",
        b"\xff\xfe\x00 not UTF-8",
        "k" * 255,
        "k" * 256,
        "k" * 4096,
    ],
    ids=["unicode", "white space", "nul", "binary", "255 bytes", "256 bytes", "4096 bytes"],
)
def test_keys(client, key):
    neighbour = key[:-1]
    assert client.put(key, b"value") == 0
    assert client.is_exist(neighbour) == 0
    assert client.put(neighbour, b"neighbour") == 0
    assert client.get_batch([key, neighbour]) == [b"value", b"neighbour"]
    assert client.remove(key, force=True) == 0
    assert client.batch_is_exist([key, neighbour]) == [0, 1]


def test_a_key_that_is_no_string_is_refused_by_the_client(client):
    with pytest.raises(ClientError, match="TypeError"):
        client.put(17, b"value")
    assert client.put("after", b"value") == 0


# The client refuses what it read if the lease ran out meanwhile, as it may on a busy machine.
@pytest.mark.master(default_kv_lease_ttl=600_000)
def test_large_values(start_client):
    client = start_client(segment_size=512 << 20, buffer_size=256 << 20)
    large = {f"large-{size}": bytes(range(251)) * (size // 251) for size in [16 << 20, 64 << 20, 100 << 20]}
    for key, value in large.items():
        assert client.put(key, value) == 0
    for key, value in large.items():
        assert client.get(key) == value
        assert client.get_size(key) == len(value)
