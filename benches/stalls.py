#!/usr/bin/env python3
"""How long other clients wait while one asks for something large, and how long no master answers in a switchover.

Reads MOONKEEPER_BIN (a release build), MOONCAKE_MASTER, ETCD_BIN. One master without replication and three masters with
it, this project's and the reference one after the other, so that one has the memory of the machine. `moonkeeper bench
stalls` puts the objects, disturbs and probes; its own head says how. The result is a table in Markdown: for every step
and every probe the longest wait of all rounds, beside the longest wait of the same probe against the same master left
alone in the same run. Everything that was started is ended.

Every round has a deployment of its own: no round meets what an earlier one left, and the log, which is never shortened,
is that of one round. A step that could not be done is left out of later rounds, and the steps after it go on with a new deployment (the
reference tries it once more there, alone); a phase whose objects could not be put ends. With `--json` every report is written as it comes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parent.parent / "tests" / "suites"
sys.path[:0] = [str(TESTS / "failover"), str(TESTS / "common")]

import processes  # noqa: E402
from bench_world import BenchWorld  # noqa: E402
from cluster import OURS, REFERENCE  # noqa: E402
from ports import free_port  # noqa: E402
from recording import Recording  # noqa: E402
from tables import stalls as tables  # noqa: E402
from tables.stalls import PHASES, STEPS, SWITCHOVER, UNTOUCHED  # noqa: E402
from waiting import wait_until  # noqa: E402

ETCD_QUOTA_BYTES = 8 << 30
# Readers of all objects during a switchover: connections with one batch outstanding each.
READERS = 4
# Clients end after this; in a switchover none shall, whose pings go to the old primary for ever.
CLIENT_TTL_SECONDS, ENDLESS_TTL_SECONDS = 10, 86_400
# With less memory available a round is given up before the kernel chooses what to kill.
LEAST_MEMORY_BYTES = 1 << 30
# Masters and etcd are what the kernel shall choose if it has to.
OOM_SCORE_ADJUSTMENT = 800


def say(text):
    print(f"== {time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def bench(*arguments):
    return [os.environ["MOONKEEPER_BIN"], "bench", *map(str, arguments)]


def available_bytes():
    with open("/proc/meminfo", encoding="ascii") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("MemAvailable:"))


def peak_bytes(process):
    """The largest resident set of a process that runs; 0 of one that ended."""
    try:
        with open(f"/proc/{process.pid}/status", encoding="ascii") as file:
            return next((int(line.split()[1]) << 10 for line in file if line.startswith("VmHWM:")), 0)
    except OSError:
        return 0


class Guard:
    """Kills a process when it takes too long or when the machine's memory runs out, and says why."""

    def __init__(self, process, seconds):
        self.reason = None
        self._process, self._end, self._limit = process, time.monotonic() + seconds, seconds
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self):
        while self.reason is None and not self._left.wait(0.5):
            if time.monotonic() > self._end:
                self.reason = f"not done within {self._limit:,.0f} s"
            elif (available := available_bytes()) < LEAST_MEMORY_BYTES:
                self.reason = f"the machine's memory ran out ({available >> 20:,} MiB available)"
        if self.reason:
            self._process.kill()

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._left.set()
        self._thread.join()


class Single:
    """A master without replication."""

    def __init__(self, kind, folder, client_ttl):
        program = [os.environ["MOONKEEPER_BIN"], "master"] if kind == OURS else [os.environ["MOONCAKE_MASTER"]]
        rpc_port, http_port = free_port(), free_port()
        self.address, self.http_address = (f"127.0.0.1:{port}" for port in (rpc_port, http_port))
        flags = {"rpc_address": "127.0.0.1", "rpc_port": rpc_port, "metrics_host": "127.0.0.1"}
        flags |= {"metrics_port": http_port, "client_ttl": client_ttl}
        command = [*program, *(f"--{name}={value}" for name, value in flags.items())]
        self._process = processes.spawn(command, folder / f"{kind}.log", cwd=folder)
        self.masters, self.etcds = [self._process], []
        wait_until(lambda: all(map(self._listens, (rpc_port, http_port))), f"{kind} to listen")

    def _listens(self, port):
        assert self._process.poll() is None, "the master ended"
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return True
        except OSError:
            return False

    def etcd_bytes(self):
        return 0

    def close(self):
        processes.kill(self._process)


