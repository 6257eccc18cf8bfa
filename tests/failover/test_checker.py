"""The checker itself: it accepts what may happen, and finds each kind of what may not."""

import pytest

from checker import check
from history import (
    ABSENT,
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
    History,
    Operation,
    Range,
)


def op(kind, invoked, answered, outcome=OK, value=None, key="k", ranges=(), actor="a"):
    return Operation(actor, kind, key, invoked, answered, outcome, value, tuple(ranges))


def put(invoked, answered, outcome=OK, value="v", **more):
    return op(PUT, invoked, answered, outcome, value, **more)


def remove(invoked, answered, outcome=OK, **more):
    return op(REMOVE, invoked, answered, outcome, **more)


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
