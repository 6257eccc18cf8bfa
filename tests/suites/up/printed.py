"""The program that `moonkeeper up` prints, run as a user runs it, and kept at work."""

import os
import subprocess

import processes
from waiting import wait_until

NO_MEMORY = "-200"
NO_ANSWER = ("-900", "-901")
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
        """Puts it as a user does who tries again; returns what was answered before it was taken. Only what the documentation
        says of the time after a failover may be: no answer from the master that is gone, and no memory before a client has
        told its own to the new one."""
        refused = []

        def taken():
            answer = self.ask("put", key)
            assert answer in ("0", NO_MEMORY, *NO_ANSWER), f"a put after the failover is answered with {answer}"
            if answer != "0":
                refused.append(answer)
            return answer == "0"

        wait_until(taken, f"a put after the failover; so far {refused}", seconds=60)
        return refused

    def kill(self):
        processes.kill(self.process)