class Cluster:
    """Three masters on one etcd, with as much of `Single` as the steps need."""

    def __init__(self, kind, folder, client_ttl):
        flags = ["--quota-backend-bytes", str(ETCD_QUOTA_BYTES)]
        self.world = BenchWorld(folder, masters=3, clients=0, kind=kind, etcd_flags=flags, client_ttl=client_ttl)
        self.masters = [each.process for each in self.world.masters.all]
        self.etcds = [each.process for each in self.world.etcd.members]
        try:
            self.world.masters.wait_until_redundant()
            primary = self.world.masters.wait_until_serving()
        except BaseException:
            self.close()
            raise
        self.address, self.http_address = primary.address, f"{primary.host.address}:{primary.metrics_port}"

    def etcd_bytes(self):
        """What etcd keeps, of its quota; its file is larger."""
        status = self.world.etcd.members[0].call("maintenance/status", {}) or {}
        return int(status.get("dbSizeInUse", 0))

    def close(self):
        self.world.end()


@contextlib.contextmanager
def deployment(phase, number, recording, client_ttl=CLIENT_TTL_SECONDS):
    """The masters of a phase in a folder of their own, with a master that is left alone, and what they used."""
    shape = Single if phase.endswith("-1") else Cluster
    kind = REFERENCE if phase.startswith("reference") else OURS
    with tempfile.TemporaryDirectory(prefix="stalls-") as folder, tempfile.TemporaryDirectory(prefix="control-") as other:
        with (
            contextlib.closing(shape(kind, pathlib.Path(folder), client_ttl)) as server,
            contextlib.closing(Single(OURS, pathlib.Path(other), client_ttl)) as control,
        ):
            server.control = control.address
            for each in [*server.masters, *server.etcds]:
                pathlib.Path(f"/proc/{each.pid}/oom_score_adj").write_text(str(OOM_SCORE_ADJUSTMENT))
            started = time.monotonic()
            try:
                yield server
            finally:
                used = {
                    "seconds": round(time.monotonic() - started, 1),
                    "masters_peak_bytes": [peak_bytes(each) for each in server.masters],
                    "masters_ended_with": [each.poll() for each in server.masters],
                    "etcd_peak_bytes": sum(peak_bytes(each) for each in server.etcds),
                    "etcd_bytes": server.etcd_bytes(),
                }
                recording.add(phase=phase, round=number, deployment=used)
                peaks = ", ".join(f"{each / 2**30:.2f}" for each in used["masters_peak_bytes"])
                etcd = f"; etcd {used['etcd_peak_bytes'] / 2**30:.2f} GiB, keeping {used['etcd_bytes'] / 2**20:,.1f} MiB"
                say(f"{used['seconds']:,.0f} s; masters at most {peaks} GiB{etcd if server.etcds else ''}")


def run_steps(server, phase, number, steps, options, recording):
    """Runs the steps once, records each; returns (how many, the untouched one included, and why there are no more)."""
    command = bench("stalls", "--address", server.address, "--http", server.http_address, "--rounds", 1)
    command += ["--objects", str(options.objects), "--clients", str(options.clients)]
    command += ["--untouched-seconds", str(options.untouched_seconds), "--control", server.control]
    for step in [UNTOUCHED, *steps]:
        command += ["--only", step]
    done = 0
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
        Guard(process, options.round_seconds) as guard,
    ):
        try:
            for line in process.stdout:
                report = json.loads(line)
                report.pop("round")
                recording.add(phase=phase, round=number, report=report)
                done += 1
                waits = ", ".join(f"{name} {each['longest_us'] / 1000:,.1f} ms" for name, each in report["waits"].items())
                filled = f"put {report['put']:,} in {report['filling_seconds']:,.1f} s" if report["put"] else "all there"
                refused = f", {report['refused']:,} refused" if report["refused"] else ""
                say(f"round {number}: {report['step']} took {report['seconds']:.1f} s: longest {waits} ({filled}{refused})")
            process.wait()
        finally:
            process.kill()
        if process.returncode == 0:
            return done, None
        errors.seek(0)
        said = errors.read().strip().splitlines() or [f"bench stalls ended with {process.returncode}"]
        return done, guard.reason or said[-1].removeprefix("moonkeeper bench: ")


