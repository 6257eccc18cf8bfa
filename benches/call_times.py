"""What the threads of a client felt of a fault, from when their calls began and ended. Moments are in seconds, on the
clock that all processes of a machine share; results are in milliseconds.

A call is (name, began, ended, code); a negative code is a failure. Counted is from success to success and not from the
fault: a primary that is asked to stop, or that the kernel is about to kill, goes on to answer for a while.
"""

import bisect
import collections
import statistics

# When a call that failed began: beside the interruption, which is the longest time without a success of any thread in which
# a call failed.
UNDER_WAY = "was under way when the answers stopped"
MEANWHILE = "began while no call of this client succeeded"
LATER = "began when other threads succeeded again"
EARLIER = "failed before the answers stopped"


def _milliseconds(seconds):
    return round(seconds * 1000, 3)


def _gaps(calls, struck, stopped, names=None):
    """(start, end) of each time without a success that touches the time from the fault to the end of the round."""
    good = sorted(ended for name, _, ended, code in calls if code >= 0 and name in (names or [name]))
    first = max((each for each in good if each <= struck), default=struck)
    moments = [first, *(each for each in good if struck < each <= stopped), max(stopped, struck)]
    return list(zip(moments, moments[1:]))


def _length(gap):
    return gap[1] - gap[0]


def interruption(calls, struck, stopped):
    """(start, end) of the longest time without a success in which a call failed. Not simply the longest one: after a takeover
    puts wait for clients to rejoin, and no call fails meanwhile."""
    gaps = _gaps(calls, struck, stopped)
    failed = sorted(ended for _, _, ended, code in calls if code < 0)
    hit = [gap for gap in gaps if bisect.bisect_right(failed, gap[0]) < bisect.bisect_right(failed, gap[1])]
    return max(hit or gaps, key=_length)


def without_success(calls, struck, stopped, names=None):
    """Milliseconds of it; None if there was no success after the fault."""
    if not any(ended > struck and code >= 0 and name in (names or [name]) for name, _, ended, code in calls):
        return None
    return _milliseconds(max(map(_length, _gaps(calls, struck, stopped, names))))


def longest_call(threads, struck):
    """The longest call that ended after the fault, whatever its result."""
    lengths = (ended - began for calls in threads for _, began, ended, _ in calls if ended >= struck)
    return _milliseconds(max(lengths, default=0.0))


def failures(threads, struck, stopped):
    """How many calls failed after the fault, by call, code and the moment at which they began."""
    calls = [each for thread in threads for each in thread]
    start, end = interruption(calls, struck, stopped)
    counts = collections.Counter()
    for name, began, ended, code in calls:
        if code < 0 and ended >= struck:
            cause = EARLIER if ended <= start else UNDER_WAY if began <= start else MEANWHILE if began < end else LATER
            counts[name, code, cause] += 1
    return [{"call": name, "code": code, "cause": cause, "count": count} for (name, code, cause), count in sorted(counts.items())]


def summary(threads, struck, stopped):
    """One round, from the fault to the moment at which the threads were told to stop."""
    return {
        "without_success_ms": [without_success(calls, struck, stopped) for calls in threads],
        "without_put_ms": [without_success(calls, struck, stopped, ["put"]) for calls in threads],
        "longest_call_ms": longest_call(threads, struck),
        "calls": sum(ended >= struck for calls in threads for _, _, ended, _ in calls),
        "failed": failures(threads, struck, stopped),
    }


def median_and_maximum(values):
    """Of values in which None means that there was no end to it."""
    shown = [float("inf") if each is None else each for each in values]
    return statistics.median(shown), max(shown)
