#!/usr/bin/env python3
"""How long nobody answers when a primary dies or hands over: this master beside the reference, in the same run.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, MOONCAKE_PYTHON, ETCD_BIN. Each of the two has its own etcd,
three masters and a real client; they take turns, so that both meet the same machine. The result is a table in Markdown.
Everything that was started is ended.

A raw probe asks all masters all the time, each on a connection of its own; the real client calls `is_exist` every ten
milliseconds, whatever became of the calls before. Counted is from the moment before SIGKILL to the first answer to a call
made after it; and the longest that any such call of the client took, answered or not.
"""

import argparse
import pathlib
import statistics
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import faults  # noqa: E402
from clients import MIB  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from raw import Probe  # noqa: E402
from world import World  # noqa: E402

GIVE_UP_SECONDS = 120
ASK_SECONDS = 0.01
# Between rounds: enough for the killed master to follow again and for the client to settle.
REST_SECONDS = 2.0


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


class ClientLoop:
    """A real client that is asked for something every few milliseconds, whatever became of the calls before."""

    def __init__(self, client):
        self._client = client
        client.start_asking("probe", ASK_SECONDS)

    def _after(self, moment):
        return [(asked, answered) for asked, answered, result in self._client.answers() if asked >= moment and result >= 0]

    def first_after(self, moment):
        end = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < end:
            if later := self._after(moment):
                return min(answered for _, answered in later) - moment
            time.sleep(0.02)
        raise TimeoutError("the client found no primary")

    def stop(self, moment):
        """The longest that a call took which began after `moment`, answered or not."""
        self._client.stop_asking()
        return max((answered - asked for asked, answered, _ in self._client.answers() if asked >= moment), default=0.0)


def one_round(world, fault):
    """(seconds to the first answer by the probe, by the client, longest silence, longest call of the client)"""
    world.settle()
    world.masters.wait_until_redundant()
    probe, client = Probe(world.masters.addresses, world.host), ClientLoop(world.clients[0])
    struck = None
    try:
        time.sleep(REST_SECONDS)
        steps = fault(world)
        struck = next(steps)
        by_probe, _ = probe.first_after(struck, GIVE_UP_SECONDS)
        by_client = client.first_after(struck)
        silence = probe.longest_silence(struck, time.monotonic())
        next(steps, None)
        # Until calls that began right after it have ended, too.
        time.sleep(REST_SECONDS)
    finally:
        probe.stop()
        longest = client.stop(struck or time.monotonic())
    return by_probe, by_client, silence, longest


def line(name, kind, values):
    shown = [f"{statistics.median(values) * 1000:,.0f} ms", f"{max(values) * 1000:,.0f} ms"]
    return f"| {name} | {kind} | {len(values)} | {' | '.join(shown)} |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50, help="kills of each (50)")
    parser.add_argument("--switchovers", type=int, default=20, help="switchovers of ours (20)")
    parser.add_argument("--etcd", type=int, default=1, choices=[1, 3], help="members of each etcd (1)")
    parser.add_argument("--only", choices=[OURS, REFERENCE])
    arguments = parser.parse_args()
    kinds = [arguments.only] if arguments.only else [OURS, REFERENCE]

    with tempfile.TemporaryDirectory() as folder:
        worlds = {}
        try:
            for kind in kinds:
                path = pathlib.Path(folder) / kind
                path.mkdir()
                worlds[kind] = World(path, arguments.etcd, clients=0, kind=kind)
                worlds[kind].start_client(segment_size=64 * MIB)
            kills = {kind: [] for kind in kinds}
            for number in range(arguments.rounds):
                for kind in kinds if number % 2 else reversed(kinds):
                    kills[kind].append(one_round(worlds[kind], faults.kill))
                    probe, client, _, longest = kills[kind][-1]
                    say(f"round {number}: {kind}: probe {probe:.3f} s, client {client:.3f} s, longest call {longest:.3f} s")
            switchovers = []
            if OURS in kinds:
                for _ in range(arguments.switchovers):
                    switchovers.append(one_round(worlds[OURS], faults.switchover))
        finally:
            for each in worlds.values():
                each.end()

    print("| | master | rounds | median | maximum |\n|---|---|---:|---:|---:|")
    for kind in kinds:
        print(line("SIGKILL to the first answer, raw probe", kind, [each[0] for each in kills[kind]]))
    for kind in kinds:
        print(line("SIGKILL to the first answer, real client", kind, [each[1] for each in kills[kind]]))
    for kind in kinds:
        print(line("SIGKILL, longest call of the real client", kind, [each[3] for each in kills[kind]]))
    if switchovers:
        print(line("switchover, longest time without answers, raw probe", OURS, [each[2] for each in switchovers]))
        print(line("switchover, longest call of the real client", OURS, [each[3] for each in switchovers]))


main()
