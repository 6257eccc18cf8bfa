"""Decides whether a history could have happened in a store that loses nothing and never gives bytes out twice.

What it finds, by name:

* `lost`: an object whose put was acknowledged is not there, and no client removed it;
* `unready`: such an object is there, but cannot be read;
* `undone`: a removal was acknowledged, and the object is there;
* `phantom`: an object that was never written, or whose write was refused;
* `wrong`: other bytes than those written, or other places than those promised;
* `back`: a change in doubt was seen, and later it had not happened;
* `overlap`: two live objects or reservations share a byte;
* `count`: an answer about many objects that counts others than those that were there.

A change whose outcome is unknown may have happened or not, at any time until a client sees which.

Where memory is short (`Evicting`), an object may also be evicted: not one with a hard pin, not before memory is short,
not while a reader has its lease, a group as a whole or not at all (`torn`), and what is gone stays gone.
"""

from collections import defaultdict
from dataclasses import dataclass

from history import (
    ABSENT,
    MOVE,
    NEVER,
    NOT_READY,
    OK,
    PUT,
    READ,
    REFUSED,
    REMOVE,
    RESERVE,
    SOMETHING,
    UNKNOWN,
    UPSERT,
    WRITES,
)


@dataclass(frozen=True)
class Violation:
    kind: str
    key: str
    text: str


@dataclass(frozen=True)
class Evicting:
    """A store that is smaller than what is put into it. All objects have the same size; a lease begins with each read."""

    capacity_bytes: int
    object_bytes: int
    lease_seconds: float
    high_watermark: float = 0.9

    def short_since(self, operations):
        """The first moment at which memory can have been short: a put was refused, or all that were begun until then,
        none of them gone yet, take more than the watermark."""
        puts = sorted((each for each in operations if each.kind in (PUT, RESERVE)), key=lambda each: each.invoked)
        enough = self.capacity_bytes * self.high_watermark
        for number, each in enumerate(puts, start=1):
            if each.outcome == REFUSED or number * self.object_bytes > enough:
                return each.invoked
        return NEVER


def check(history, evicting=None):
    """All violations in the history."""
    by_key = defaultdict(list)
    for each in history.operations:
        by_key[each.key].append(each)
    found = {}
    short_since = evicting.short_since(history.operations) if evicting else NEVER
    for key, operations in by_key.items():
        for each in _check_key(key, operations, evicting, short_since):
            # One of a kind for each key: how often it was looked at does not count.
            found.setdefault((each.kind, key), each)
    torn = _torn_groups(by_key) if evicting else []
    return [*found.values(), *_overlaps(by_key, evicting), *torn, *history.complaints]


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
    writes = sorted((each for each in operations if each.kind in WRITES), key=lambda each: each.invoked)
    for earlier, later in zip(writes, writes[1:]):
        # The rules of history.py; breaking them is an error of the test, not of the store.
        assert earlier.answered <= later.invoked, f"two writes of {earlier.key} at once"
        assert earlier.outcome in (OK, REFUSED), f"{earlier.key} written again after an unknown outcome"
    return writes


def _check_key(key, operations, evicting=None, short_since=NEVER):
    writes = _writes(operations)
    evictable = evicting and not any(each.pinned for each in writes)
    # states[n]: what the key may hold when the first n writes have been made.
    states = [{ABSENT}]
    for each in writes:
        if each.outcome == OK:
            states.append({_effect(each)})
        elif each.outcome == REFUSED:
            states.append(states[-1])
        else:
            states.append(states[-1] | {_effect(each)} | ({NOT_READY} if each.kind == UPSERT else set()))

    found, reads = [], [each for each in operations if each.kind == READ and each.outcome == OK]
    for read in reads:
        first = sum(each.answered < read.invoked and each.outcome in (OK, REFUSED) for each in writes)
        last = sum(each.invoked <= read.answered for each in writes)
        allowed = set().union(*states[first : last + 1])
        # An object cannot be read while it is replaced.
        if any(each.kind == UPSERT and each.outcome != REFUSED for each in writes[first:last]):
            allowed.add(NOT_READY)
        if evictable and read.value is ABSENT and read.answered >= short_since:
            allowed.add(ABSENT)
        if not _fits(read.value, allowed):
            found.append(Violation(*_name(read, writes[:last], states[first])))
    if evictable:
        return [*found, *_evicted_wrongly(evicting, reads)]
    return found + _went_back(writes, states, reads)


def _evicted_wrongly(evicting, reads):
    """A read that found the object has its lease from its own time on; what was gone does not come back. Keys that are
    evicted are put once."""
    there = [each for each in reads if each.value is not ABSENT and each.value is not NOT_READY]
    gone = [each for each in reads if each.value is ABSENT]
    for read in gone:
        leases = [each for each in there if each.answered < read.invoked]
        last = max((each.invoked for each in leases), default=None)
        if last is not None and read.answered < last + evicting.lease_seconds:
            text = f"read at {last:.3f}, gone at {read.answered:.3f}, before its lease of {evicting.lease_seconds} s ended"
            yield Violation("lost", read.key, text)
        again = next((each for each in there if each.invoked > read.answered), None)
        if leases and again:
            yield Violation("back", read.key, f"gone at {read.answered:.3f}, there at {again.invoked:.3f}")


