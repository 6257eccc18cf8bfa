"""An end by the kernel: a process whose memory cgroup has no memory left."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import time

CGROUPS = pathlib.Path("/sys/fs/cgroup")
# What the cgroup of the process that is to be killed may use; the process's own memory was counted elsewhere before.
LIMIT_BYTES = 64 << 20
# The kernel kills the process with the highest value first.
FIRST_TO_KILL = 1000
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
    """No memory cgroup can be made and limited here; root can on Linux, with either version of cgroups."""


def kill(process):
    """Lets the kernel kill a child of this process, alone and for want of memory. Returns the moment before."""
    with _limited_cgroup() as folder:
        pathlib.Path(f"/proc/{process.pid}/oom_score_adj").write_text(str(FIRST_TO_KILL))
        (folder / "cgroup.procs").write_text(str(process.pid))
        program = HOG.format(most=LIMIT_BYTES // 2, more=(LIMIT_BYTES >> 20) * 2)
        enter = f'echo $$ >{folder}/cgroup.procs; exec "$0" "$@"'
        command = ["sh", "-c", enter, sys.executable, "-c", program]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as hog:
            try:
                assert hog.stdout.readline(), "the process that takes the memory ended before it should"
                struck = time.monotonic()
                hog.stdin.write("\n")
                hog.stdin.flush()
                code = process.wait(KILL_SECONDS)
            finally:
                hog.kill()
        assert code == -signal.SIGKILL, f"the process ended with {code}"
        assert _kills(folder) >= 1, "it was not the kernel that killed the process"
        return struck


@contextlib.contextmanager
def _limited_cgroup():
    """A cgroup with little memory and no swap, of either version; removed when its processes have ended."""
    is_version_1 = (CGROUPS / "memory").is_dir()
    root = CGROUPS / "memory" if is_version_1 else CGROUPS
    limit, swap = ("memory.limit_in_bytes", "memory.swappiness") if is_version_1 else ("memory.max", "memory.swap.max")
    folder = root / f"moonkeeper-memory-{os.getpid()}"
    try:
        if not is_version_1:
            # Changes nothing where it is on already, as systemd has it.
            (root / "cgroup.subtree_control").write_text("+memory")
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT_BYTES))
        # A kernel without swap may have no setting for it.
        if (folder / swap).exists():
            (folder / swap).write_text("0")
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
