#!/usr/bin/env python3
"""What a real client feels when a primary ends: eight threads that call without a pause, before, during and after.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, MOONCAKE_PYTHON, ETCD_BIN. Three masters, etcd, a client that
holds the objects, and a client whose threads put, read and remove objects in a tight loop (`tight_loop.py`); this
project's masters and the reference one after the other. For each fault, over all rounds: the longest time that a thread
was without a success, the same for puts alone, the longest call, and every call that failed, by its code and by the moment
at which it began. With `--json` every round is written as it comes. Everything that
was started is ended.

`kill`, `oom`, `panic` and `terminate` end the primary's process; `companion-…` ends its companion a moment before;
`lost-node` takes the primary's process, its companion and its address away (network namespaces; needs root, as does `oom`).
"""

import argparse
import contextlib
import pathlib
import signal
import sys
import tempfile
import time

BENCHES = pathlib.Path(__file__).resolve().parent
TESTS = BENCHES.parent / "tests" / "suites"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import call_times  # noqa: E402
import hosts  # noqa: E402
import kills  # noqa: E402
from bench_world import BenchWorld  # noqa: E402
from clients import MIB, Client, ClientError  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from companions import end_process  # noqa: E402
from out_of_memory import NoCgroup  # noqa: E402
from recording import Recording  # noqa: E402
from scene import CLIENT_ENVIRONMENT  # noqa: E402
from tables import clients as tables  # noqa: E402
from tables.clients import FAULTS  # noqa: E402
from waiting import wait_until  # noqa: E402

# Those that only this project's masters know.
OURS_ALONE = [name for name in FAULTS if name == "switchover" or name.startswith("companion-")]
LOST_NODE = "lost-node"
# Traffic before a fault, and after it, for what the restarted master does to clients.
WARM_UP_SECONDS, REST_SECONDS = 2.0, 3.0
# A client gives a call up after half a minute; the reference needs ten seconds to take over.
GIVE_UP_SECONDS = 120
# After so many that broke nothing more is tried.
DEPLOYMENTS = 4
FILL_BATCH = 500
LOOP_SEGMENT_BYTES = 512 * MIB
HELD_BYTES_PER_OBJECT = 2048


