"""Waiting for something that the system does in its own time.

A deadline here only bounds a hang: it is far above what the thing takes, and no test asserts how long it took.
"""

import time

DEADLINE_SECONDS = 30


def wait_until(condition, what, seconds=DEADLINE_SECONDS):
    """Polls `condition` until it is true and returns its value; fails, naming `what`, when the deadline passes."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"gave up after {seconds} s waiting for: {what}"
        time.sleep(0.05)
