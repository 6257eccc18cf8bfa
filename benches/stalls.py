#!/usr/bin/env python3
"""How long other clients wait while one asks for something large, and how long no master answers in a switchover.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, ETCD_BIN. One master without replication and three masters with
it, this project's and the reference one after the other, so that one has the memory of the machine. `moonkeeper bench
stalls` puts the objects, disturbs and probes; its own head says how. The result is a table in Markdown: for every step
and every probe the longest wait of all rounds, beside the longest wait of the same probe against the same master left
alone in the same run. Everything that was started is ended.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import processes  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from ports import free_port  # noqa: E402
from world import World  # noqa: E402

BINARY = os.environ["MOONKEEPER_BIN"]
ETCD_QUOTA_BYTES = 8 << 30
UNTOUCHED = "untouched"
STEPS = {
    "metrics": "scrape of /metrics",
    "all-keys": "/get_all_keys",
    "remove-by-regex": "RemoveByRegex, all keys",
    "unmount": "unmount of a tenth",
    "expiry": "expiry of half of the clients",
    "remove-all": "RemoveAll",
}
SWITCHOVER = "switchover"
PROBES = {"exist_key": "ExistKey", "ping": "Ping", "put_start": "PutStart"}
# Above the wait of the same probe against an untouched master.
GOAL_MS, SILENCE_GOAL_MS = 20, 100
# Readers of all objects during a switchover: connections with one batch outstanding each.
READERS = 4
# Bounds a hang; the reference takes minutes for some steps with ten million objects.
ROUND_SECONDS = 3600


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


class Single:
    """A master without replication."""

    def __init__(self, kind, folder):
        program = [BINARY, "master"] if kind == OURS else [os.environ["MOONCAKE_MASTER"]]
        self.rpc_port, self.http_port = free_port(), free_port()
        self.address, self.http_address = (f"127.0.0.1:{port}" for port in (self.rpc_port, self.http_port))
        flags = {"rpc_address": "127.0.0.1", "rpc_port": self.rpc_port, "metrics_host": "127.0.0.1"}
        flags |= {"metrics_port": self.http_port, "client_ttl": 10}
        command = [*program, *(f"--{name}={value}" for name, value in flags.items())]
        self.process = processes.spawn(command, folder / f"{kind}.log", cwd=folder)
        time.sleep(2)

    def close(self):
        processes.kill(self.process)


class Cluster:
    """Three masters on one etcd, with as much of `Single` as the steps need."""

    def __init__(self, kind, folder):
        flags = ["--quota-backend-bytes", str(ETCD_QUOTA_BYTES)]
        self.world = World(folder, masters=3, clients=0, kind=kind, etcd_flags=flags, client_ttl=10)
        self.world.masters.wait_until_redundant()

    @property
    def address(self):
        return self.world.masters.wait_until_serving().address

    @property
    def http_address(self):
        primary = self.world.masters.wait_until_serving()
        return f"{primary.host.address}:{primary.metrics_port}"

    def close(self):
        self.world.end()


def measure_steps(server, options):
    """The reports of all steps, and why there are no more of them, if there are not."""
    command = [BINARY, "bench", "stalls", "--address", server.address, "--http", server.http_address]
    command += ["--objects", str(options.objects), "--clients", str(options.clients), "--rounds", str(options.rounds)]
    command += ["--untouched-seconds", str(options.untouched_seconds)]
    for step in [UNTOUCHED, *(each for each in options.only if each in STEPS)]:
        command += ["--only", step]
    reports = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        try:
            for line in bench.stdout:
                reports.append(json.loads(line))
                report = reports[-1]
                waits = ", ".join(f"{name} {waits['longest_us'] / 1000:,.1f} ms" for name, waits in report["waits"].items())
                say(f"round {report['round']}: {report['step']} took {report['seconds']:.1f} s: longest {waits}")
                if report["refused"]:
                    say(f"{report['refused']:,} objects could not be put before that")
            bench.wait(ROUND_SECONDS)
            return reports, bench.stderr.read().strip() if bench.returncode else None
        finally:
            bench.kill()


@contextlib.contextmanager
def started(command, **streams):
    with subprocess.Popen([BINARY, "bench", *map(str, command)], text=True, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def measure_switchovers(cluster, options):
    """Milliseconds in which no master answered, for each switchover while all objects are read."""
    world, silences = cluster.world, []
    size = ["--objects", options.objects, "--clients", options.clients]
    with started(["fill", "--address", cluster.address, *size], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as fill:
        say(f"filled: {fill.stdout.readline().strip()}")
        # From the first switchover on the clients are inherited ones, which have three minutes in every term.
        for number in range(options.rounds):
            world.masters.wait_until_redundant()
            primary = world.masters.wait_until_serving()
            load = ["load", "--filled", "--scenario", "batch-get-replica-list", "--address", primary.address]
            load += ["--connections", READERS, "--outstanding", 1, "--keys", options.objects, "--seconds", 600]
            watch = ["silence"] + [word for each in world.masters.all for word in ("--address", each.address)]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            with started(load, **quiet), started(watch, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
                time.sleep(options.read_seconds)
                status, body = primary.try_switchover()
                time.sleep(2)
                report = json.loads(probe.communicate("", timeout=60)[0])
            silences.append(report["longest_silence_us"] / 1000)
            if status != 200:
                say(f"round {number + 1}: switchover answered {status}: {body}")
                silences[-1] = max(silences[-1], float("inf"))
                break
            say(f"round {number + 1}: switchover with {silences[-1]:,.1f} ms of silence")
            world.wait_for_another(primary)
    return silences


def longest(reports, step, probe):
    """Milliseconds; None without a report."""
    return max((each["waits"][probe]["longest_us"] / 1000 for each in reports if each["step"] == step), default=None)


def rows(kind, shape, reports, failure, options):
    for step in (each for each in options.only if each in STEPS):
        done = [each for each in reports if each["step"] == step]
        for probe, name in PROBES.items():
            wait, noise = longest(reports, step, probe), longest(reports, UNTOUCHED, probe)
            cells = [STEPS[step], name, shape, kind]
            if wait is None:
                yield [*cells, "", "", "", "", f"could not be done: {failure}" if failure else "could not be done"]
                break
            verdict = "met" if wait - noise <= GOAL_MS else "**not met**"
            took, rounds = max(each["seconds"] for each in done), f"rounds: {len(done)}"
            numbers = [f"{took:,.1f} s", f"{wait:,.1f} ms", f"{noise:,.1f} ms", f"{wait - noise:+,.1f} ms"]
            yield [*cells, *numbers, f"{verdict}, {rounds}" if kind == OURS else rounds]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000_000, help="objects (10,000,000)")
    parser.add_argument("--clients", type=int, default=100, help="clients (100)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the maximum of all counts (5)")
    parser.add_argument("--only", action="append", choices=[*STEPS, SWITCHOVER], help="only this step; several times")
    parser.add_argument("--master", choices=[OURS, REFERENCE], help="only this master")
    parser.add_argument("--masters", type=int, choices=[1, 3], help="only one master, or only three")
    parser.add_argument("--untouched-seconds", type=float, default=15, help="length of the look at the noise (15)")
    parser.add_argument("--read-seconds", type=float, default=10, help="reads before each switchover (10)")
    parser.add_argument("--json", metavar="FILE", help="also write every report there")
    options = parser.parse_args()
    options.only = options.only or [*STEPS, SWITCHOVER]
    return options


def main():
    options = arguments()
    lines, everything, silences = [], [], []
    for shape, start in ((1, Single), (3, Cluster)):
        for kind in (OURS, REFERENCE):
            if options.master not in (None, kind) or options.masters not in (None, shape):
                continue
            name = "one master" if shape == 1 else "three masters"
            with tempfile.TemporaryDirectory() as folder:
                if set(options.only) & set(STEPS):
                    say(f"{kind}, {name}, {options.objects:,} objects")
                    (steps := pathlib.Path(folder) / "steps").mkdir()
                    with contextlib.closing(start(kind, steps)) as server:
                        reports, failure = measure_steps(server, options)
                    if failure:
                        say(f"{kind}, {name}: {failure}")
                    lines += rows(kind, name, reports, failure, options)
                    everything.append({"master": kind, "masters": shape, "reports": reports, "failure": failure})
                if kind == OURS and shape == 3 and SWITCHOVER in options.only:
                    (switchovers := pathlib.Path(folder) / "switchovers").mkdir()
                    with contextlib.closing(start(kind, switchovers)) as server:
                        silences = measure_switchovers(server, options)
                    everything.append({"master": kind, "masters": shape, "silences_ms": silences})
    print(f"{options.objects:,} objects, {options.clients} clients, {os.cpu_count()} processors\n")
    if lines:
        print("| while | probe | | master | took at most | longest wait | untouched | more | |")
        print("|---|---|---|---|---:|---:|---:|---:|---|")
        print("\n".join("| " + " | ".join(line) + " |" for line in lines))
    if silences:
        verdict = "met" if max(silences) <= SILENCE_GOAL_MS else "**not met**"
        each = ", ".join(f"{silence:,.1f}" for silence in silences)
        print(f"\nSilence of a switchover while all objects are read: {each} ms; goal {SILENCE_GOAL_MS} ms: {verdict}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
