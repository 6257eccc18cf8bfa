"""Decides whether a history could have happened in a store that loses nothing and never gives bytes out twice.

What it finds, by name:

* `lost`: an object whose put was acknowledged is not there, and nobody removed it;
* `unready`: such an object is there, but cannot be read;
* `undone`: a removal was acknowledged, and the object is there;
* `phantom`: an object that was never written, or whose write was refused;
* `wrong`: other bytes than those written, or other places than those promised;
* `back`: a change in doubt was seen, and later it had not happened;
* `overlap`: two live objects or reservations share a byte.

A change whose outcome is unknown may have happened or not, at any time until somebody sees which.
"""

from collections import defaultdict
from dataclasses import dataclass

from history import ABSENT, NEVER, NOT_READY, OK, PUT, READ, REFUSED, REMOVE, RESERVE, SOMETHING


@dataclass(frozen=True)
class Violation:
    kind: str
    key: str
    text: str


def check(history):
    """All violations in the history."""
    by_key = defaultdict(list)
    for each in history.operations:
        by_key[each.key].append(each)
    found = {}
    for key, operations in by_key.items():
        for each in _check_key(key, operations):
            # One of a kind for each key: how often it was looked at does not count.
            found.setdefault((each.kind, key), each)
    return [*found.values(), *_overlaps(by_key)]


def summary(violations, shown=8):
    """Counts by name, and some of each in words."""
    by_kind = defaultdict(list)
    for each in violations:
        by_kind[each.kind].append(each)
    some = [each for kind in sorted(by_kind) for each in by_kind[kind][: max(1, shown // len(by_kind))]]
    counts = ", ".join(f"{len(found)} {kind}" for kind, found in sorted(by_kind.items()))
    lines = [f"  {each.kind} {each.key}: {each.text}" for each in some]
    return "\n".join([counts or "nothing wrong", *lines])


def _writes(operations):
    writes = sorted((each for each in operations if each.kind in (PUT, REMOVE)), key=lambda each: each.invoked)
    for earlier, later in zip(writes, writes[1:]):
        # The rules of history.py; breaking them is an error of the test, not of the store.
        assert earlier.answered <= later.invoked, f"two writes of {earlier.key} at once"
        assert earlier.outcome in (OK, REFUSED), f"{earlier.key} written again after an unknown outcome"
    return writes


def _check_key(key, operations):
    writes = _writes(operations)
    # states[n]: what the key may hold when the first n writes have been made.
    states = [{ABSENT}]
    for each in writes:
        effect = each.value if each.kind == PUT else ABSENT
        if each.outcome == OK:
            states.append({effect})
        elif each.outcome == REFUSED:
            states.append(states[-1])
        else:
            states.append(states[-1] | {effect})

    found, reads = [], [each for each in operations if each.kind == READ and each.outcome == OK]
    for read in reads:
        first = sum(each.answered < read.invoked and each.outcome in (OK, REFUSED) for each in writes)
        last = sum(each.invoked <= read.answered for each in writes)
        allowed = set().union(*states[first : last + 1])
        if not _fits(read.value, allowed):
            found.append(Violation(*_name(read, writes[:last], states[first])))
    return found + _went_back(writes, states, reads)


def _fits(value, allowed):
    if value is NOT_READY:
        # That is how a write under way looks to others.
        return ABSENT in allowed
    return value in allowed or (value is SOMETHING and allowed != {ABSENT})


def _name(read, writes, before):
    when = f"read by {read.actor} at {read.invoked:.3f}"
    last = next((each for each in reversed(writes) if each.outcome != REFUSED), None)
    written = f"last write: {last.kind} {last.outcome} at {last.answered:.3f}" if last else "never written"
    text = f"{when} found {_short(read.value)}, may be {' or '.join(sorted(map(_short, before)))}; {written}"
    if read.value is ABSENT:
        return "lost", read.key, text
    if read.value is NOT_READY:
        return "unready", read.key, text
    if before == {ABSENT}:
        return ("undone" if last and last.kind == REMOVE else "phantom"), read.key, text
    return "wrong", read.key, text


def _short(value):
    text = repr(value)
    return text if len(text) < 80 else f"{text[:80]}…"


def _went_back(writes, states, reads):
    """A write in doubt, once seen, has happened: nobody who looks later may find it undone."""
    if not writes or writes[-1].outcome in (OK, REFUSED):
        return []
    new = writes[-1].value if writes[-1].kind == PUT else ABSENT
    old = states[-2]
    if new in old:
        return []

    def sees(read, values):
        # One of the two is nothing: a put is made where nothing is.
        return ABSENT not in values if read.value is SOMETHING else read.value in values

    seen = min((each.answered for each in reads if sees(each, {new})), default=NEVER)
    return [
        Violation("back", each.key, f"{_short(new)} was seen at {seen:.3f}, {_short(each.value)} at {each.invoked:.3f}")
        for each in reads
        if each.invoked > seen and sees(each, old)
    ]


@dataclass(frozen=True)
class _Hold:
    """Bytes that certainly belonged to a key from one moment to another."""

    endpoint: str
    first: int
    last: int
    since: float
    until: float
    key: str
    kind: str


def _holds(operations):
    """A range belongs to its key from the answer that named it until somebody asks to remove the key. A reservation
    that was never ended stays for longer than any test runs."""
    writes = _writes(operations)
    holds = set()
    for each in operations:
        if not each.ranges or (each.kind == READ and each.outcome != OK):
            continue
        # A write that was refused after its reservation has given the bytes back.
        if each.kind == PUT and each.outcome == REFUSED:
            continue
        since = each.answered
        if each.kind == PUT:
            until = min((w.invoked for w in writes if w.kind == REMOVE and w.invoked >= each.invoked), default=NEVER)
        elif each.kind == RESERVE:
            until = NEVER
        else:
            puts = [w.answered for w in writes if w.kind == PUT and w.outcome == OK and w.answered <= each.invoked]
            since = max(puts, default=each.invoked)
            until = min((w.invoked for w in writes if w.kind == REMOVE and w.invoked >= since), default=NEVER)
        for place in each.ranges:
            last = place.address + place.size
            holds.add(_Hold(place.endpoint, place.address, last, since, until, each.key, each.kind))
    return holds


def _overlaps(by_key):
    holds = set().union(*(_holds(operations) for operations in by_key.values()))
    found, open_holds = {}, []
    for hold in sorted(holds, key=lambda each: (each.endpoint, each.first, each.last)):
        open_holds = [each for each in open_holds if each.endpoint == hold.endpoint and each.last > hold.first]
        for other in open_holds:
            if other.key != hold.key and max(other.since, hold.since) < min(other.until, hold.until):
                text = f"{hold.endpoint} {hold.first:#x}-{hold.last:#x} is also of {other.key} ({other.kind})"
                found[hold.key, other.key] = Violation("overlap", hold.key, f"{text}, {hold.kind}")
        open_holds.append(hold)
    return list(found.values())
