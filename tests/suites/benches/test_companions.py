"""Which process is whose companion."""

import os
import pathlib
import subprocess
import sys

import companions
import pytest
from companions import Companions
from waiting import wait_until

# Starts what stands for a companion, says its pid, and waits.
MASTER = """
import subprocess, sys
quiet = subprocess.DEVNULL
child = subprocess.Popen(["moonkeeper", "companion", "--socket", sys.argv[1]], executable="/bin/sh", stdin=quiet, stdout=quiet, start_new_session=True)
print(child.pid, flush=True)
sys.stdin.readline()
"""


class Master:
    """As much of a master as is asked for; with a socket it starts a companion."""

    def __init__(self, folder, socket=None, address="127.0.0.1:1"):
        # The shell that is called `moonkeeper` takes its first argument for a script. It waits for a writer that never
        # comes, and starts no process: one that was just forked would be taken for a second companion.
        (folder / "companion").write_text("read line < never\n")
        if not (folder / "never").exists():
            os.mkfifo(folder / "never")
        command = [sys.executable, "-c", MASTER, socket] if socket else ["sleep", "600"]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process, self.address = subprocess.Popen(command, cwd=folder, start_new_session=True, **pipes), address
        self.companion = int(self.process.stdout.readline()) if socket else None
        if socket:
            # A moment after it was started it has no arguments yet.
            arguments = pathlib.Path(f"/proc/{self.companion}/cmdline")
            wait_until(arguments.read_bytes, "the arguments of a process that was started")

    def running(self):
        return self.process.poll() is None

    def kill(self):
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def start(tmp_path):
    started = []

    def start(*args):
        started.append(Master(tmp_path, *args))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        if each.companion:
            companions.end_process(each.companion)


def test_a_companion_is_known_when_its_master_has_ended(start):
    found, master = Companions(), start("/socket-of-a-test")
    assert found.of(master) == [master.companion]
    master.kill()
    assert found.of(master) == [master.companion]


def test_a_restarted_master_has_the_companion_of_its_predecessor(start):
    found, first = Companions(), start("/socket-of-a-test")
    found.of(first)
    first.kill()
    second = start()
    assert found.of(second) == [first.companion]


def test_the_companion_of_another_master_is_left_alone(start):
    found, mine, other = Companions(), start("/socket-of-a-test"), start("/socket-of-another", "127.0.0.1:2")
    found.of(mine)
    for each in (mine, other):
        each.kill()
    found.end([mine, other])
    assert found.of(mine) == []
    assert Companions().of(mine) == []
    assert [pid for pid, _, _ in companions._running() if pid == other.companion]


@pytest.mark.parametrize(
    ("words", "socket"),
    [(["m", "companion", "--socket", "/a"], "/a"), (["m", "companion", "--socket=/b", ""], "/b"), (["m", "companion"], None)],
)
def test_the_socket_is_in_the_command(words, socket):
    assert companions.socket_of(words) == socket
