#!/usr/bin/env python3
"""What replication costs and allows: puts, processor time, lag, eviction, lease renewals, promotion.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, ETCD_BIN. Three masters on one etcd (`--etcd 3`: on three), a
single master without replication beside them, and the reference with its OpLog where it can do the same; they take
turns, so that all meet the same machine. The result is a table in Markdown. Everything that was started is ended.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import processes  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from ports import free_port  # noqa: E402
from waiting import wait_until  # noqa: E402
from world import World  # noqa: E402

BINARY = os.environ["MOONKEEPER_BIN"]
# Name, scenario, connections, operations outstanding on each, the goal in items a second.
PUTS = [
    ("puts, 1 outstanding", "put", 1, 1, None),
    ("puts, 8 outstanding", "put", 8, 1, None),
    ("puts, 64 outstanding", "put", 8, 8, 15_000),
    ("puts in batches of 128, 4 outstanding", "batch-put", 4, 1, 100_000),
    ("puts in batches of 128, 16 outstanding", "batch-put", 4, 4, 100_000),
]
COSTS = [
    ("ExistKey, 8 × 8", "exist-key", 8, 8),
    ("ExistKey, 8 × 1", "exist-key", 8, 1),
    ("GetReplicaList, 8 × 8", "get-replica-list", 8, 8),
    ("BatchExistKey, 4 × 4", "batch-exist-key", 4, 4),
    ("BatchGetReplicaList, 4 × 4", "batch-get-replica-list", 4, 4),
    ("BatchPutStart + BatchPutEnd, 4 × 4", "batch-put", 4, 4),
]
ROWS = []


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def row(what, goal, measured, reference="", met=None):
    verdict = "" if met is None else "met" if met else "**not met**"
    ROWS.append(f"| {what} | {goal} | {measured} | {reference} | {verdict} |")
    say(f"{what}: {measured} {reference} {verdict}")


def bench(*arguments):
    done = subprocess.run([BINARY, "bench", *arguments], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise SystemExit(f"bench {' '.join(arguments)} failed: {done.stderr.strip()}")
    return json.loads(done.stdout)


def load_arguments(master, scenario, connections, outstanding, seconds, *more):
    target = ["--address", master.address, "--pid", str(master.process.pid)]
    shape = ["--connections", str(connections), "--outstanding", str(outstanding), "--seconds", str(seconds)]
    return ["load", "--scenario", scenario, *target, *shape, *more]


def load(master, *arguments):
    report = bench(*load_arguments(master, *arguments))
    if report["errors"]:
        raise SystemExit(f"{report['errors']} errors against {master.name}: {report}")
    return report


def metric(master, name):
    found = re.search(rf"^{name}(?:\{{.*\}})? (\S+)$", master.http("/metrics") or "", re.MULTILINE)
    return float(found[1]) if found else None


class Single:
    """A master without replication, with as much of `Master` as a load needs."""

    def __init__(self, folder):
        self.name = "single"
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        flags = [f"--rpc_port={port}", f"--metrics_port={free_port()}", "--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1"]
        self.process = processes.spawn([BINARY, "master", *flags], folder / "single.log", cwd=folder)
        time.sleep(1)


class Clusters:
    """The deployments of one run, started when they are needed first."""

    def __init__(self, folder, etcd):
        self.folder, self.etcd, self.worlds = folder, etcd, []

    def start(self, name, kind=OURS, **flags):
        path = self.folder / name
        path.mkdir()
        world = World(path, self.etcd, clients=0, kind=kind, **flags)
        self.worlds.append(world)
        world.masters.wait_until_redundant()
        return world

    def end(self, *worlds):
        for each in worlds or list(self.worlds):
            each.end()
            self.worlds.remove(each)


def commits(world, size):
    return bench("commits", "--etcd_endpoints", world.etcd.endpoints, "--bytes", str(size))["p50_us"]


def measure_puts(ours, reference, options):
    """Puts a second, beside the reference and beside what one commit after the other allows."""
    for name, scenario, connections, outstanding, goal in PUTS:
        rates = {OURS: [], REFERENCE: []}
        for number in range(options.rounds):
            for kind, world in ((OURS, ours), (REFERENCE, reference)) if number % 2 else ((REFERENCE, reference), (OURS, ours)):
                primary = world.masters.wait_until_serving()
                try:
                    report = load(primary, scenario, connections, outstanding, options.seconds)
                    rates[kind].append(report["items_per_second"])
                except SystemExit as why:
                    if kind == OURS:
                        raise
                    say(f"reference: {why}")
        rate = statistics.median(rates[OURS])
        theirs = f"reference {statistics.median(rates[REFERENCE]):,.0f}/s" if rates[REFERENCE] else "reference: fails"
        shown = f"{rate:,.0f}/s"
        if scenario == "put" and outstanding * connections == 1:
            # PutStart and PutEnd each wait for one commit.
            alone = commits(ours, 200)
            shown += f" ({rate * 2 * alone / 1e6:.2f} of what two commits of {alone:,.0f} µs allow)"
        row(name, f"≥ {goal:,}/s" if goal else "", shown, theirs, None if goal is None else rate >= goal)


def measure_costs(ours, single, options):
    """Processor time for each call with replication, as a ratio to a single master."""
    for name, scenario, connections, outstanding in COSTS:
        unit = "cpu_us_per_item" if scenario.startswith("batch") else "cpu_us_per_call"
        values = {"ha": [], "single": []}
        for number in range(options.rounds):
            arms = [("ha", ours.masters.wait_until_serving()), ("single", single)]
            for arm, master in arms if number % 2 else reversed(arms):
                values[arm].append(load(master, scenario, connections, outstanding, options.seconds)[unit])
        on, off = (statistics.median(values[arm]) for arm in ("ha", "single"))
        row(f"CPU with replication, {name}", "≤ 1.2 × without", f"{on / off:.2f} ({on:.3f} µs)", "", on / off <= 1.2)


def measure_lag(ours, options):
    """From a moment at which a record was durable to the moment at which a standby has applied it."""
    primary = ours.masters.wait_until_serving()
    standby = next(each for each in ours.masters.all if each is not primary)
    command = load_arguments(primary, "put", 8, 8, options.seconds * 4)
    busy = subprocess.Popen([BINARY, "bench", *command], stdout=subprocess.DEVNULL)
    lags = []
    try:
        time.sleep(1)
        while busy.poll() is None and len(lags) < 2000:
            durable, asked = metric(primary, "moonkeeper_durable_prefix"), time.monotonic()
            for _ in range(1000):
                if metric(standby, "moonkeeper_applied") >= durable:
                    lags.append(time.monotonic() - asked)
                    break
    finally:
        busy.kill()
        busy.wait()
    lags.sort()
    p50, p99 = (lags[int(len(lags) * share)] * 1000 for share in (0.5, 0.99))
    row("lag of a standby under 64 outstanding puts", "", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms ({len(lags)} looks, asking included)")


def fill(master, objects, segment_gib):
    """A load that has put so many objects and goes on to read them until it is killed."""
    command = load_arguments(master, "exist-key", 1, 1, 600, "--keys", str(objects), "--segment-gib", str(segment_gib))
    return subprocess.Popen([BINARY, "bench", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait_for_objects(master, objects, busy):
    def enough():
        assert busy.poll() is None, "the load ended"
        return (metric(master, "moonkeeper_objects") or 0) >= objects

    wait_until(enough, f"{objects:,} objects", 300)


def measure_promotion(clusters, objects):
    """Seconds from a won election to an open port, as the new primary itself says."""
    world = clusters.start(f"promotion-{objects}")
    primary = world.masters.wait_until_serving()
    busy = fill(primary, objects, 64)
    try:
        wait_for_objects(primary, objects, busy)
        world.masters.digests()
        primary.kill()
        new = world.masters.wait_until_serving()
        return metric(new, "moonkeeper_promotion_seconds")
    finally:
        busy.kill()
        busy.wait()
        clusters.end(world)


def dump(world, first, last):
    command = [BINARY, "oplog", "dump", "--etcd_endpoints", world.etcd.endpoints, "--cluster_id", world.masters.cluster_id]
    done = subprocess.run(
        [*command, "--from", str(first), "--to", str(last), "-o", "json"], capture_output=True, text=True, check=True, timeout=300
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def measure_eviction(clusters):
    """More than a million objects; the watermark is where the last of them are, and everything is to go. What is left
    are the objects that the load has read meanwhile: their leases hold."""
    world = clusters.start("eviction", eviction_high_watermark_ratio=0.839, eviction_ratio=1.0)
    primary = world.masters.wait_until_serving()
    busy = fill(primary, 1_100_032, 5)
    try:
        # It begins when the last of them come: the clock runs from the last look that saw none gone.
        most, end = 0, time.monotonic() + 300
        while True:
            assert busy.poll() is None and time.monotonic() < end, f"of {most:,.0f} objects few were evicted"
            looked, applied, objects = time.monotonic(), metric(primary, "moonkeeper_applied"), metric(primary, "moonkeeper_objects")
            if objects >= most:
                most, began, before = objects, looked, applied
            elif most - objects >= 1_000_000:
                break
        took, after = time.monotonic() - began, metric(primary, "moonkeeper_applied")
    finally:
        busy.kill()
        busy.wait()
    digests = set(world.masters.digests().values())
    records = [each for each in dump(world, int(before), int(after)) if each["op_type"] == "Evict"]
    clusters.end(world)
    return took, records, digests


def log_bytes(world, prefix):
    """(revision, bytes) of all batches."""
    end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
    encode = lambda text: base64.b64encode(text.encode()).decode()  # noqa: E731
    total, key = 0, prefix
    while True:
        answer = world.etcd.members[0].call("kv/range", {"key": encode(key), "range_end": encode(end), "limit": 500})
        values = answer.get("kvs", [])
        total += sum(len(base64.b64decode(each["value"])) + len(base64.b64decode(each["key"])) for each in values)
        if not answer.get("more"):
            return total
        key = base64.b64decode(values[-1]["key"]).decode() + "\0"


def measure_renewals(clusters):
    """Reads that renew leases, for ten seconds; what they add to the log."""
    world = clusters.start("renewals")
    primary = world.masters.wait_until_serving()
    prefix = f"mooncake-store/oplog/{world.masters.cluster_id}/batches/"
    command = load_arguments(primary, "get-replica-list", 4, 4, 16, "--keys", "200000", "--warm-up", "4")
    single = subprocess.Popen([BINARY, "bench", *command], stdout=subprocess.PIPE)
    try:
        wait_for_objects(primary, 200_000, single)
        more = load_arguments(primary, "batch-exist-key", 4, 2, 10, "--keys", "200000", "--warm-up", "1")
        batches = subprocess.Popen([BINARY, "bench", *more], stdout=subprocess.PIPE)
        time.sleep(3)
        began, before = time.monotonic(), log_bytes(world, prefix)
        names = ("GetReplicaList", "BatchExistKey")
        counts = [rpc_count(primary, name) for name in names]
        time.sleep(6)
        took, after = time.monotonic() - began, log_bytes(world, prefix)
        counts = [(rpc_count(primary, name) - count) / took for name, count in zip(names, counts, strict=True)]
        return counts[0], counts[1] * 128, (after - before) / took
    finally:
        for each in (single, batches):
            each.kill()
            each.wait()
        clusters.end(world)


def rpc_count(master, name):
    found = re.search(rf'^moonkeeper_rpc_requests_total{{rpc="{name}"}} (\S+)$', master.http("/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each load (5)")
    parser.add_argument("--seconds", type=float, default=3, help="seconds of each (3)")
    parser.add_argument("--etcd", type=int, default=1, choices=[1, 3], help="members of etcd (1)")
    parser.add_argument("--only", choices=["puts", "costs", "lag", "promotion", "eviction", "renewals"], action="append")
    options = parser.parse_args()
    wanted = lambda part: not options.only or part in options.only  # noqa: E731

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        clusters = Clusters(folder, options.etcd)
        try:
            if wanted("puts") or wanted("lag") or wanted("costs"):
                ours = clusters.start("ours")
                for size in (100, 64 << 10, 256 << 10):
                    row(f"one commit of {size:,} bytes, alone", "", f"p50 {commits(ours, size):,.0f} µs")
                if wanted("puts"):
                    reference = clusters.start("reference", REFERENCE)
                    measure_puts(ours, reference, options)
                    clusters.end(reference)
                if wanted("costs"):
                    single = Single(folder)
                    measure_costs(ours, single, options)
                    processes.kill(single.process)
                # The last: its load is killed, and the memory of that client is taken away when its time is up.
                if wanted("lag"):
                    measure_lag(ours, options)
                clusters.end(ours)
            if wanted("promotion"):
                few, many = (measure_promotion(clusters, objects) * 1000 for objects in (1_024, 1_000_064))
                row("promotion with 1,000,000 objects", "< 50 ms", f"{many:.1f} ms (with 1,000: {few:.1f} ms)", "", many < 50)
            if wanted("eviction"):
                took, records, digests = measure_eviction(clusters)
                row("1,000,000 objects evicted", "< 8 s, ≤ 250 records", f"{took:.1f} s, {len(records)} records", "", took < 8 and len(records) <= 250)
                row("digests after it, on three replicas", "equal", f"{len(digests)} different", "", len(digests) == 1)
            if wanted("renewals"):
                renewals, items, rate = measure_renewals(clusters)
                row("log while leases are renewed", "< 1 MB/s", f"{rate / 1e6:.3f} MB/s at {renewals:,.0f} renewals and {items:,.0f} exist items a second", "", rate < 1e6)
        finally:
            clusters.end()
    print("| | goal | measured | | |\n|---|---|---|---|---|")
    print("\n".join(ROWS))


main()
