#!/usr/bin/env python3
"""This master beside the reference and beside the floor: speed, processor time for each call, memory.

Reads MOONKEEPER_BIN (this project's program, a release build) and MOONCAKE_MASTER (the reference). All three servers run
at the same time on the loopback, each is loaded in turn, the order changes with every round, and medians count: of
figures, and of the ratios within each round. The result is Markdown: one table for each kind of call, one for memory,
one with the goals. Everything that was started is ended.
"""

import argparse
import atexit
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "common"))

from ports import free_port  # noqa: E402

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
NAMES = {
    "exist-key": "ExistKey",
    "get-replica-list": "GetReplicaList",
    "put": "PutStart + PutEnd",
    "batch-exist-key": "BatchExistKey (128)",
    "batch-get-replica-list": "BatchGetReplicaList (128)",
    "batch-put": "BatchPutStart + BatchPutEnd (128)",
}
ARMS = ("reference", "ours", "floor")
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


def measure_loads(options, folder):
    """Reports by (load, arm)."""
    reports = {}
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
                    "--warm-up=0.3",
                )
                reports.setdefault((load, arm), []).append(report)
        for server in servers.values():
            server.stop()
    return reports


def measure_memory(options, folder):
    """Reports by (objects, arm)."""
    reports = {}
    for objects in options.objects:
        for arm in ("reference", "ours"):
            say(f"memory of {objects:,} objects, {arm}")
            server = Server(arm, folder)
            reports[objects, arm] = server.bench("memory", f"--objects={objects}", f"--settle={options.settle}")
            server.stop()
    return reports


