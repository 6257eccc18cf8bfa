"""Attacks on the peer port change neither a switchover nor a failover, and cost the master no memory.

A killed primary must be replaced because its death was noticed. The lease is so long that it cannot have run out.
"""


import pytest

from peer_attacks import FLOOD_BYTES, MIB, ForgedReports, HeldConnections, NewNames
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)


def resident_bytes(master):
    with open(f"/proc/{master.process.pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS:"))


def hand_over_and_fail_over(world):
    """A switchover to a named standby, then a dead primary; the standbys are those that the attack lets in."""
    primary = world.masters.wait_until_serving()
    target = world.masters.standbys()[0]
    status, body = primary.try_switchover(target.name)
    assert status == 200, body
    assert world.wait_for_another(primary) is target
    world.masters.wait_until_connected()
    target.kill()
    new = world.wait_for_another(target)
    assert new.status()["promotion"]["reason"] == "the primary died"
    target.start()


def test_attacks_around_a_switchover_and_a_failover(start_world):
    world = start_world(clients=0, leader_lease_ttl="30s")
    world.masters.wait_until_connected()
    for kind in (NewNames, ForgedReports, HeldConnections):
        primary = world.masters.wait_until_serving()
        before = resident_bytes(primary)
        with kind(world) as attack:
            everywhere = {each.name for each in world.masters.all}
            wait_until(lambda: attack.failed or attack.begun == everywhere, "an attack that is under way")
            hand_over_and_fail_over(world)
            if kind is NewNames:
                # It has become a standby meanwhile, and was never started anew.
                enough = lambda: attack.failed or attack.sent[primary.name] >= FLOOD_BYTES  # noqa: E731
                wait_until(enough, "so many bytes to be sent", 60)
                grown = resident_bytes(primary) - before
                assert grown < FLOOD_BYTES / 5, f"{grown / MIB:.0f} MiB more"
        assert not attack.failed, attack.failed
        world.masters.wait_until_connected()
        assert primary.metric("moonkeeper_peer_auth_failures_total") > 0
