"""Hundreds of rounds with faults drawn by seed; prints a table.

MOONKEEPER_FAULT_ROUNDS says how many rounds (200, with at least ten of each fault in NEW), MOONKEEPER_SOAK_SECONDS
bounds them in time, MOONKEEPER_FAULT_OBJECTS says how many objects are read in a switchover under reads.
"""

import collections
import itertools
import os
import random
import time

import pytest

import faults
import handover_faults
import log_faults
from checker import summary
from cluster import REFERENCE, kind_under_test
from conftest import SEED
from messages import MIB
from test_faults import LONG

# What the end of a lease has no part in: in deployments with a long one it is seen whether it has.
PROMPT = [
    faults.kill,
    faults.kill,
    faults.terminate,
    faults.switchover,
    faults.standby_killed,
    faults.short_pause,
    faults.etcd_away_2s,
    faults.etcd_killed_2s,
    faults.etcd_leader_killed,
]
ANY = [*PROMPT, faults.kill_twice, faults.all_killed, faults.long_pause, faults.pause_around_the_lease]
OURS_ONLY = kind_under_test() != REFERENCE
if not OURS_ONLY:
    for each in (PROMPT, ANY):
        each.remove(faults.switchover)
RARE = [faults.etcd_away_20s, faults.etcd_killed_20s]
# Faults of hand-overs and of the log, which only ours has: in turn, so that each has its rounds.
NEW = [
    handover_faults.aborted_handover,
    log_faults.log_deleted,
    handover_faults.stalled_target,
    log_faults.etcd_restored,
]
NEW_OF_A_WORLD = 4
LEAST_ROUNDS_OF_NEW = 10
# A deployment, what can happen to it, and whether that includes what takes longer than a lease: NEW, and RARE with every
# third one.
LINKS = [faults.short_cut_from_etcd, faults.flapping_link, faults.standby_cut_from_etcd, faults.kill, faults.terminate]
SCENES = [
    ({"etcd_size": 1}, ANY, True),
    ({"etcd_size": 1} | LONG, PROMPT, False),
    ({"etcd_size": 3}, [*ANY, faults.etcd_leader_paused, faults.etcd_leader_killed], True),
    ({"etcd_size": 3} | LONG, [*PROMPT, faults.etcd_leader_paused, faults.etcd_leader_killed], False),
    ({"namespaces": True}, [*LINKS, faults.cut_from_etcd], True),
    ({"namespaces": True} | LONG, LINKS, False),
]
if not OURS_ONLY:
    # The reference's lease has one length.
    SCENES = [each for each in SCENES if each[2]]
# Deployments of raw clients, whose memory outlives them, with objects beyond what real clients could write: what has its
# rounds there, and what comes between those.
RAW_SETTINGS = {"clients": 0, "raw_clients": 2, "client_ttl": 3600, "inherited_client_ttl": "1h"}
RAW_SCENES = [
    (RAW_SETTINGS, [handover_faults.slow_removal] * 3, ANY),
    (
        RAW_SETTINGS | LONG | {"default_kv_lease_ttl": "600s", "objects": handover_faults.READ_OBJECTS},
        [handover_faults.switchover_under_reads] * 3,
        [handover_faults.kill_under_reads, faults.switchover],
    ),
]
ROUNDS_OF_A_WORLD = 6
# Of each client: all that is put in so many rounds on a quick machine. Where nothing may be missing, nothing may be evicted.
CLIENT_BYTES = 1024 * MIB


def worlds():
    """(settings, faults) of one deployment after the other, for ever."""
    new, rare = itertools.cycle(NEW), 0
    for number in itertools.count():
        seed = f"{SEED}-{number}"
        chance = random.Random(seed)
        turn = number % (len(SCENES) + len(RAW_SCENES)) if OURS_ONLY else number % len(SCENES)
        if turn >= len(SCENES):
            settings, plan, choices = RAW_SCENES[turn - len(SCENES)]
            plan = plan + chance.choices(choices, k=ROUNDS_OF_A_WORLD - len(plan))
        else:
            settings, choices, lasting = SCENES[turn]
            plan = list(itertools.islice(new, NEW_OF_A_WORLD)) if OURS_ONLY and lasting else []
            if lasting:
                rare += 1
                plan.append(chance.choice(RARE if rare % 3 == 1 else choices))
            plan += chance.choices(choices, k=ROUNDS_OF_A_WORLD - len(plan))
        chance.shuffle(plan)
        yield {"seed": seed, **settings}, plan, chance


@pytest.mark.soak
def test_random_faults(start_world, soak_rounds):
    seconds = os.environ.get("MOONKEEPER_SOAK_SECONDS")
    end = time.monotonic() + float(seconds) if seconds else float("inf")
    wanted = int(os.environ.get("MOONKEEPER_FAULT_ROUNDS", "200"))
    failures = []
    for settings, plan, chance in worlds():
        if time.monotonic() > end or len(soak_rounds) >= wanted:
            break
        world = start_world(client_bytes=CLIENT_BYTES, **settings)
        for fault in plan:
            if time.monotonic() > end:
                break
            text = f"world {settings['seed']}: {fault.__name__}"
            try:
                done = world.round(fault, warm_up=chance.uniform(0.3, 2.0))
            except AssertionError as wrong:
                # No primary serves again, or a master does not say what it has to.
                failures.append(f"{text}: {wrong}\nlogs: {world.folder}")
                print(failures[-1], flush=True)
                break
            soak_rounds.append(done)
            text += f": {done.acknowledged} acknowledged, {done.silence:.2f} s silent, "
            text += f"worst client {done.client_silence or 0:.2f} s, {done.failed_calls} calls failed"
            if evicted := sum(each.metric("master_evicted_key_count") or 0 for each in world.masters.all):
                text += f", {evicted:.0f} objects evicted: CLIENT_BYTES is too small"
            print(f"{text}, {summary(done.violations, 3)}", flush=True)
            if done.violations:
                # What this world does from here on says nothing new.
                failures.append(f"{text}\n{summary(done.violations)}\nlogs: {world.folder}")
                break
        world.end()
        # It was checked round by round. Those of all worlds together would not fit into memory.
        world.history.operations.clear()
    assert soak_rounds
    assert not failures, "\n".join(failures)
    if OURS_ONLY and not seconds and wanted >= 200:
        rounds = collections.Counter(each.fault for each in soak_rounds)
        new = [*NEW, handover_faults.slow_removal, handover_faults.switchover_under_reads]
        few = {each.__name__: rounds[each.__name__] for each in new if rounds[each.__name__] < LEAST_ROUNDS_OF_NEW}
        assert not few, f"too few rounds: {few}"
