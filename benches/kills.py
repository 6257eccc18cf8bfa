"""Ends of a primary, as a benchmark brings them about: each function does the harm and returns the moment before it."""

import os
import signal
import time

import out_of_memory as memory

# Bounds a hang; a master that is asked to end takes some seconds.
END_SECONDS = 60


class NoCompanion(Exception):
    """The master has none that could be ended first."""


def _signal(number):
    def strike(master):
        struck = time.monotonic()
        # To the process alone: a companion is not part of what ends.
        os.kill(master.process.pid, number)
        master.process.wait(END_SECONDS)
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
    return memory.kill(master.process)
