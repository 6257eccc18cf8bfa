"""Child processes that never outlive the test run.

Each child leads a process group of its own, which is killed when its test ends; and the kernel kills it if this
process dies first, however it dies.
"""

import ctypes
import os
import signal
import subprocess

PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


def _die_with_parent():
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(command, log_path, **options):
    """Starts `command` with its output in `log_path`, or where `options` lead it. To be called from the main thread:
    the kernel takes the end of the thread that started a child for the end of its parent."""
    # Companions of masters outlive these by intent, and end with this process.
    options["env"] = options.get("env", os.environ) | {"MOONKEEPER_DIES_WITH": str(os.getpid())}
    with open(log_path, "wb") as log:
        streams = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.Popen(command, start_new_session=True, preexec_fn=_die_with_parent, **(streams | options))


def kill(process):
    """Kills the child's whole group and reaps the child; does nothing to one that is reaped already."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def with_argument(text):
    """Ids of all processes that have `text` in their command line."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as command:
                if text.encode() in command.read():
                    found.append(int(entry))
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found
