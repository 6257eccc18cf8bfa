"""More data than memory: the oldest unprotected objects make room, protected ones stay."""

import pytest

from clients import MIB
from waiting import wait_until

NO_AVAILABLE_HANDLE = -200
SEGMENT_MIB = 64
# Long enough that no lease runs out while a test goes on.
LONG_MS = 600_000


def put_when_there_is_room(client, key, value, **kwargs):
    """Writes as users do: a full store says so at once and makes room in the background."""

    def attempt():
        result = client.put(key, value, **kwargs)
        assert result in (0, NO_AVAILABLE_HANDLE)
        return result == 0

    wait_until(attempt, f"room for {key}")


def fill_thrice(client):
    """Writes three times what fits. The last key and value are returned."""
    for index in range(3 * SEGMENT_MIB):
        key, value = f"filler-{index}", index.to_bytes(4, "little") * (MIB // 4)
        put_when_there_is_room(client, key, value)
    return key, value


def fill_until_refused(client, **kwargs):
    """Writes objects of 1 MiB until there is no room; the keys that were written are returned."""
    keys = []
    while True:
        key = f"fixed-{len(keys)}"
        result = client.put(key, bytes(MIB), **kwargs)
        if result != 0:
            assert result == NO_AVAILABLE_HANDLE
            return keys
        keys.append(key)
        assert len(keys) <= SEGMENT_MIB


def test_old_objects_make_room_for_new_ones(master, client):
    key, value = fill_thrice(client)
    assert client.get(key) == value
    left = master.keys()
    assert "filler-0" not in left
    # Eviction begins above 90 % and takes 5 % of the objects at a time; which ones, and how many exactly, is compared with
    # the reference in tests/suites/differential/test_eviction.py. Here: not much more than it has to.
    assert SEGMENT_MIB * 3 // 4 <= len(left) <= SEGMENT_MIB


@pytest.mark.master(default_kv_lease_ttl=LONG_MS)
def test_what_was_read_stays(client):
    assert client.put_batch(["read", "looked for"], [b"value" * 1000] * 2) == 0
    assert client.get("read") == b"value" * 1000
    assert client.is_exist("looked for") == 1
    fill_thrice(client)
    assert client.get_batch(["read", "looked for"]) == [b"value" * 1000] * 2


def test_a_soft_pin_keeps_an_object_while_others_can_go(client):
    assert client.put("pinned", b"value" * 1000, config={"soft_pin_action": "ENABLE"}) == 0
    fill_thrice(client)
    assert client.get("pinned") == b"value" * 1000


def test_soft_pinned_objects_go_when_nothing_else_can(client):
    for index in range(2 * SEGMENT_MIB):
        put_when_there_is_room(client, f"pinned-{index}", bytes(MIB), config={"soft_pin_action": "ENABLE"})
    assert client.is_exist("pinned-0") == 0
    assert client.is_exist(f"pinned-{2 * SEGMENT_MIB - 1}") == 1


@pytest.mark.master(allow_evict_soft_pinned_objects="false")
def test_soft_pinned_objects_stay_if_the_master_says_so(client):
    keys = fill_until_refused(client, config={"soft_pin_action": "ENABLE"})
    assert len(keys) > SEGMENT_MIB // 2
    assert client.put("one more", bytes(MIB)) == NO_AVAILABLE_HANDLE
    assert client.batch_is_exist(keys) == [1] * len(keys)


def test_hard_pinned_objects_stay(client):
    keys = fill_until_refused(client, config={"with_hard_pin": True})
    assert len(keys) > SEGMENT_MIB // 2
    assert client.put("one more", bytes(MIB)) == NO_AVAILABLE_HANDLE
    assert client.batch_is_exist(keys) == [1] * len(keys)
    # Removal is not eviction: it frees the memory of a pinned object at once.
    assert client.remove(keys[0], force=True) == 0
    assert client.put("one more", bytes(MIB)) == 0


def test_an_object_larger_than_any_segment(start_client):
    client = start_client(segment_size=16 * MIB, buffer_size=64 * MIB)
    assert client.put("small", b"value") == 0
    assert client.put("too large", bytes(20 * MIB)) == NO_AVAILABLE_HANDLE
    assert client.is_exist("too large") == 0
