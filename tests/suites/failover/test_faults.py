"""Every fault, a few rounds of each, in traffic of real clients and of fast raw ones: nothing is lost, and the masters do
what the fault's `expects` says and no more."""

import pytest

import faults
from checker import summary
from cluster import OURS, kind_under_test
from expectations import LONG_LEASE_SECONDS

# Of a long lease nothing is seen unless the masters wait for its end, which they must not where a process dies or hands
# over; and no stall of the machine ends it. The reference has one lease.
LONG = {"leader_lease_ttl": f"{LONG_LEASE_SECONDS}s"} if kind_under_test() == OURS else {}
# Acknowledged changes of a round.
LEAST_CHANGES = 200
# Faults that are noticed by the end of the lease have the default one.
SHORT = {}


def run(world, fault, rounds):
    for number in range(rounds):
        done = world.round(fault, warm_up=0.7, least=LEAST_CHANGES)
        worst = "none" if done.client_silence is None else f"{done.client_silence:.3f} s"
        print(
            f"{done.fault} {number}: {done.acknowledged} acknowledged, first answer after {done.first_answer:.3f} s, "
            f"longest silence {done.silence:.3f} s, of the worst client {worst}, {done.failed_calls} of their calls "
            f"failed, {summary(done.violations, 3)}",
            flush=True,
        )
        if done.violations:
            pytest.fail(f"{done.fault}: {summary(done.violations)}")


def named(value):
    return getattr(value, "__name__", None) or {str(LONG): "long lease", str(SHORT): "short lease"}.get(str(value))


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault, rounds, lease",
    [
        (faults.kill, 4, LONG),
        (faults.terminate, 1, LONG),
        (faults.switchover, 2, LONG),
        (faults.standby_killed, 1, LONG),
        (faults.short_pause, 2, LONG),
        (faults.etcd_away_2s, 2, LONG),
        (faults.etcd_killed_2s, 1, LONG),
        (faults.kill_twice, 1, SHORT),
        (faults.all_killed, 1, SHORT),
        (faults.long_pause, 2, SHORT),
        (faults.pause_around_the_lease, 1, SHORT),
        (faults.etcd_away_20s, 1, SHORT),
    ],
    ids=named,
)
def test_one_etcd(start_world, fault, rounds, lease):
    run(start_world(**lease), fault, rounds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault, rounds, lease",
    [
        (faults.kill, 2, LONG),
        (faults.etcd_leader_killed, 2, LONG),
        (faults.etcd_leader_paused, 1, LONG),
        (faults.etcd_killed_20s, 1, SHORT),
    ],
    ids=named,
)
def test_three_etcd(start_world, fault, rounds, lease):
    run(start_world(etcd_size=3, **lease), fault, rounds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault, rounds, lease",
    [
        (faults.cut_from_etcd, 2, SHORT),
        (faults.flapping_link, 1, SHORT),
        (faults.short_cut_from_etcd, 1, LONG),
        (faults.standby_cut_from_etcd, 1, LONG),
    ],
    ids=named,
)
def test_cut_networks(start_world, fault, rounds, lease):
    run(start_world(namespaces=True, **lease), fault, rounds)
