"""Makes a failing sequence of calls short enough to read.

Cheap rather than thorough: first only the calls that share a key, client or
segment with the failing one, then chunks of halving size are left out as long
as the same RPC still differs. A budget of seconds bounds it all.
"""

import time

from walk import replay

_BUDGET_SECONDS = 20.0


def shrink(calls, difference, **flags):
    """A shorter sequence that still ends in a difference of the same RPC."""
    deadline = time.monotonic() + _BUDGET_SECONDS

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