def _torn_groups(by_key):
    """Groups whose members were all acknowledged, of which the last look found some and missed others."""
    groups = defaultdict(list)
    for operations in by_key.values():
        put = next((each for each in operations if each.group and each.kind == PUT), None)
        reads = [each for each in operations if each.kind == READ and each.outcome == OK]
        if put and reads:
            last = max(reads, key=lambda each: each.invoked)
            groups[put.group].append((put.outcome == OK, last.value is not ABSENT, put.key))
    for group, members in groups.items():
        if all(acknowledged for acknowledged, _, _ in members) and len({there for _, there, _ in members}) > 1:
            missing = [key for _, there, key in members if not there]
            yield Violation("torn", group, f"evicted in part: {', '.join(missing)} of {len(members)}")


def _effect(write):
    """What a key holds after a write. A copy or move that was not begun for certain, or never ended, changes nothing."""
    return ABSENT if write.kind == REMOVE else write.value


def _fits(value, allowed):
    if value is NOT_READY:
        # That is how a write under way looks to others.
        return ABSENT in allowed or NOT_READY in allowed
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
    """A write in doubt, once seen, has happened: no later read may find it undone."""
    if not writes or writes[-1].outcome in (OK, REFUSED):
        return []
    new = _effect(writes[-1])
    old = states[-2]
    if new is None or new in old:
        return []
    # Of an object whose places are replaced the old ones are given up when that begins.
    begun = {new, NOT_READY} if writes[-1].kind == UPSERT else {new}

    def sees(read, values):
        # One of the two is nothing: a put is made where nothing is.
        return ABSENT not in values if read.value is SOMETHING else read.value in values

    seen = min((each.answered for each in reads if sees(each, begun)), default=NEVER)
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


def _holds(operations, evicting=None):
    """A range belongs to its key from the answer that named it until a client asks to remove, replace or move the object.
    A reservation that was never ended stays for longer than any test runs. What can be evicted belongs to its key until its
    put ends, and as long as a reader has its lease, or finds it."""
    writes = _writes(operations)
    kept_until = _kept_until(operations, evicting)
    frees = [each.invoked for each in writes if each.kind in (REMOVE, UPSERT, MOVE)]
    holds = set()
    for each in operations:
        if not each.ranges or (each.kind == READ and each.outcome != OK):
            continue
        # A write that was refused after its reservation has given the bytes back.
        if each.kind in WRITES and each.outcome == REFUSED:
            continue
        since = min(each.told, each.answered)
        if each.kind == RESERVE:
            until = NEVER
        elif each.kind in WRITES:
            until = min((moment for moment in frees if moment > each.invoked), default=NEVER)
        else:
            # Which of two places a read has found that overlaps a change is not known.
            if any(w.kind != PUT and w.invoked <= each.answered and w.answered > each.invoked for w in writes):
                continue
            made = [w.answered for w in writes if w.kind != REMOVE and w.outcome == OK and w.answered <= each.invoked]
            # What a read finds after a change in doubt may be of that change, and not of the one before it.
            doubted = any(w.outcome == UNKNOWN and w.invoked <= each.answered for w in writes)
            since = each.invoked if doubted else max(made, default=each.invoked)
            until = min((moment for moment in frees if moment >= since), default=NEVER)
        if each.kind != RESERVE:
            until = min(until, kept_until)
        for place in each.ranges:
            last = place.address + place.size
            holds.add(_Hold(place.endpoint, place.address, last, since, until, each.key, each.kind))
    return holds


def _kept_until(operations, evicting):
    if not evicting or any(each.pinned for each in operations):
        return NEVER
    # A put in doubt may have been made, and evicted before a client saw it.
    puts = [each for each in operations if each.kind == PUT]
    kept = [min(each.ending, each.answered) if each.outcome == OK else each.told for each in puts]
    there = [each for each in operations if each.kind == READ and each.outcome == OK and each.ranges]
    return max([*kept, *(max(each.answered, each.invoked + evicting.lease_seconds) for each in there)], default=NEVER)


def _overlaps(by_key, evicting=None):
    holds = set().union(*(_holds(operations, evicting) for operations in by_key.values()))
    found, open_holds = {}, []
    for hold in sorted(holds, key=lambda each: (each.endpoint, each.first, each.last)):
        open_holds = [each for each in open_holds if each.endpoint == hold.endpoint and each.last > hold.first]
        for other in open_holds:
            if other.key != hold.key and max(other.since, hold.since) < min(other.until, hold.until):
                text = f"{hold.endpoint} {hold.first:#x}-{hold.last:#x} is also of {other.key} ({other.kind})"
                found[hold.key, other.key] = Violation("overlap", hold.key, f"{text}, {hold.kind}")
        open_holds.append(hold)
    return list(found.values())
