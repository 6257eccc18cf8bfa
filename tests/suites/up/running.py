"""One run of `moonkeeper up`, and what it has printed."""

import os
import pathlib
import re
import signal
import subprocess

import processes
from waiting import wait_until


class Up:
    """A running `moonkeeper up`."""

    def __init__(self, log_path, *arguments):
        self.log_path = log_path
        ports = ["--rpc-port-base=0", "--http-port-base=0"]
        if not any(each.startswith("--etcd") for each in arguments):
            ports.append("--etcd-port=0")
        command = [os.environ["MOONKEEPER_BIN"], "up", *ports, *arguments]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOONKEEPER_")}
        self.process = processes.spawn(command, log_path, env=environment)

    def text(self):
        return self.log_path.read_text()

    def wait_for_text(self):
        """Waits until it has said what there is to try, which it does when there is a primary."""
        wait_until(lambda: "ctrl-c" in self.text(), "the masters to start", seconds=60)
        return self

    def pids(self):
        """Name and process of every master as they were first started."""
        return {name: int(pid) for name, pid in re.findall(r"^  (m-\d) +pid (\d+)", self.text(), re.MULTILINE)}

    def primaries(self):
        """The names of those who have led, in order."""
        return re.findall(r"^(m-\d) is primary", self.text(), re.MULTILINE)

    def wait_for_primary(self, count):
        """Waits until there have been so many primaries, and returns the name of the last."""
        wait_until(lambda: len(self.primaries()) >= count, f"primary number {count}", seconds=60)
        return self.primaries()[-1]

    def line(self, start):
        """The rest of the first line that starts so, blanks aside."""
        return re.search(rf"^ *{re.escape(start)}(.*)$", self.text(), re.MULTILINE).group(1)

    def command(self, start, *more):
        """Runs a command that it has proposed, with more arguments, and returns what that prints."""
        arguments = self.line(f"moonkeeper {start}").split()
        command = [os.environ["MOONKEEPER_BIN"], start, *arguments, *more]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done
        return done.stdout

    def snippet(self):
        """The program for Python that it has printed."""
        block = re.search(r"^from Python.*?:\n\n(.*?)\n\n", self.text(), re.MULTILINE | re.DOTALL).group(1)
        return "\n".join(line.removeprefix("  ") for line in block.splitlines()) + "\n"

    def stop(self, how=signal.SIGINT):
        """Ends it as a user does; returns its exit code."""
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def kill(self):
        processes.kill(self.process)


def alive(pid):
    """Whether there is such a process that has not ended."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
