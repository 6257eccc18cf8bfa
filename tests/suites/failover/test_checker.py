"""The checker itself: it accepts what may happen, and finds each kind of what may not."""

import pytest

from checker import Evicting, Violation, check
from history import (
    ABSENT,
    COPY,
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
    History,
    Operation,
    Range,
)


def op(kind, invoked, answered, outcome=OK, value=None, key="k", ranges=(), actor="a", **more):
    return Operation(actor, kind, key, invoked, answered, outcome, value, tuple(ranges), **more)


def put(invoked, answered, outcome=OK, value="v", **more):
    return op(PUT, invoked, answered, outcome, value, **more)


def remove(invoked, answered, outcome=OK, **more):
    return op(REMOVE, invoked, answered, outcome, **more)


def upsert(invoked, answered, outcome=OK, value="w", **more):
    return op(UPSERT, invoked, answered, outcome, value, **more)


def copy(invoked, answered, outcome=OK, value="vv", **more):
    return op(COPY, invoked, answered, outcome, value, **more)


def move(invoked, answered, outcome=OK, value="w", **more):
    return op(MOVE, invoked, answered, outcome, value, **more)


def read(invoked, answered, value, **more):
    return op(READ, invoked, answered, OK, value, **more)


def place(address, size=10, endpoint="e:1"):
    return Range(endpoint, address, size)


ALLOWED = {
    "nothing at all": [],
    "an absent key": [read(1, 2, ABSENT)],
    "what was put": [put(1, 2), read(3, 4, "v")],
    "something there": [put(1, 2), read(3, 4, SOMETHING)],
    "removed": [put(1, 2), remove(3, 4), read(5, 6, ABSENT)],
    "put again": [put(1, 2), remove(3, 4), put(5, 6, value="w"), read(7, 8, "w")],
    "during a put": [put(1, 5), read(2, 3, ABSENT, actor="b"), read(3, 4, "v", actor="b")],
    "during a removal": [put(1, 2), remove(3, 7), read(4, 5, "v", actor="b"), read(5, 6, ABSENT, actor="b")],
    "a refused put": [put(1, 2, REFUSED), read(3, 4, ABSENT)],
    "a refused removal": [put(1, 2), remove(3, 4, REFUSED), read(5, 6, "v")],
    "an unknown put that happened": [put(1, 2, UNKNOWN), read(3, 4, "v"), read(5, 6, "v")],
    "an unknown put that did not": [put(1, 2, UNKNOWN), read(3, 4, ABSENT), read(5, 6, ABSENT)],
    "an unknown put that happened late": [put(1, 2, UNKNOWN), read(3, 4, ABSENT), read(5, 6, "v")],
    "an unknown removal": [put(1, 2), remove(3, 4, UNKNOWN), read(5, 6, "v"), read(7, 8, ABSENT)],
    "reads at once that differ": [put(1, 2, UNKNOWN), read(3, 6, "v", actor="b"), read(4, 5, ABSENT, actor="c")],
    "a put under way": [put(1, 2, UNKNOWN), read(3, 4, NOT_READY)],
    "a read without answer": [put(1, 2), op(READ, 3, NEVER, UNKNOWN)],
    "neighbours": [put(1, 2, ranges=[place(0)]), put(1, 2, key="l", ranges=[place(10)])],
    "another memory": [put(1, 2, ranges=[place(0)]), put(1, 2, key="l", ranges=[place(0, endpoint="e:2")])],
    "bytes used again after a removal": [
        put(1, 2, ranges=[place(0)]),
        remove(3, 4),
        put(4, 5, key="l", ranges=[place(0)]),
    ],
    "bytes given back by a refused put": [
        put(1, 2, REFUSED, ranges=[place(0)]),
        put(3, 4, key="l", ranges=[place(0)]),
    ],
    "the same place seen twice": [put(1, 2, ranges=[place(0)]), read(3, 4, "v", ranges=[place(0)])],
    "replaced": [put(1, 2), upsert(3, 4), read(5, 6, "w")],
    "while it is replaced": [put(1, 2), upsert(3, 7), read(4, 5, NOT_READY, actor="b"), read(5, 6, "v", actor="b")],
    "a replacement in doubt": [
        put(1, 2),
        upsert(3, NEVER, UNKNOWN),
        read(5, 6, "v"),
        read(7, 8, NOT_READY),
        read(9, 10, "w"),
    ],
    "a replacement in doubt that was not begun": [put(1, 2), upsert(3, NEVER, UNKNOWN, None), read(5, 6, "v")],
    "a refused replacement": [put(1, 2), upsert(3, 4, REFUSED), read(5, 6, "v")],
    "replaced in place, in doubt": [put(1, 2), upsert(3, NEVER, UNKNOWN, "v"), read(5, 6, NOT_READY), read(7, 8, "v")],
    "copied": [put(1, 2), copy(3, 4), read(5, 6, "vv")],
    "a copy in doubt": [put(1, 2), copy(3, NEVER, UNKNOWN), read(5, 6, "v"), read(7, 8, "vv")],
    "moved": [put(1, 2, ranges=[place(0)]), move(3, 4), put(4, 5, key="l", ranges=[place(0)]), read(5, 6, "w")],
    "bytes used again after a replacement": [
        put(1, 2, ranges=[place(0)]),
        upsert(3, 4, ranges=[place(50)]),
        put(5, 6, key="l", ranges=[place(0)]),
    ],
    "places of a replacement in doubt that were of another object before": [
        put(1, 2, ranges=[place(0)]),
        put(3, 4, key="l", ranges=[place(50)]),
        remove(5, 6, key="l"),
        upsert(7, 8, UNKNOWN, ranges=[place(50)]),
        read(9, 10, "w", ranges=[place(50)], actor="b"),
    ],
    "a read while its object moves": [
        put(1, 2, ranges=[place(0)]),
        move(3, 6, ranges=[place(50)]),
        read(3, 7, "v", ranges=[place(0)], actor="b"),
        put(6, 7, key="l", ranges=[place(0)]),
    ],
}

