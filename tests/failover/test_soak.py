"""Hundreds of rounds with faults drawn by seed, for as long as MOONKEEPER_SOAK_SECONDS says; prints a table."""

import itertools
import os
import random
import time

import pytest

import faults
from checker import summary
from cluster import REFERENCE, kind_under_test
from conftest import SEED

ANY = [
    faults.kill,
    faults.kill,
    faults.terminate,
    faults.switchover,
    faults.kill_twice,
    faults.all_killed,
    faults.standby_killed,
    faults.short_pause,
    faults.long_pause,
    faults.pause_around_the_lease,
    faults.etcd_away_2s,
    faults.etcd_killed_2s,
    faults.etcd_leader_killed,
]
if kind_under_test() == REFERENCE:
    ANY.remove(faults.switchover)
RARE = [faults.etcd_away_20s, faults.etcd_killed_20s]
# A deployment, and what can happen to it. The long outages come with every third one.
SCENES = [
    ({"etcd_size": 1}, ANY),
    ({"etcd_size": 3}, [*ANY, faults.etcd_leader_paused, faults.etcd_leader_killed]),
    (
        {"namespaces": True},
        [faults.cut_from_etcd, faults.short_cut_from_etcd, faults.flapping_link, faults.standby_cut_from_etcd, *ANY],
    ),
]
ROUNDS_OF_A_WORLD = 6


@pytest.mark.soak
def test_random_faults(start_world, soak_rounds):
    end = time.monotonic() + float(os.environ.get("MOONKEEPER_SOAK_SECONDS", "60"))
    failures = []
    for number in itertools.count():
        if time.monotonic() > end:
            break
        settings, choices = SCENES[number % len(SCENES)]
        seed = f"{SEED}-{number}"
        chance = random.Random(seed)
        plan = chance.choices(choices, k=ROUNDS_OF_A_WORLD - 1) + [chance.choice(RARE if number % 3 == 0 else choices)]
        world = start_world(seed=seed, **settings)
        for fault in plan:
            if time.monotonic() > end:
                break
            done = world.round(fault, warm_up=chance.uniform(0.3, 2.0))
            soak_rounds.append(done)
            text = f"world {seed}: {fault.__name__}: {done.acknowledged} acknowledged, {done.silence:.2f} s silent"
            print(f"{text}, {summary(done.violations, 3)}", flush=True)
            if done.violations:
                # What this world does from here on says nothing new.
                failures.append(f"{text}\n{summary(done.violations)}\nlogs: {world.folder}")
                break
        world.end()
    assert soak_rounds
    assert not failures, "\n".join(failures)