def measure_eviction(options):
    """The report with the median ratio."""
    reports = []
    for number in range(options.rounds):
        say(f"eviction, round {number + 1} of {options.rounds}")
        done = subprocess.run([OURS, "bench", "eviction"], capture_output=True, text=True, timeout=180, check=False)
        if done.returncode != 0:
            raise SystemExit(f"bench eviction failed: {done.stderr.strip()}")
        reports.append(json.loads(done.stdout))
    return sorted(reports, key=lambda report: report["ratio"])[len(reports) // 2]


def median(reports, field):
    return statistics.median(report[field] for report in reports)


def ratio(reports, load, field, arm, base):
    """The median of what each round says: what disturbs a machine lasts longer than a turn, so it is in both."""
    pairs = zip(reports[load, arm], reports[load, base], strict=True)
    return statistics.median(one[field] / other[field] for one, other in pairs)


def table(head, rows):
    print("| " + " | ".join(head) + " |")
    print("|" + "---|" * len(head))
    for row in rows:
        print("| " + " | ".join(row) + " |")
    print()


def print_loads(loads, reports):
    for scenario in dict.fromkeys(load[0] for load in loads):
        unit = "item" if scenario.startswith("batch") else "call"
        print(f"### {NAMES[scenario]}\n")
        rows = []
        for load in (load for load in loads if load[0] == scenario):
            values = {
                arm: {
                    field: median(reports[load, arm], field)
                    for field in (f"{unit}s_per_second", "p50_us", "p99_us", f"cpu_us_per_{unit}")
                }
                for arm in ARMS
            }
            for arm in ARMS:
                numbers = values[arm]
                cpu = f"cpu_us_per_{unit}"
                rows.append(
                    [
                        f"{load[1]} × {load[2]}",
                        arm,
                        f"{numbers[f'{unit}s_per_second']:,.0f}",
                        f"{numbers['p50_us']:,.0f}",
                        f"{numbers['p99_us']:,.0f}",
                        f"{numbers[cpu]:.3f}",
                        f"{ratio(reports, load, cpu, arm, 'reference'):.3f}",
                        f"{ratio(reports, load, cpu, arm, 'floor'):.2f}",
                    ]
                )
        head = ["connections × outstanding", "server", f"{unit}s/s", "p50 µs", "p99 µs"]
        table([*head, f"CPU µs/{unit}", "of reference", "of floor"], rows)


def print_memory(reports):
    rows = []
    for (objects, arm), report in reports.items():
        mib = [f"{report[field] / 2**20:,.0f}" for field in ("resident_before", "resident_full", "resident_after")]
        shares = [f"{report['bytes_per_object']:,.0f}", f"{report['given_back_share']:.0%}"]
        rows.append([f"{objects:,}", arm, *mib, *shares])
    print("### Memory (64-byte keys, one replica)\n")
    table(["objects", "server", "before MiB", "with them", "after removal", "bytes/object", "given back"], rows)


def goals(loads, reports, memory, eviction):
    """Every goal as (what, wanted, measured, met)."""

    def at_most(what, share, measured, of, floor=0.0):
        # What not even the floor reaches is not ours to reach.
        shown = f"{measured:.3f}" + (f" (the floor alone is {floor:.3f})" if floor > share else "")
        return (what, f"≤ {share} × {of}", shown, measured <= share)

    for load in loads:
        scenario, connections, outstanding = load
        name = f"{NAMES[scenario]}, {connections} × {outstanding}"
        unit = "item" if scenario.startswith("batch") else "call"
        cpu = f"cpu_us_per_{unit}"
        of_reference = ratio(reports, load, cpu, "ours", "reference")
        floor = ratio(reports, load, cpu, "floor", "reference")
        if scenario.startswith("batch"):
            yield at_most(f"{name}: CPU/item", 0.25, of_reference, "reference", floor)
            speed = ratio(reports, load, "items_per_second", "ours", "reference")
            yield (f"{name}: items/s", "≥ 2 × reference", f"{speed:.2f}", speed >= 2)
        elif scenario == "put":
            yield at_most(f"{name}: CPU/call", 0.333, of_reference, "reference", floor)
        elif outstanding > 1:
            yield at_most(f"{name}: CPU/call", 0.2, of_reference, "reference", floor)
        else:
            yield at_most(f"{name}: CPU/call", 1.3, ratio(reports, load, cpu, "ours", "floor"), "floor")
    for (objects, arm), report in memory.items():
        if arm == "ours":
            measured = report["bytes_per_object"]
            yield (f"{objects:,} objects: bytes/object", "≤ 200", f"{measured:.0f}", measured <= 200)
    if eviction:
        what = f"evict 1,000 of {eviction['many_objects']:,}: time"
        yield at_most(what, 1.5, eviction["ratio"], f"1,000 of {eviction['few_objects']:,}")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of short runs: numbers to look at, not to quote")
    parser.add_argument("--rounds", type=int, help="rounds (5)")
    parser.add_argument("--seconds", type=float, help="seconds of one measurement (1.2)")
    parser.add_argument("--only", action="append", choices=sorted(NAMES), help="only this kind of call")
    parser.add_argument("--no-memory", action="store_true", help="leave memory and eviction out")
    parser.add_argument("--check", action="store_true", help="fail if a goal is not met")
    parser.add_argument("--json", metavar="FILE", help="also write every report there")
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
    with tempfile.TemporaryDirectory() as folder:
        loads = measure_loads(options, folder)
        memory = {} if options.no_memory else measure_memory(options, folder)
        eviction = None if options.no_memory else measure_eviction(options)
    rounds = min(len(reports) for reports in loads.values())
    print(f"## Benchmark: medians of {rounds} rounds of {options.seconds} s, {os.cpu_count()} processors\n")
    print_loads(options.loads, loads)
    if memory:
        print_memory(memory)
        print("### Eviction\n")
        few, many = ((eviction[f"{size}_objects"], eviction[f"{size}_us"]) for size in ("few", "many"))
        table(["victims", "of objects", "µs"], [["1,000", f"{count:,}", f"{micros:,.0f}"] for count, micros in (few, many)])
    results = list(goals(options.loads, loads, memory, eviction))
    print("### Goals\n")
    table(["what", "wanted", "measured", ""], [[*row[:3], "met" if row[3] else "**not met**"] for row in results])
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            by_load = [{"load": load, "arm": arm, "reports": all_} for (load, arm), all_ in loads.items()]
            by_size = [{"objects": objects, "arm": arm, "report": one} for (objects, arm), one in memory.items()]
            json.dump({"loads": by_load, "memory": by_size, "eviction": eviction}, file, indent=1)
    if options.check and not all(row[3] for row in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
