"""Reads protect an object for a while: from removal here, from eviction in test_eviction.py."""

import pytest

from slow_answers import SlowAnswers
from waiting import wait_until

OBJECT_HAS_LEASE = -706
LEASE_EXPIRED = -707
# Long enough that it cannot run out while a test looks at its effect.
LONG_MS = 600_000
SHORT_MS = 1000


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


@pytest.fixture
def slow_answers(master):
    """A proxy before the test's master, not slow yet."""
    proxy = SlowAnswers(master)
    yield proxy
    proxy.end()


READS = {
    "get": (lambda client: client.get("key"), b"value", b""),
    "get_batch": (lambda client: client.get_batch(["key"]), [b"value"], [b""]),
    "get_registered": (lambda client: client.get_registered(["key"], [5])[0], [5], [LEASE_EXPIRED]),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize(
    "used",
    [
        pytest.param(True, id="long lease", marks=pytest.mark.master(default_kv_lease_ttl=LONG_MS)),
        pytest.param(False, id="short lease", marks=pytest.mark.master(default_kv_lease_ttl=SHORT_MS)),
    ],
)
def test_a_client_counts_the_lease_from_its_request(slow_answers, start_client, read, used):
    """R6 after the report of a witness rests on it (docs/decisions/008-the-witness.md): a client uses no answer that was on
    its way for longer than the lease in it, which it would if it counted from the arrival of the answer."""
    client = start_client(slow_answers)
    assert client.put("key", b"value") == 0
    slow_answers.seconds = 1.5 * SHORT_MS / 1000
    call, value, nothing = READS[read]
    assert call(client) == (value if used else nothing)
    # The object is there all the time.
    slow_answers.seconds = 0
    assert client.is_exist("key") == 1
