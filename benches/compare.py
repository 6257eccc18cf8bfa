#!/usr/bin/env python3
"""This master beside the reference and beside the floor: speed, processor time for each call, memory.

Reads MOONKEEPER_BIN (this project's program, a release build) and MOONCAKE_MASTER (the reference). All three servers run
at the same time on the loopback, each is loaded in turn, the order changes with every round, and medians count: of
figures, and of the ratios within each round. The result is Markdown: a table with the goals, one with all calls, one for
memory, one for eviction. With `--json` every report is written as it comes. Everything that was started is ended.
"""

import argparse
import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "suites", "common"))

from ports import free_port  # noqa: E402
from recording import Recording  # noqa: E402
from tables import compare as tables  # noqa: E402
from tables.compare import ARMS, NAMES  # noqa: E402

OURS = os.environ.get("MOONKEEPER_BIN", "")
REFERENCE = os.environ.get("MOONCAKE_MASTER", "")

# Scenario, connections, operations outstanding on each.
LOADS = [
    ("exist-key", 8, 8),
    ("exist-key", 8, 1),
    ("exist-key", 64, 1),
    ("get-replica-list", 8, 8),
    ("get-replica-list", 8, 1),
    ("get-replica-list", 64, 1),
    ("put", 8, 8),
    ("put", 8, 1),
    ("batch-exist-key", 4, 1),
    ("batch-exist-key", 4, 4),
    ("batch-get-replica-list", 4, 1),
    ("batch-get-replica-list", 4, 4),
    ("batch-put", 4, 1),
    ("batch-put", 4, 4),
]
# A run that takes longer than this starts no further round.
BUDGET_SECONDS = 9 * 60
STARTED = []


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


class Server:
    """One of the three servers, as long as it is needed."""

    def __init__(self, arm, folder):
        self.arm = arm
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        flags = [f"--rpc_port={port}", f"--metrics_port={free_port()}", "--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1"]
        command = {
            "reference": [REFERENCE, *flags],
            "ours": [OURS, "master", *flags],
            "floor": [OURS, "bench", "floor", "--address", self.address],
        }[arm]
        self.log = os.path.join(folder, f"{arm}.log")
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
        STARTED.append(self.process)
        self.wait_until_it_serves(port)

    def wait_until_it_serves(self, port):
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return
            except OSError:
                time.sleep(0.05)
        raise SystemExit(f"the {self.arm} server did not come up on port {port}{self.state()}")

    def state(self):
        """Whether it runs, and the last that it said."""
        ended = self.process.poll()
        with open(self.log, errors="replace") as log:
            last = "".join(log.readlines()[-10:])
        return f"; it {'runs' if ended is None else f'ended with {ended}'}; the end of its log:\n{last}"

    def bench(self, *arguments):
        command = [OURS, "bench", *arguments, "--address", self.address, "--pid", str(self.process.pid)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            raise SystemExit(f"{' '.join(command)} failed: {done.stderr.strip()}{self.state()}")
        report = json.loads(done.stdout)
        if report["errors"]:
            raise SystemExit(f"{report['errors']} errors against the {self.arm} server: {report}")
        return report

    def stop(self):
        self.process.kill()
        self.process.wait()


def stop_everything(*_):
    for process in STARTED:
        if process.poll() is None:
            process.kill()
            process.wait()


def measure_loads(options, folder, recording):
    """All rounds of all loads."""
    start = time.monotonic()
    for number in range(options.rounds):
        if number and (time.monotonic() - start) * (number + 1) / number > BUDGET_SECONDS:
            say(f"stopping after {number} rounds: time is up")
            break
        say(f"round {number + 1} of {options.rounds}")
        servers = {arm: Server(arm, folder) for arm in ARMS}
        for load in options.loads:
            scenario, connections, outstanding = load
            for turn in range(len(ARMS)):
                arm = ARMS[(turn + number) % len(ARMS)]
                report = servers[arm].bench(
                    "load",
                    f"--scenario={scenario}",
                    f"--connections={connections}",
                    f"--outstanding={outstanding}",
                    f"--seconds={options.seconds}",
                    f"--keys={options.keys}",
                    "--warm-up=0.3",
                )
                recording.add(load=load, arm=arm, round=number + 1, report=report)
        for server in servers.values():
            server.stop()


def measure_memory(options, folder, recording):
    """What objects take, of this master and of the reference."""
    for objects in options.objects:
        for arm in ("reference", "ours"):
            say(f"memory of {objects:,} objects, {arm}")
            server = Server(arm, folder)
            report = server.bench("memory", f"--objects={objects}", f"--settle={options.settle}")
            recording.add(objects=objects, arm=arm, memory=report)
            server.stop()


def measure_eviction(options, recording):
    for number in range(options.rounds):
        say(f"eviction, round {number + 1} of {options.rounds}")
        done = subprocess.run([OURS, "bench", "eviction"], capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench eviction failed: {done.stderr.strip()}")
        recording.add(round=number + 1, eviction=json.loads(done.stdout))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of short runs: numbers to look at, not to quote")
    parser.add_argument("--rounds", type=int, help="rounds (5)")
    parser.add_argument("--seconds", type=float, help="seconds of one measurement (1.2)")
    parser.add_argument("--only", action="append", choices=sorted(NAMES), help="only this kind of call")
    parser.add_argument("--keys", type=int, default=20_000, help="objects that there are to read (20,000)")
    parser.add_argument("--no-memory", action="store_true", help="leave memory and eviction out")
    parser.add_argument("--check", action="store_true", help="fail if a goal is not met")
    parser.add_argument("--json", metavar="FILE", help="also add every report to this file, as it comes")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.seconds = options.seconds or (0.5 if options.quick else 1.2)
    options.settle = 5 if options.quick else 15
    options.objects = [200_000] if options.quick else [200_000, 1_000_000]
    options.loads = [load for load in LOADS if not options.only or load[0] in options.only]
    for name, program in (("MOONKEEPER_BIN", OURS), ("MOONCAKE_MASTER", REFERENCE)):
        if not os.access(program, os.X_OK):
            parser.error(f"{name} names no program: {program or 'it is not set'}")
    return options


def main():
    options = arguments()
    atexit.register(stop_everything)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: sys.exit(1))
    kept = {name: getattr(options, name) for name in ("rounds", "seconds", "keys", "settle", "objects")}
    recording = Recording(options.json, "compare", **kept)
    with tempfile.TemporaryDirectory() as folder:
        measure_loads(options, folder, recording)
        if not options.no_memory:
            measure_memory(options, folder, recording)
            measure_eviction(options, recording)
    print("\n".join(tables.lines([recording.run])))
    if options.check and not all(row[3] for row in tables.goals(recording.run)):
        sys.exit(1)


if __name__ == "__main__":
    main()
