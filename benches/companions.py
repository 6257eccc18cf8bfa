"""The companions of masters, found through /proc.

A companion is a process of the same program that outlives its master and closes the connections of clients once the
master has ended. A master that is started again takes the companion of its predecessor, whose child it is not; it is
known by its Unix socket, which stays the same.
"""

import contextlib
import os
import pathlib
import select
import signal

# Bounds a hang: a process ends within milliseconds of SIGKILL.
KILL_SECONDS = 30


def _running():
    """(pid, parent, socket) of every companion on this machine."""
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            words = pathlib.Path(f"/proc/{name}/cmdline").read_text().split("\0")
            stat = pathlib.Path(f"/proc/{name}/stat").read_text()
        except (OSError, UnicodeDecodeError):
            continue
        if words[1:2] == ["companion"] and (socket := socket_of(words)):
            yield int(name), int(stat.rpartition(")")[2].split()[1]), socket


def socket_of(words):
    """The socket that a companion was started with, or None."""
    for word, following in zip(words, [*words[1:], ""]):
        if word == "--socket":
            return following
        if word.startswith("--socket="):
            return word.removeprefix("--socket=")
    return None


def end_process(pid):
    """SIGKILL to one process, and waits until it has ended."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            select.select([handle], [], [], KILL_SECONDS)
        finally:
            os.close(handle)


class Companions:
    """Those of some masters."""

    def __init__(self):
        # Of each master that ever had one.
        self._sockets = {}

    def of(self, master):
        """The processes of a master's companion: none or one."""
        found = list(_running())
        for _, parent, socket in found:
            if master.process and master.running() and parent == master.process.pid:
                self._sockets[master.address] = socket
        return [pid for pid, _, socket in found if socket == self._sockets.get(master.address)]

    def end(self, masters):
        """Ends those of masters that have ended."""
        for each in masters:
            for pid in self.of(each):
                end_process(pid)
