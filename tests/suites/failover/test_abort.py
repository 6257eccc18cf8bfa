"""A primary that aborts. A panic of a master ends in this (`end_on_panic` in src/cli/master.rs, shown for the server in
tests/wire/hostile.rs; the release build aborts by itself): for standbys and clients the two are the same. No command makes
the real program panic, so it is told to abort."""

import json
import os
import signal

import pytest

from scene import RECOVERY_SECONDS
from takeover import put_until_taken
from waiting import wait_until

OBJECT_HAS_LEASE = -706


def serves(master):
    health = master.http("/health")
    return health is not None and json.loads(health).get("service_ready")


@pytest.mark.smoke
@pytest.mark.timeout(180)
def test_a_standby_serves_when_the_primary_aborts(start_world):
    # Leases that cannot end in a test: the standbys notice the end of the process, and removals are held back throughout.
    world = start_world(clients=1, leader_lease_ttl="60s", default_kv_lease_ttl=60_000)
    client, masters = world.clients[0], world.masters
    masters.wait_until_redundant()
    old = masters.wait_until_serving()
    values = {f"key-{number}": f"value {number} ".encode() * 100 for number in range(500)}
    assert client.put_batch(list(values), list(values.values())) == 0
    os.killpg(old.process.pid, signal.SIGABRT)
    assert old.process.wait(timeout=60) == -signal.SIGABRT

    def successor():
        primary = masters.primary()
        return primary if primary not in (None, old) and serves(primary) else None

    new = wait_until(successor, "another primary", RECOVERY_SECONDS)
    assert new.status()["promotion"]["reason"] == "the primary died"
    wait_until(lambda: client.is_exist("probe") >= 0, "the client to find it", RECOVERY_SECONDS)
    # The old primary may have promised any of them to a reader. A removal by force does not ask.
    assert new.status()["hold_ms_left"] > 0
    assert client.remove("key-0") == OBJECT_HAS_LEASE
    assert client.remove("key-0", force=True) == 0
    del values["key-0"]
    # Only this primary can have promised an object whose memory was reserved since it began.
    put_until_taken(lambda: client.put("new", b"value"))
    assert new.status()["hold_ms_left"] > 0
    assert client.remove("new") == 0
    assert client.get_batch(list(values)) == list(values.values())
    old.start()
    masters.wait_until_redundant()
    digests = masters.digests()
    assert len(digests) == len(masters.all) and len(set(digests.values())) == 1, digests