def say(text):
    print(f"== {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


class Deployment(BenchWorld):
    """Masters, etcd, a client that holds the objects and one that calls."""

    def __init__(self, folder, kind, etcd, objects, network=None):
        super().__init__(folder, etcd, clients=0, kind=kind, network=network)
        try:
            if objects:
                holder = self._start_loop("holder", max(64 * MIB, objects * HELD_BYTES_PER_OBJECT))
                began, there = time.monotonic(), 0
                for first in range(0, objects, 10 * FILL_BATCH):
                    count = min(10 * FILL_BATCH, objects - first)
                    there += holder.fill(f"held/{first}", count, FILL_BATCH)
                assert there == objects, f"only {there:,} of {objects:,} objects could be put"
                say(f"{kind}: {there:,} objects in {time.monotonic() - began:.1f} s")
            self.loop = self._start_loop("loop", LOOP_SEGMENT_BYTES)
        except BaseException:
            self.end()
            raise

    def _start_loop(self, name, segment_bytes):
        environment = CLIENT_ENVIRONMENT | {"MC_STORE_CLUSTER_ID": self.masters.cluster_id}

        def wrap(command):
            # python, the worker of the tests, a descriptor
            return self.host.wrap([command[0], str(BENCHES / "tight_loop.py"), *command[2:]])

        self.clients.append(Client(self.folder / f"{name}.log", environment, wrap))
        return self.clients[-1].connect(self, segment_bytes, hostname=self.host.address)


def lose_node(world, primary):
    """The primary's machine is gone: nothing answers at its address, and nothing refuses."""
    number = world.masters.all.index(primary)
    struck = time.monotonic()
    for bridge in ("clients", "etcd"):
        hosts._ip("-n", world.network.hub.namespace, "link", "set", f"{bridge}{number}", "down")
    for pid in world.companions.of(primary):
        end_process(pid)
    primary.kill()
    return struck


def find_node(world, primary):
    number = world.masters.all.index(primary)
    for bridge in ("clients", "etcd"):
        hosts._ip("-n", world.network.hub.namespace, "link", "set", f"{bridge}{number}", "up")


def strike(world, primary, fault):
    """Brings the fault about; returns the moment before it."""
    if fault == LOST_NODE:
        return lose_node(world, primary)
    if fault.startswith("companion-"):
        for pid in world.companions.of(primary):
            end_process(pid)
        fault = fault.removeprefix("companion-")
    return {
        "kill": kills.kill,
        "oom": kills.out_of_memory,
        "panic": kills.panic,
        "terminate": kills.terminate,
        "switchover": kills.switchover,
    }[fault](primary)


def one_round(world, fault, number, threads):
    """What the threads felt, and whether the primary had a companion."""
    world.settle()
    world.masters.wait_until_connected()
    primary = world.masters.wait_until_serving()
    world.note_companions()
    companion = bool(world.companions.of(primary))
    if fault.startswith("companion-") and not companion:
        raise kills.NoCompanion(f"{primary.name} has no companion")
    prefix = f"loop/{fault}/{number}"
    began = time.monotonic()
    world.loop.start_calling(prefix, threads)
    struck = None
    try:
        wait_until(lambda: world.loop.succeeded_since(began), "every thread's first success")
        time.sleep(WARM_UP_SECONDS)
        struck = strike(world, primary, fault)
        # A master starts another one a second after it has lost one.
        if fault.startswith("companion-"):
            assert not world.companions.of(primary), f"{primary.name} had another companion when it ended"
        # Calls that begin from here on can be answered by the next primary alone.
        over = time.monotonic()
        while not world.loop.succeeded_since(over) and time.monotonic() < over + GIVE_UP_SECONDS:
            time.sleep(0.05)
        if fault == LOST_NODE:
            find_node(world, primary)
        if not primary.running():
            primary.start()
        time.sleep(REST_SECONDS)
    finally:
        stopped = time.monotonic()
        calls = world.loop.stop_calling(began)
    world.note_companions()
    # Not counted, and what of it is refused for now stays.
    world.loop.remove_by_regex(f"^{prefix}/", True)
    return call_times.summary(calls, struck, stopped) | {"companion": companion}


@contextlib.contextmanager
def deployed(kind, options, lost_node):
    network = hosts.Network(3) if lost_node else None
    with tempfile.TemporaryDirectory(prefix="clients-") as folder:
        # From here on the deployment takes the network away, also when it cannot be started.
        world = Deployment(pathlib.Path(folder), kind, options.etcd, options.objects, network)
        try:
            yield world
        finally:
            world.end()


def measure(kind, faults, options, recording):
    """All rounds of some faults, the faults taking turns. A round that breaks is recorded as such, and what is left goes on
    with a new deployment."""
    rounds = options.rounds if kind == OURS else options.reference_rounds
    left = tables.missing(recording.run, kind, faults, rounds)
    for _ in range(DEPLOYMENTS if left else 0):
        try:
            with deployed(kind, options, faults == [LOST_NODE]) as world:
                while left:
                    number, fault = left.pop(0)
                    try:
                        result = one_round(world, fault, number, options.threads)
                    except (NoCgroup, kills.NoCompanion) as why:
                        say(f"{kind}: {fault} cannot be done: {why}")
                        recording.add(kind=kind, fault=fault, failure=str(why))
                        left = [each for each in left if each[1] != fault]
                        continue
                    except (AssertionError, OSError, ClientError) as why:
                        recording.add(kind=kind, fault=fault, round=number, failure=str(why))
                        raise
                    recording.add(kind=kind, fault=fault, round=number, **result)
                    say(f"{kind}: {fault}, round {number} of {rounds}: {tables.one_line(result)}")
            return
        except (AssertionError, OSError, ClientError) as why:
            say(f"{kind}: broke: {why}; {len(left)} rounds left")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20, help="rounds of each fault (20)")
    parser.add_argument("--reference-rounds", type=int, default=5, help="the same for the reference (5)")
    parser.add_argument("--threads", type=int, default=8, help="threads of the client (8)")
    parser.add_argument("--objects", type=int, default=100_000, help="objects that are there all the time (100,000)")
    parser.add_argument("--etcd", type=int, default=1, choices=[1, 3], help="members of etcd (1)")
    parser.add_argument("--only", action="append", choices=FAULTS, help="only this fault; several times for several")
    parser.add_argument("--master", choices=[OURS, REFERENCE], help="only this project's masters, or only the reference")
    parser.add_argument("--json", metavar="FILE", help="also add every round to this file, as it comes")
    more = "add to the last run in that file what it lacks; commit, build and the other options have to be the same"
    parser.add_argument("--continue", action="store_true", dest="resume", help=more)
    options = parser.parse_args()
    if options.resume and not options.json:
        parser.error("--continue needs --json")
    options.only = [each for each in FAULTS if not options.only or each in options.only]
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kept = ("rounds", "reference_rounds", "threads", "objects", "etcd")
    recording = Recording(options.json, "clients", **{name: getattr(options, name) for name in kept})
    if options.resume:
        recording.resume()
    for kind in [options.master] if options.master else [OURS, REFERENCE]:
        wanted = [each for each in options.only if kind == OURS or each not in OURS_ALONE]
        for faults in ([each for each in wanted if each != LOST_NODE], [each for each in wanted if each == LOST_NODE]):
            if faults:
                measure(kind, faults, options, recording)
    print("\n".join(tables.lines([recording.run])))


if __name__ == "__main__":
    main()