def measure_steps(phase, options, recording):
    """All rounds of a phase."""
    wanted = list(options.steps)
    for number in range(1, options.rounds + 1):
        remaining = list(wanted)
        while remaining:
            masters, kind = PHASES[phase]
            say(f"{kind}, {masters}, {options.objects:,} objects, round {number} of {options.rounds}")
            with deployment(phase, number, recording) as server:
                done, failure = run_steps(server, phase, number, remaining, options, recording)
            if failure is None:
                break
            failed = [UNTOUCHED, *remaining][done]
            say(f"{phase}: {failed}: {failure}")
            if failed == UNTOUCHED:
                recording.add(phase=phase, round=number, step=failed, failure=failure)
                return
            if kind == REFERENCE and done > 1:
                # It refuses keys for a while after their removal: the step may do with objects that were never removed.
                remaining = remaining[done - 1 :]
                continue
            recording.add(phase=phase, round=number, step=failed, failure=failure)
            wanted.remove(failed)
            remaining = remaining[done:]


@contextlib.contextmanager
def started(command, **streams):
    with subprocess.Popen(bench(*command), text=True, **streams) as process:
        try:
            yield process
        finally:
            process.kill()


def measure_switchovers(options, recording):
    """Milliseconds in which no master answered, for each switchover while all objects are read."""
    say(f"{OURS}, three masters, {options.objects:,} objects, {options.rounds} switchovers under reads")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with deployment(SWITCHOVER, 1, recording, ENDLESS_TTL_SECONDS) as server:
        fill = ["fill", "--address", server.address, "--objects", options.objects, "--clients", options.clients]
        with started(fill, **pipes) as filling, Guard(filling, options.round_seconds) as guard:
            said = filling.stdout.readline().strip()
            if not said:
                recording.add(phase=SWITCHOVER, failure=guard.reason or "the objects could not be put")
                return
            say(f"filled: {said}")
            for number in range(1, options.rounds + 1):
                failure = one_switchover(server.world, number, options, recording)
                if failure or guard.reason:
                    say(f"{SWITCHOVER}: {failure or guard.reason}")
                    recording.add(phase=SWITCHOVER, round=number, failure=failure or guard.reason)
                    return


def one_switchover(world, number, options, recording):
    """Records the silence; returns why no further switchover makes sense, if so."""
    world.masters.wait_until_connected()
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
    silence = report["longest_silence_us"] / 1000
    recording.add(phase=SWITCHOVER, round=number, silence_ms=silence, status=status, answer=body)
    if status != 200:
        return f"the switchover was answered {status}: {body}"
    say(f"round {number}: switchover with {silence:,.1f} ms of silence")
    world.wait_for_another(primary)
    return None


def phases(text):
    """Phases by name, separated by commas; `ours` and `reference` stand for all of theirs."""
    groups = {"ours": ["ours-1", "ours-3", SWITCHOVER], "reference": ["reference-1", "reference-3"]}
    found = []
    for name in text.split(","):
        if name not in (*PHASES, SWITCHOVER, *groups):
            raise argparse.ArgumentTypeError(f"no such phase: {name}")
        found += groups.get(name, [name])
    return found


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--objects", type=int, default=10_000_000, help="objects (10,000,000)")
    parser.add_argument("--clients", type=int, default=100, help="clients (100)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds; the maximum of all counts (5)")
    every = [*PHASES, SWITCHOVER]
    names = f"only these of {', '.join(every)}, separated by commas; ours and reference stand for all of theirs"
    parser.add_argument("--only", type=phases, metavar="PHASES", default=every, help=names)
    parser.add_argument("--steps", action="append", choices=STEPS, help="only this step; several times for several")
    parser.add_argument("--untouched-seconds", type=float, default=15, help="length of the look at the noise (15)")
    parser.add_argument("--read-seconds", type=float, default=10, help="reads before each switchover (10)")
    parser.add_argument("--round-seconds", type=float, default=2400, help="after this a round is given up (2400)")
    parser.add_argument("--json", metavar="FILE", help="also add every report to this file, as it comes")
    options = parser.parse_args()
    options.steps = [each for each in STEPS if not options.steps or each in options.steps]
    return options


def main():
    options = arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    kept = ("objects", "clients", "rounds", "steps", "untouched_seconds", "read_seconds", "round_seconds")
    recording = Recording(options.json, "stalls", **{name: getattr(options, name) for name in kept})
    for phase in options.only:
        if phase == SWITCHOVER:
            measure_switchovers(options, recording)
        else:
            measure_steps(phase, options, recording)
    print("\n".join(tables.lines([recording.run])))


if __name__ == "__main__":
    main()