FORBIDDEN = {
    "lost": [put(1, 2), read(3, 4, ABSENT)],
    "lost after it was seen": [put(1, 2), read(3, 4, "v"), read(5, 6, ABSENT)],
    "lost after a refused removal": [put(1, 2), remove(3, 4, REFUSED), read(5, 6, ABSENT)],
    "lost, seen by another": [put(1, 2), read(3, 4, ABSENT, actor="b")],
    "unready": [put(1, 2), read(3, 4, NOT_READY)],
    "undone": [put(1, 2), remove(3, 4), read(5, 6, "v")],
    "undone, seen as something": [put(1, 2), remove(3, 4), read(5, 6, SOMETHING)],
    "phantom": [read(1, 2, "v")],
    "phantom of a refused put": [put(1, 2, REFUSED), read(3, 4, "v")],
    "phantom before its put": [read(1, 2, "v", actor="b"), put(3, 4)],
    "wrong": [put(1, 2), read(3, 4, "w")],
    "wrong: the value before": [put(1, 2), remove(3, 4), put(5, 6, value="w"), read(7, 8, "v")],
    "back: a put": [put(1, 2, UNKNOWN), read(3, 4, "v"), read(5, 6, ABSENT)],
    "back: a put seen as something": [put(1, 2, UNKNOWN), read(3, 4, SOMETHING), read(5, 6, ABSENT)],
    "back: a removal": [put(1, 2), remove(3, 4, UNKNOWN), read(5, 6, ABSENT), read(7, 8, "v")],
    "back: a removal, seen as something": [put(1, 2), remove(3, 4, UNKNOWN), read(5, 6, ABSENT), read(7, 8, SOMETHING)],
    "overlap": [put(1, 2, ranges=[place(0)]), put(1, 2, key="l", ranges=[place(9)])],
    "overlap with one far wider": [
        put(1, 2, ranges=[place(0, 100)]),
        put(1, 2, key="l", ranges=[place(10)]),
        put(1, 2, key="m", ranges=[place(200)]),
        put(1, 2, key="n", ranges=[place(90)]),
    ],
    "overlap with an unknown put": [put(1, 2, UNKNOWN, ranges=[place(0)]), put(3, 4, key="l", ranges=[place(0)])],
    "overlap with a reservation": [
        op(RESERVE, 1, 2, ranges=[place(0)]),
        put(3, 4, key="l", ranges=[place(0)]),
    ],
    "overlap seen by reads": [
        put(1, 2),
        put(1, 2, key="l"),
        read(3, 4, "v", ranges=[place(0)]),
        read(3, 4, "v", key="l", ranges=[place(5)]),
    ],
    "lost after a replacement": [put(1, 2), upsert(3, 4), read(5, 6, ABSENT)],
    "wrong: the replaced one": [put(1, 2), upsert(3, 4), read(5, 6, "v")],
    "unready after a replacement": [put(1, 2), upsert(3, 4), read(5, 6, NOT_READY)],
    "unready after a refused replacement": [put(1, 2), upsert(3, 4, REFUSED), read(5, 6, NOT_READY)],
    "lost after a replacement in doubt": [put(1, 2), upsert(3, NEVER, UNKNOWN), read(5, 6, ABSENT)],
    "back from a replacement": [put(1, 2), upsert(3, NEVER, UNKNOWN), read(5, 6, "w"), read(7, 8, "v")],
    "back from a replacement that was begun": [
        put(1, 2),
        upsert(3, NEVER, UNKNOWN),
        read(5, 6, NOT_READY),
        read(7, 8, "v"),
    ],
    "wrong: a copy that is gone": [put(1, 2), copy(3, 4), read(5, 6, "v")],
    "wrong: a copy that was refused": [put(1, 2), copy(3, 4, REFUSED), read(5, 6, "vv")],
    "back from a copy": [put(1, 2), copy(3, NEVER, UNKNOWN), read(5, 6, "vv"), read(7, 8, "v")],
    "wrong: the source of a move": [put(1, 2), move(3, 4), read(5, 6, "v")],
    "undone after a replacement": [put(1, 2), upsert(3, 4), remove(5, 6), read(7, 8, "w")],
    "overlap with the target of a copy in doubt": [
        put(1, 2),
        copy(3, NEVER, UNKNOWN, ranges=[place(0)], told=4),
        put(5, 6, key="l", ranges=[place(0)]),
    ],
    "overlap with a put in doubt that was told its place": [
        put(1, NEVER, UNKNOWN, ranges=[place(0)], told=2),
        put(5, 6, key="l", ranges=[place(0)]),
    ],
    "overlap with what a move brought": [
        put(1, 2, ranges=[place(0)]),
        move(3, 4, ranges=[place(50)], told=3.5),
        put(5, 6, key="l", ranges=[place(50)]),
    ],
    "overlap before the removal": [
        put(1, 2, ranges=[place(0)]),
        put(2, 3, key="l", ranges=[place(0)]),
        remove(4, 5),
    ],
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_may_happen(name):
    assert check(History(ALLOWED[name])) == []


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_may_not(name):
    found = {each.kind for each in check(History(FORBIDDEN[name]))}
    assert found == {name.split()[0].strip(",:")}


@pytest.mark.parametrize(
    "operations",
    [[put(1, 4), remove(2, 3)], [put(1, 2, UNKNOWN), remove(3, 4)]],
    ids=["two writes at once", "a write after an unknown one"],
)
def test_histories_that_the_tests_must_not_make(operations):
    with pytest.raises(AssertionError):
        check(History(operations))


# Ten objects fit; nine of them are more than the watermark allows.
EVICTING = Evicting(capacity_bytes=100, object_bytes=10, lease_seconds=5, high_watermark=0.85)


def crowd(count, invoked=1):
    """So many puts of other keys."""
    return [put(invoked, invoked + 1, key=f"other-{number}") for number in range(count)]


MAY_BE_EVICTED = {
    "a put that was refused": [put(1, 2), put(3, 4, REFUSED, key="l"), read(20, 21, ABSENT)],
    "more than the watermark": [put(1, 2), *crowd(8, 3), read(20, 21, ABSENT)],
    "after its lease": [put(1, 2), *crowd(8, 3), read(10, 11, "v"), read(16, 17, ABSENT)],
    "its bytes are used again": [
        put(1, 2, ranges=[place(0)]),
        *crowd(8, 3),
        read(5, 6, "v", ranges=[place(0)]),
        put(12, 13, key="l", ranges=[place(0)]),
    ],
    "its bytes are used again before the end of its put is answered": [
        *crowd(9),
        put(3, 6, ranges=[place(0)], told=4, ending=4.5),
        put(4.7, 7, key="l", ranges=[place(0)], told=5, ending=6),
    ],
    "a put in doubt": [
        put(1, NEVER, UNKNOWN, ranges=[place(0)], told=1.5),
        *crowd(8, 3),
        read(5, 6, "v", ranges=[place(0)]),
        put(12, 13, key="l", ranges=[place(0)]),
        read(20, 21, ABSENT),
    ],
    "a group as a whole": [
        *crowd(8),
        put(1, 2, group="g"),
        put(1, 2, group="g", key="l"),
        read(20, 21, ABSENT),
        read(20, 21, ABSENT, key="l"),
    ],
}
MAY_NOT_BE_EVICTED = {
    "lost while memory is free": [put(1, 2), *crowd(7, 3), read(20, 21, ABSENT)],
    "lost before memory was short": [put(1, 2), read(4, 5, ABSENT), *crowd(8, 7)],
    "lost under a lease": [put(1, 2), *crowd(8, 3), read(10, 11, "v"), read(13, 14, ABSENT)],
    "lost with a hard pin": [put(1, 2, pinned=True), *crowd(8, 3), read(20, 21, ABSENT)],
    "back after it was evicted": [put(1, 2), *crowd(8, 3), read(5, 6, "v"), read(20, 21, ABSENT), read(22, 23, "v")],
    "undone, which is no eviction": [put(1, 2), *crowd(8, 3), remove(5, 6), read(7, 8, "v")],
    "lost under a lease, though its put was in doubt": [
        put(1, NEVER, UNKNOWN),
        *crowd(8, 3),
        read(10, 11, "v"),
        read(13, 14, ABSENT),
    ],
    "overlap with what a reader holds": [
        put(1, 2, ranges=[place(0)]),
        *crowd(8, 3),
        read(5, 6, "v", ranges=[place(0)]),
        put(8, 9, key="l", ranges=[place(0)], told=8.5),
    ],
    "overlap with a put that has not ended": [
        *crowd(9),
        put(3, 6, ranges=[place(0)], told=4, ending=5.5),
        put(4.7, 7, key="l", ranges=[place(0)], told=5, ending=6),
    ],
    "torn": [
        *crowd(8),
        put(1, 2, group="g"),
        put(1, 2, group="g", key="l"),
        read(20, 21, ABSENT),
        read(20, 21, "v", key="l"),
    ],
}


@pytest.mark.parametrize("name", MAY_BE_EVICTED)
def test_what_may_be_evicted(name):
    assert check(History(MAY_BE_EVICTED[name]), EVICTING) == []


@pytest.mark.parametrize("name", MAY_NOT_BE_EVICTED)
def test_what_may_not_be_evicted(name):
    found = {each.kind for each in check(History(MAY_NOT_BE_EVICTED[name]), EVICTING)}
    assert found == {name.split()[0].strip(",:")}


def test_what_an_actor_saw_itself_is_told():
    history = History()
    history.complaints.append(Violation("count", "RemoveAll", "3 objects removed, 4 to 4 were there"))
    assert [each.kind for each in check(history)] == ["count"]
