"""Loopback ports to listen on later."""

import errno
import fcntl
import os
import pathlib
import random
import socket
import tempfile

# An iterator: every port is tried once. Shared by threads, so drawn in one step.
_CANDIDATES = iter(random.Random().sample(range(18_000, 32_000), 14_000))


# One byte for each port. A process that gives a port out locks its byte until it ends: suites run beside each other, and
# some time passes until a port is listened on. Opened once: the system drops all locks of a process on a file when the
# process closes the file anywhere.
_CLAIMS = (pathlib.Path(tempfile.gettempdir()) / f"moonkeeper-test-ports-{os.getuid()}").open("ab")


def _claim(port):
    """Whether no other process has given it out."""
    try:
        fcntl.lockf(_CLAIMS, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
    except OSError as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return False
        raise
    return True


def free_port():
    """A loopback port that was free a moment ago, and was not given out before.

    Taken from below the range that the kernel uses for outgoing connections,
    so that no client of any master can take it meanwhile.
    """
    for port in filter(_claim, _CANDIDATES):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError("no free port left")
