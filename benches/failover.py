#!/usr/bin/env python3
"""How long no master answers when a primary dies or hands over: this project's masters beside the reference, in one run.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, ETCD_BIN. Each of the two has its own etcd, three masters and the
same number of objects, all of which are read at random until the fault; they take turns, so that both meet the same
machine. A raw probe asks all masters all the time, each on a connection of its own. Counted is from the moment before
SIGKILL to the first answer to a call made after it, and the longest time without an answer in a switchover. What a real
client feels is `clients.py`. With `--json` every round is written as it comes. Everything that was started is ended.
"""

import argparse
import pathlib
import signal
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "suites"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import bench_load  # noqa: E402
import faults  # noqa: E402
from bench_world import BenchWorld  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from raw import Probe  # noqa: E402
from recording import Recording  # noqa: E402
from tables import failover as tables  # noqa: E402

FAULTS = {"kill": faults.kill, "switchover": faults.switchover}
GIVE_UP_SECONDS = 120
# Reads before a fault, and the probe's time after it.
READ_SECONDS, REST_SECONDS = 3.0, 2.0
# The client that put the objects ends with that, and its memory is to stay.
CLIENT_TTL_SECONDS = 86_400


def say(text):
    print(f"== {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def one_round(world, fault, objects):
    """Milliseconds to the first answer, and of the longest time without one."""
    world.masters.wait_until_connected()
    # The reader ends with the primary that it reads from.
    with bench_load.reading(world, objects):
        probe = Probe(world.masters.addresses, world.host)
        try:
            time.sleep(READ_SECONDS)
            steps = fault(world)
            struck = next(steps)
            first, _ = probe.first_after(struck, GIVE_UP_SECONDS)
            next(steps, None)
            time.sleep(REST_SECONDS)
            silence = probe.longest_silence(struck, time.monotonic())
        finally:
            probe.stop()
    return {"first_answer_ms": round(first * 1000, 3), "silence_ms": round(silence * 1000, 3)}


def turns(options):
    """(fault, round, kind), the kinds taking turns and changing their order."""
    kinds = [options.only] if options.only else [OURS, REFERENCE]
    limits = {OURS: options.rounds, REFERENCE: options.reference_rounds}
    for number in range(1, options.rounds + 1):
        for kind in kinds if number % 2 else reversed(kinds):
            if number <= limits[kind]:
                yield "kill", number, kind
    for number in range(1, options.switchovers + 1 if OURS in kinds else 0):
        yield "switchover", number, OURS


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="kills of ours (50)")
    parser.add_argument("--reference-rounds", type=int, default=10, help="kills of the reference (10)")
    parser.add_argument("--switchovers", type=int, default=20, help="switchovers of ours (20)")
    parser.add_argument("--objects", type=int, default=100_000, help="objects that are there and are read (100,000)")
    parser.add_argument("--etcd", type=int, default=1, choices=[1, 3], help="members of each etcd (1)")
    parser.add_argument("--only", choices=[OURS, REFERENCE])
    parser.add_argument("--json", metavar="FILE", help="also add every round to this file, as it comes")
    return parser.parse_args()


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kept = ("rounds", "reference_rounds", "switchovers", "objects", "etcd")
    recording = Recording(options.json, "failover", **{name: getattr(options, name) for name in kept})
    with tempfile.TemporaryDirectory(prefix="failover-") as folder:
        worlds = {}
        try:
            for kind in [options.only] if options.only else [OURS, REFERENCE]:
                path = pathlib.Path(folder) / kind
                path.mkdir()
                worlds[kind] = BenchWorld(path, options.etcd, clients=0, kind=kind, client_ttl=CLIENT_TTL_SECONDS)
                bench_load.fill(worlds[kind], options.objects)
            for fault, number, kind in turns(options):
                worlds[kind].note_companions()
                result = one_round(worlds[kind], FAULTS[fault], options.objects)
                recording.add(kind=kind, fault=fault, round=number, **result)
                say(f"{kind}: {fault}, round {number}: {', '.join(f'{name} {value:,.1f}' for name, value in result.items())}")
        finally:
            for each in worlds.values():
                each.end()
    print("\n".join(tables.lines([recording.run])))


if __name__ == "__main__":
    main()
