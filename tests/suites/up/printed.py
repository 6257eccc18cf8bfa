"""The program that `moonkeeper up` prints, run as a user runs it, and kept at work."""

import os
import subprocess

import processes
from takeover import put_until_taken

# Appended to it: one line of input per question.
GO_ON = """
import sys
for line in sys.stdin:
    question, key = line.split()
    print(store.put(key, b"of " + key.encode()) if question == "put" else store.get(key), flush=True)
"""


class Client:
    """A Python that runs the printed program, and then does what it is told."""

    def __init__(self, up, log_path):
        command = [os.environ["MOONCAKE_PYTHON"], "-c", up.snippet() + GO_ON]
        self.process = processes.spawn(command, log_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_for_value(self):
        """Waits until the printed program has read back what it wrote."""
        assert self.process.stdout.readline() == "b'value'\n"
        return self

    def ask(self, question, key):
        self.process.stdin.write(f"{question} {key}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def put_after_a_failover(self, key):
        """Puts it as a user does who tries again; returns what was answered before it succeeded."""
        return put_until_taken(lambda: int(self.ask("put", key)))

    def kill(self):
        processes.kill(self.process)
