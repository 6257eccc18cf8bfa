"""Planned hand-overs that meet a fault: a target that stalls or is dead, a client that is silent, a load of reads."""

import time

import pytest

from actors import RawActor
import handover_faults
from checker import summary
from handover_faults import documented
from messages import TENANT
from raw import Probe
from rpc import Connection
from raw_client import RawClient
from struct_pack import Ok
from waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.timeout(240)
# Objects of the read load; `make soak` has more.
READ_OBJECTS = 1_000_000


def raw_actor(world, name="raw0"):
    return RawActor(name, world.seed, world.history, world.published["raw"], world.session())


def check_now(world):
    violations = world.sweep()
    assert not violations, summary(violations)


@pytest.mark.parametrize("stall_seconds", [7])
def test_a_target_that_stalls_longer_than_the_lease_of_the_successor(ask, start_world, stall_seconds):
    """F1."""
    world = start_world(clients=1)
    raw_actor(world).put_batch(500)
    world.masters.wait_until_connected()
    primary, target = world.masters.primary(), world.masters.standbys()[0]
    target.pause()
    asked = ask(primary.try_switchover, target.name)
    time.sleep(stall_seconds)
    target.resume()
    assert documented(asked.result(60))
    check_now(world)
    # And the cluster can be switched over as before.
    world.masters.wait_until_connected()
    assert world.masters.wait_until_serving().try_switchover()[0] == 200
    check_now(world)


def test_a_client_that_is_silent_through_a_hand_over_that_is_given_up(ask, start_world):
    """F5: its deadline outlives the closing of the port, and so does that of the client that pings."""
    world = start_world(masters=2, clients=0, client_ttl=3)
    silent, alive = (RawClient(world) for _ in range(2))
    try:
        assert silent.put(["of the silent"]) and alive.put(["of the living"])
        world.masters.wait_until_connected()
        primary, [target] = world.masters.primary(), world.masters.standbys()
        silent.fall_silent()
        target.pause()
        given_up = ask(primary.try_switchover, target.name).result(60)
        target.resume()
        assert given_up[0] == 503 and given_up[1]["code"] == "given_up", given_up
        assert world.masters.wait_until_serving() is primary
        wait_until(lambda: primary.segments() == [alive.name], "the silent client's segment to go")
        wait_until(lambda: primary.keys() == {"of the living"}, "its object to go")
    finally:
        silent.close()
        alive.close()


def gone(target):
    target.kill()
    # Its member key outlives it for ten seconds.
    time.sleep(1)


def hung(target):
    target.pause()
    # It reports each second; after two seconds without a report it is no target.
    time.sleep(4)


@pytest.mark.parametrize("harm", [gone, hung])
def test_a_switchover_without_a_target_closes_nothing(start_world, harm):
    """F7: it is refused before the port is closed, so a connection lives through it."""
    world = start_world(masters=2, clients=0)
    world.masters.wait_until_connected()
    primary, [target] = world.masters.primary(), world.masters.standbys()
    connection = Connection((primary.host.address, primary.rpc_port))
    try:
        harm(target)
        no_target, no_such_member = (409, "no_target"), (404, "no_such_member")
        # The target is a member until the lease of its key ends; a name that was never one is told apart.
        for to, answers in ((None, [no_target]), (target.name, [no_target, no_such_member]), ("m-9", [no_such_member])):
            status, body = primary.try_switchover(to)
            assert (status, body.get("code")) in answers, (to, status, body)
            assert isinstance(connection.call("ExistKey", "probe", TENANT), Ok)
    finally:
        connection.close()
        if target.running():
            target.resume()


def test_a_switchover_reports_how_long_no_master_answered(start_world):
    """Both times are within what the caller sees, and the port is closed for a part of the switchover only."""
    world = start_world(clients=0)
    world.masters.wait_until_connected()
    primary = world.masters.primary()
    probe = Probe(world.masters.addresses, world.host)
    try:
        began = time.monotonic()
        probe.first_after(began, DEADLINE_SECONDS)
        asked = time.monotonic()
        status, body = primary.try_switchover()
        elapsed_ms = (time.monotonic() - asked) * 1000
        assert status == 200, body
        # The successor answers, and the old primary does not.
        _, who = probe.first_after(time.monotonic(), DEADLINE_SECONDS)
        assert who != (primary.host.address, primary.rpc_port)
        silence_ms = probe.longest_silence(asked, time.monotonic()) * 1000
    finally:
        probe.stop()
    print(f"{body}, {silence_ms:.0f} ms without an answer")
    assert 0 < body["unanswered_ms"] <= body["total_ms"] <= elapsed_ms


@pytest.mark.parametrize("how", ["switchover", "SIGTERM"])
def test_a_dead_standby_is_not_the_successor(start_world, how):
    """F7: of two standbys the one that lives is chosen, whichever has just died."""
    world = start_world(clients=0)
    for victim_index in (0, 1):
        world.masters.wait_until_connected()
        primary = world.masters.primary()
        standbys = world.masters.standbys()
        victim, other = standbys[victim_index], standbys[1 - victim_index]
        victim.kill()
        time.sleep(0.3)
        if how == "switchover":
            status, body = primary.try_switchover()
            assert status == 200, body
        else:
            primary.terminate()
        # Not even the key of the dead one has gone meanwhile: it was not waited for.
        assert world.etcd.get(f"mooncake-store/{world.masters.cluster_id}/members/{victim.name}") is not None
        assert world.wait_for_another(primary) is other
        assert other.status()["promotion"]["reason"] == "switchover"
        for each in (victim, primary):
            if not each.running():
                each.start()


def test_the_member_key_of_a_standby_goes_with_it(start_world):
    """F7: an orderly stop revokes the lease before the process ends."""
    world = start_world(clients=0)
    world.masters.wait_until_connected()
    standby = world.masters.standbys()[0]
    key = f"mooncake-store/{world.masters.cluster_id}/members/{standby.name}"
    assert world.etcd.get(key) is not None
    standby.terminate()
    assert world.etcd.get(key) is None


@pytest.mark.timeout(600)
def test_a_million_objects_under_a_load_of_reads(start_world):
    """F12: each read gives a lease, all of which are handed over. Neither that nor a crash may take as long as the leader's
    lease, however many objects there are."""
    world = start_world(
        clients=0,
        raw_clients=2,
        objects=READ_OBJECTS,
        client_ttl=3600,
        inherited_client_ttl="1h",
        default_kv_lease_ttl="600s",
        leader_lease_ttl="30s",
    )
    handover_faults.fill_for_reads(world)
    for fault in (handover_faults.switchover_under_reads, handover_faults.kill_under_reads):
        done = world.round(fault, warm_up=0.5)
        print(f"{done.fault}: {done.silence:.3f} s without an answer, {summary(done.violations, 3)}", flush=True)
        assert not done.violations, summary(done.violations)
    assert world.masters.wait_until_serving().metric("moonkeeper_objects") >= READ_OBJECTS
