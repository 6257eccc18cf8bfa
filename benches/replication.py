#!/usr/bin/env python3
"""What replication costs and allows: puts, processor time, lag, eviction, lease renewals, promotion.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, ETCD_BIN. Three masters on one etcd (`--etcd 3`: on three), a
single master without replication beside them, and the reference with its OpLog where it can do the same; they take
turns, so that all meet the same machine. The result is a table in Markdown. With `--json` every result is written as it
comes. Everything that was started is ended.
"""

import argparse
import base64
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "suites"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import processes  # noqa: E402
from bench_world import BenchWorld  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from ports import free_port  # noqa: E402
from recording import Recording  # noqa: E402
from tables import replication as tables  # noqa: E402
from tables.replication import COSTS, PUTS  # noqa: E402
from waiting import wait_until  # noqa: E402

# Objects that calls read whose processor time is measured, with replication and without.
READ_KEYS = 20_000
# Objects whose leases are renewed: what this adds to the log follows their number, not that of renewals.
RENEWED_KEYS = 200_000


def say(text):
    print(f"== {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def program():
    return os.environ["MOONKEEPER_BIN"]


def bench(*arguments):
    done = subprocess.run([program(), "bench", *arguments], capture_output=True, text=True, timeout=300, check=False)
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
        self.process = processes.spawn([program(), "master", *flags], folder / "single.log", cwd=folder)
        time.sleep(1)


class Clusters:
    """The deployments of one run, started when they are needed first."""

    def __init__(self, folder, etcd):
        self.folder, self.etcd, self.worlds = folder, etcd, []

    def start(self, name, kind=OURS, **flags):
        path = self.folder / name
        path.mkdir()
        world = BenchWorld(path, self.etcd, clients=0, kind=kind, **flags)
        self.worlds.append(world)
        world.masters.wait_until_redundant()
        return world

    def end(self, *worlds):
        for each in worlds or list(self.worlds):
            each.end()
            self.worlds.remove(each)


def commits(world, size):
    return bench("commits", "--etcd_endpoints", world.etcd.endpoints, "--bytes", str(size))["p50_us"]


def measure_puts(ours, reference, options, recording):
    """Puts a second, beside the reference and beside what one commit after the other allows."""
    recording.add(part="put-commit", bytes=200, p50_us=commits(ours, 200))
    for name, scenario, connections, outstanding, _ in PUTS:
        for number in range(options.rounds):
            for kind, world in ((OURS, ours), (REFERENCE, reference)) if number % 2 else ((REFERENCE, reference), (OURS, ours)):
                primary = world.masters.wait_until_serving()
                result = {"part": "puts", "name": name, "kind": kind, "round": number + 1}
                try:
                    report = bench(*load_arguments(primary, scenario, connections, outstanding, options.seconds))
                except SystemExit as why:
                    if kind == OURS:
                        raise
                    say(f"reference: {why}")
                    recording.add(**result, failure=str(why).rpartition(": ")[2])
                    continue
                if kind == OURS and report["errors"]:
                    raise SystemExit(f"{report['errors']} errors against {primary.name}: {report}")
                recording.add(**result, report=report)
                say(f"{name}, {kind}: {report['items_per_second']:,.0f}/s, {report['errors']:,} errors")


def measure_costs(ours, single, options, recording):
    """Processor time for each call with replication, as a ratio to a single master."""
    for name, scenario, connections, outstanding, _ in COSTS:
        unit = "cpu_us_per_item" if scenario.startswith("batch") else "cpu_us_per_call"
        for number in range(options.rounds):
            arms = [("ha", ours.masters.wait_until_serving()), ("single", single)]
            for arm, master in arms if number % 2 else reversed(arms):
                used = load(master, scenario, connections, outstanding, options.seconds, "--keys", str(READ_KEYS))[unit]
                recording.add(part="costs", name=name, arm=arm, round=number + 1, cpu_us=used)
                say(f"CPU, {name}, {arm}: {used:.3f} µs")


def measure_lag(ours, options, recording):
    """From a moment at which a record was durable to the moment at which a standby has applied it."""
    primary = ours.masters.wait_until_serving()
    standby = next(each for each in ours.masters.all if each is not primary)
    command = load_arguments(primary, "put", 8, 8, options.seconds * 4)
    busy = subprocess.Popen([program(), "bench", *command], stdout=subprocess.DEVNULL)
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
    recording.add(part="lag", p50_ms=p50, p99_ms=p99, looks=len(lags))
    say(f"lag of a standby: p50 {p50:.1f} ms, p99 {p99:.1f} ms")


def fill(master, objects, segment_gib):
    """A load that has put so many objects and goes on to read them until it is killed."""
    command = load_arguments(master, "exist-key", 1, 1, 600, "--keys", str(objects), "--segment-gib", str(segment_gib))
    return subprocess.Popen([program(), "bench", *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


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
    command = [program(), "oplog", "dump", "--etcd_endpoints", world.etcd.endpoints, "--cluster_id", world.masters.cluster_id]
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


def measure_renewals(clusters, seconds):
    """What reads that renew leases add to the log: (renewals, items asked for, bytes of the log), each a second."""
    world = clusters.start("renewals")
    primary = world.masters.wait_until_serving()
    prefix = f"mooncake-store/oplog/{world.masters.cluster_id}/batches/"
    command = load_arguments(primary, "get-replica-list", 4, 4, seconds + 20, "--keys", str(RENEWED_KEYS), "--warm-up", "4")
    loads = [subprocess.Popen([program(), "bench", *command], stdout=subprocess.DEVNULL)]
    try:
        wait_for_objects(primary, RENEWED_KEYS, loads[0])
        more = load_arguments(primary, "batch-exist-key", 4, 2, seconds + 10, "--keys", str(RENEWED_KEYS), "--warm-up", "1")
        loads.append(subprocess.Popen([program(), "bench", *more], stdout=subprocess.DEVNULL))
        time.sleep(3)
        began, before = time.monotonic(), log_bytes(world, prefix)
        names = ("GetReplicaList", "BatchExistKey")
        counts = [rpc_count(primary, name) for name in names]
        time.sleep(seconds)
        took, after = time.monotonic() - began, log_bytes(world, prefix)
        counts = [(rpc_count(primary, name) - count) / took for name, count in zip(names, counts, strict=True)]
        assert all(each.poll() is None for each in loads), "a load ended before it was measured"
        return counts[0], counts[1] * 128, (after - before) / took
    finally:
        for each in loads:
            each.kill()
            each.wait()
        clusters.end(world)


def rpc_count(master, name):
    found = re.search(rf'^moonkeeper_rpc_requests_total{{rpc="{name}"}} (\S+)$', master.http("/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def measure(clusters, wanted, options, recording):
    if wanted("puts") or wanted("lag") or wanted("costs"):
        ours = clusters.start("ours")
        for size in (100, 64 << 10, 256 << 10):
            recording.add(part="commits", bytes=size, p50_us=commits(ours, size))
        if wanted("puts"):
            reference = clusters.start("reference", REFERENCE)
            measure_puts(ours, reference, options, recording)
            clusters.end(reference)
        if wanted("costs"):
            single = Single(clusters.folder)
            measure_costs(ours, single, options, recording)
            processes.kill(single.process)
        # The last: its load is killed, and the memory of that client is taken away when its time is up.
        if wanted("lag"):
            measure_lag(ours, options, recording)
        clusters.end(ours)
    if wanted("promotion"):
        for objects in (1_024, 1_000_064):
            recording.add(part="promotion", objects=objects, seconds=measure_promotion(clusters, objects))
    if wanted("eviction"):
        took, records, digests = measure_eviction(clusters)
        recording.add(part="eviction", seconds=took, records=len(records), digests=len(digests))
    if wanted("renewals"):
        renewals, items, rate = measure_renewals(clusters, options.renewal_seconds)
        figures = {"renewals_per_second": renewals, "exist_items_per_second": items, "log_bytes_per_second": rate}
        recording.add(part="renewals", keys=RENEWED_KEYS, seconds=options.renewal_seconds, **figures)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each load (5)")
    parser.add_argument("--seconds", type=float, default=3, help="seconds of each (3)")
    parser.add_argument("--renewal-seconds", type=float, default=60, help="seconds in which leases are renewed (60)")
    parser.add_argument("--etcd", type=int, default=1, choices=[1, 3], help="members of etcd (1)")
    parser.add_argument("--only", choices=["puts", "costs", "lag", "promotion", "eviction", "renewals"], action="append")
    parser.add_argument("--json", metavar="FILE", help="also add every result to this file, as it comes")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kept = {name: getattr(options, name) for name in ("rounds", "seconds", "etcd")} | {"keys": READ_KEYS}
    recording = Recording(options.json, "replication", **kept)
    with tempfile.TemporaryDirectory() as name:
        clusters = Clusters(pathlib.Path(name), options.etcd)
        try:
            measure(clusters, lambda part: not options.only or part in options.only, options, recording)
        finally:
            clusters.end()
    print("\n".join(tables.lines([recording.run])))


if __name__ == "__main__":
    main()
