"""Reads protect an object for a while: from removal here, from eviction in test_eviction.py."""

import pytest

from waiting import wait_until

OBJECT_HAS_LEASE = -706
# Long enough that it cannot run out while a test looks at its effect.
LONG_MS = 600_000


@pytest.mark.master(default_kv_lease_ttl=LONG_MS)
@pytest.mark.parametrize("read", ["get", "is_exist", "get_size", "get_replica_desc"])
def test_a_read_keeps_a_key_from_removal(client, read):
    assert client.put("key", b"value") == 0
    client.call(read, "key")
    assert client.remove("key") == OBJECT_HAS_LEASE
    assert client.batch_remove(["key"]) == [OBJECT_HAS_LEASE]
    assert client.remove_by_regex("key") == 0
    assert client.remove_all() == 0
    assert client.get("key") == b"value"
    assert client.remove("key", force=True) == 0
    assert client.is_exist("key") == 0


@pytest.mark.master(default_kv_lease_ttl=LONG_MS)
def test_a_write_gives_no_lease(client):
    assert client.put("key", b"value") == 0
    assert client.remove("key") == 0


@pytest.mark.master(default_kv_lease_ttl=1000)
def test_a_lease_ends(client):
    assert client.put("key", b"value") == 0
    assert client.get("key") == b"value"
    wait_until(lambda: client.remove("key") == 0, "the lease to end")
    assert client.is_exist("key") == 0


@pytest.mark.master(default_kv_lease_ttl=LONG_MS)
def test_another_client_sees_the_lease(start_client):
    reader, remover = start_client(), start_client()
    assert remover.put("key", b"value") == 0
    assert reader.get("key") == b"value"
    assert remover.remove("key") == OBJECT_HAS_LEASE
