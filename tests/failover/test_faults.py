"""Every fault, a few rounds of each, in traffic of real clients and of fast raw ones."""

import pytest

import faults
from checker import summary


def run(world, fault, rounds):
    for number in range(rounds):
        done = world.round(fault)
        print(
            f"{done.fault} {number}: {done.acknowledged} acknowledged, first answer after {done.first_answer:.3f} s, "
            f"longest silence {done.silence:.3f} s, {summary(done.violations, 3)}",
            flush=True,
        )
        if done.violations:
            pytest.fail(summary(done.violations))
        assert done.acknowledged > 100, "not much was tested"


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault, rounds",
    [
        (faults.kill, 4),
        (faults.terminate, 1),
        (faults.switchover, 2),
        (faults.kill_twice, 1),
        (faults.all_killed, 1),
        (faults.standby_killed, 1),
        (faults.short_pause, 2),
        (faults.long_pause, 2),
        (faults.etcd_away_2s, 2),
        (faults.etcd_killed_2s, 1),
        (faults.etcd_away_20s, 1),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_one_etcd(start_world, fault, rounds):
    run(start_world(), fault, rounds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault, rounds",
    [(faults.kill, 2), (faults.etcd_leader_killed, 2), (faults.etcd_leader_paused, 1), (faults.etcd_killed_20s, 1)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_three_etcd(start_world, fault, rounds):
    run(start_world(etcd_size=3), fault, rounds)


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "fault, rounds",
    [(faults.cut_from_etcd, 2), (faults.short_cut_from_etcd, 1), (faults.standby_cut_from_etcd, 1)],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_cut_networks(start_world, fault, rounds):
    run(start_world(namespaces=True), fault, rounds)
