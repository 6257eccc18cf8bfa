"""Ends of a primary, as a benchmark brings them about: each function does the harm and returns the moment before it."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

# What the cgroup of the master that is to be killed may use; the master's own memory was counted elsewhere before.
LIMIT_BYTES = 64 << 20
CGROUPS = pathlib.Path("/sys/fs/cgroup")
# Bounds a hang: the kernel kills within milliseconds.
KILL_SECONDS = 30
# Takes memory until the kernel kills a process of its cgroup, first after it was told to.
HOG = """
import sys
most = bytearray({most})
print("ready", flush=True)
sys.stdin.readline()
more = [bytearray(1 << 20) for _ in range({more})]
"""


class NoCgroup(Exception):
    """This machine has no memory cgroup that can be limited."""


class NoCompanion(Exception):
    """The master has none that could be ended first."""


def _signal(number):
    def strike(master):
        struck = time.monotonic()
        # To the process alone: a companion is not part of what ends.
        os.kill(master.process.pid, number)
        master.process.wait(KILL_SECONDS * 2)
        return struck

    return strike


kill = _signal(signal.SIGKILL)
# What a panic of a release build ends with: `panic = "abort"`.
panic = _signal(signal.SIGABRT)
# What the kubelet sends to a pod that is deleted.
terminate = _signal(signal.SIGTERM)


def switchover(master):
    struck = time.monotonic()
    master.switchover()
    return struck


def out_of_memory(master):
    """The kernel kills it, because its cgroup has no memory left."""
    with _cgroup() as folder:
        pathlib.Path(f"/proc/{master.process.pid}/oom_score_adj").write_text("1000")
        (folder / "cgroup.procs").write_text(str(master.process.pid))
        program = HOG.format(most=LIMIT_BYTES // 2, more=(LIMIT_BYTES >> 20) * 2)
        enter = f"echo $$ >{folder}/cgroup.procs; exec \"$0\" \"$@\""
        command = ["sh", "-c", enter, sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hog:
            try:
                assert hog.stdout.readline(), "the process that takes the memory ended before it should"
                struck = time.monotonic()
                hog.stdin.write("\n")
                hog.stdin.flush()
                code = master.process.wait(KILL_SECONDS)
            finally:
                hog.kill()
        assert code == -signal.SIGKILL, f"the master ended with {code}"
        assert _kills(folder) >= 1, "it was not the kernel that killed the master"
        return struck


@contextlib.contextmanager
def _cgroup():
    """A cgroup with little memory, of either version; removed when its processes have ended."""
    first = (CGROUPS / "memory").is_dir()
    folder = (CGROUPS / "memory" if first else CGROUPS) / f"moonkeeper-bench-{os.getpid()}"
    try:
        folder.mkdir()
        (folder / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(LIMIT_BYTES))
    except OSError as error:
        with contextlib.suppress(OSError):
            folder.rmdir()
        raise NoCgroup(f"no memory cgroup can be made: {error}") from None
    try:
        yield folder
    finally:
        end = time.monotonic() + KILL_SECONDS
        while True:
            try:
                folder.rmdir()
                break
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.01)


def _kills(folder):
    """How often the kernel has killed in a cgroup."""
    for name in ("memory.events", "memory.oom_control"):
        if (file := folder / name).exists():
            words = dict(line.split() for line in file.read_text().splitlines())
            return int(words.get("oom_kill", 0))
    return 0
