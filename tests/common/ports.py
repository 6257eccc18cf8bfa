"""Loopback ports to listen on later."""

import random
import socket

# An iterator: every port is tried once. Shared by threads, so drawn in one step.
_CANDIDATES = iter(random.Random().sample(range(18_000, 32_000), 14_000))


def free_port():
    """A loopback port that was free a moment ago, and was not given out before.

    Taken from below the range that the kernel uses for outgoing connections,
    so that no client of any master can take it meanwhile.
    """
    for port in _CANDIDATES:
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port
    raise RuntimeError("no free port left")
