"""What a fault may do to a cluster of masters, and whether it did that and no more.

A fault carries its `Expects`. A round looks at the masters before and after it (`Cluster`), and `judge` compares the two:
a pure function, so that a test can show for each kind of violation that it is found.

* `term`: a change of primary that should not have been, or none where one should;
* `reason`: a promotion for another reason than the fault gives;
* `late`: not served again before the lease of the dead or resigned primary could have ended;
* `absent`: a master that should run does not; `unready`: one that is not ready, or has not caught up;
* `restarted`: a process that the fault did not end is another one now;
* `fault`, `rebuild`: counts of a master's status or metrics that the fault does not name;
* `error`: a line of a master's log at level ERROR, or a panic, that the fault does not name;
* `starved`: a real client without a success of its own since the fault.
"""

import re
from dataclasses import dataclass, field

from checker import Violation

SAME, NEW, EITHER = "the same term", "a new term", "the same term or a new one"
# Reasons of a promotion, as the status of a master words them.
DIED, HANDED_OVER, LEASE_ENDED = "the primary died", "switchover", "the lease ran out"
# Counted in `status.faults` and as a metric of its own.
REBUILT = "rebuilds of the state from the log"
# With a lease of this length a busy machine is no excuse: shorter ones may end by themselves while it is stalled, which
# says nothing about the masters.
LONG_LEASE_SECONDS = 30
# A lease is counted from a renewal, which is sent each second: so much of it may be over when the primary dies.
RENEWAL_SECONDS = 2


@dataclass(frozen=True)
class Expects:
    """`rebuilds` says how many masters may build their state anew: a primary that was deposed must, if it had applied
    records that are not durable. `faults` are texts in `status.faults`, `errors` patterns of log lines that may come."""

    term: str
    # Empty if any reason will do.
    reasons: tuple = ()
    # Elections won by any master; None if that is open.
    elections: int | None = None
    # Served again before the lease of the old primary could have ended.
    before_lease_ends: bool = False
    rebuilds: int = 0
    faults: tuple = ()
    errors: tuple = ()


UNNOTICED = Expects(SAME, elections=0)


def expects(*arguments, **more):
    """Says what a fault does: the decorator of faults."""
    what = arguments[0] if arguments and isinstance(arguments[0], Expects) else Expects(*arguments, **more)

    def mark(fault):
        fault.expects = what
        return fault

    return mark


@dataclass(frozen=True)
class Observed:
    """One master as it stands. `counts` are those of `status.faults` by their text, `mismatches` and `rebuilds` metrics."""

    name: str
    running: bool = True
    boot_id: str = ""
    ready: bool = True
    why_not_ready: str = ""
    # The number of its starts by the test.
    starts: int = 1
    counts: dict = field(default_factory=dict)
    mismatches: float = 0
    rebuilds: float = 0


@dataclass(frozen=True)
class Cluster:
    """All masters at one moment, and the lines of their logs that were written since the moment before."""

    primary: str | None
    term: int
    reason: str | None
    masters: tuple
    elections: int = 0
    error_lines: tuple = ()


def judge(expected, before, after, lease_seconds, silence, clients=()):
    """All violations. `silence` is the longest time without an answer since the fault struck, `clients` are `Gap`s."""
    found = [*_judge_term(expected, before, after, lease_seconds)]
    found += _judge_time(expected, lease_seconds, silence, clients)
    found += [violation for name in after.masters for violation in _judge_master(expected, before, name)]
    found += _judge_rebuilds(expected, before, after)
    allowed = [re.compile(each) for each in expected.errors]
    for line in after.error_lines:
        if not any(each.search(line) for each in allowed):
            found.append(Violation("error", "", line.strip()))
    return found


def _judge_term(expected, before, after, lease_seconds):
    changed = after.term != before.term
    was = f"{before.primary} in term {before.term}"
    now = f"{after.primary} in term {after.term} ({after.reason})"
    is_long = lease_seconds >= LONG_LEASE_SECONDS
    if expected.term == NEW and not changed:
        yield Violation("term", "", f"expected {NEW}, still {was}")
    if expected.term == SAME and changed and is_long:
        yield Violation("term", "", f"expected {SAME}: {was} before, {now} after")
    if not changed and after.primary != before.primary:
        yield Violation("term", "", f"one term has two primaries: {was}, {now}")
    reasons = expected.reasons if is_long else (*expected.reasons, LEASE_ENDED)
    if changed and expected.term != SAME and expected.reasons and after.reason not in reasons:
        yield Violation("reason", "", f"expected {' or '.join(map(repr, reasons))}: {now}")
    if is_long and expected.elections is not None and after.elections != expected.elections:
        yield Violation("term", "", f"{after.elections} elections were won, expected {expected.elections}")


def _judge_time(expected, lease_seconds, silence, clients):
    for each in clients:
        if each.seconds is None:
            yield Violation("starved", each.name, f"no success since the fault, {each.failed} calls failed")
    if not expected.before_lease_ends or lease_seconds < LONG_LEASE_SECONDS:
        return
    limit = lease_seconds - RENEWAL_SECONDS
    if silence >= limit:
        yield Violation("late", "", f"{silence:.1f} s without an answer; the lease could have ended after {limit} s")
    for each in clients:
        if each.seconds is not None and each.seconds >= limit:
            text = f"{each.seconds:.1f} s without a success; the lease could have ended after {limit} s"
            yield Violation("late", each.name, text)


def _earlier(before, master):
    """The same process as it stood before; a new process has counted nothing yet."""
    found = next((each for each in before.masters if each.name == master.name), None)
    return found if found and found.boot_id == master.boot_id else Observed(master.name)


def _judge_master(expected, before, master):
    if not master.running:
        yield Violation("absent", master.name, "does not run")
        return
    if not master.ready:
        yield Violation("unready", master.name, master.why_not_ready)
    known = next((each for each in before.masters if each.name == master.name), None)
    if known and known.starts == master.starts and known.boot_id != master.boot_id:
        yield Violation("restarted", master.name, "is another process than before the fault")
    earlier = _earlier(before, master)
    for what, count in master.counts.items():
        if what != REBUILT and count > earlier.counts.get(what, 0) and what not in expected.faults:
            yield Violation("fault", master.name, f"{what}: {count}")
    if master.mismatches > earlier.mismatches and "digests that did not match" not in expected.faults:
        yield Violation("fault", master.name, f"moonkeeper_digest_mismatch_total is {master.mismatches:.0f}")


def _judge_rebuilds(expected, before, after):
    rebuilt = []
    for master in after.masters:
        earlier = _earlier(before, master)
        by_status = master.counts.get(REBUILT, 0) - earlier.counts.get(REBUILT, 0)
        count = max(by_status, master.rebuilds - earlier.rebuilds)
        rebuilt += [master.name] * int(count)
    if len(rebuilt) > expected.rebuilds:
        yield Violation("rebuild", "", f"states built anew: {', '.join(rebuilt)}; {expected.rebuilds} may be")
