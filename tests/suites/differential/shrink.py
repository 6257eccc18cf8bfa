"""Makes a failing sequence of calls short enough to read.

Cheap rather than thorough: first only the calls that share a key, client or
segment with the failing one, then chunks of halving size are left out as long
as the same RPC still differs. A budget of seconds bounds each sequence, and
another one the whole session: the first few are what somebody will read.
"""

import time

from walk import replay

_BUDGET_SECONDS = 12.0


class Budget:
    """Seconds of shrinking that a session has left."""

    def __init__(self, seconds):
        self.seconds = seconds


SESSION = Budget(60.0)


def shrink(calls, difference, budget=SESSION, **flags):
    """A shorter sequence that still ends in a difference of the same RPC."""
    started = time.monotonic()
    if budget.seconds <= 0:
        return _related(calls), difference
    try:
        return _shrink(calls, difference, started + min(_BUDGET_SECONDS, budget.seconds), **flags)
    finally:
        budget.seconds -= time.monotonic() - started


def _shrink(calls, difference, deadline, **flags):

    def still_differs(candidate):
        found = replay(candidate, **flags)
        return found is not None and found[1].call.name == difference.call.name

    best = calls
    related = _related(calls)
    if len(related) < len(best) and still_differs(related):
        best = related
    chunk = max(1, len(best) // 2)
    while chunk and time.monotonic() < deadline:
        start = 0
        while start < len(best) - 1 and time.monotonic() < deadline:
            end = min(start + chunk, len(best) - 1)
            candidate = best[:start] + best[end:]
            if still_differs(candidate):
                best = candidate
            else:
                start = end
        chunk //= 2
    found = replay(best, **flags)
    return (best[: found[0] + 1], found[1]) if found else (calls, difference)


def _related(calls):
    """The failing call, and those before it that touch what it touches."""
    failing = calls[-1]
    keys = failing.keys()
    if keys is None:
        return calls
    segments = {"MountSegment", "ReMountSegment", "UnmountSegment", "GracefulUnmountSegment"}
    return [
        call
        for call in calls
        if call is failing
        or call.name in segments
        or (keys and (call.keys() is None or keys & call.keys()))
        or (not keys and failing.clients() & call.clients())
    ]
