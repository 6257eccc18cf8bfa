"""What was asked and what was answered, by everybody, with times.

An operation is `OK` when its success was acknowledged, `REFUSED` when an error said that nothing happened, and
`UNKNOWN` otherwise: no answer, or one that leaves it open. Times are of the monotonic clock, which all processes of one
machine share.

Every key is written by one actor only, and never again after a write with unknown outcome. So a key's writes stand in
one order, of which at most the last is in doubt, and the checker needs no search.

A put makes an object where none is. An upsert replaces one, which cannot be read meanwhile. A copy or a move changes where
an object is. `value` of a raw object is the set of its places.
"""

import threading
import time
from dataclasses import dataclass, field

OK, REFUSED, UNKNOWN = "ok", "refused", "unknown"
PUT, REMOVE, READ, RESERVE = "put", "remove", "read", "reserve"
UPSERT, COPY, MOVE = "upsert", "copy", "move"
WRITES = (PUT, REMOVE, UPSERT, COPY, MOVE)
# How the names of the metadata server's entries begin, which are not objects.
METADATA = "metadata-"


class _Named:
    def __init__(self, name):
        self._name = name

    def __repr__(self):
        return self._name


# What a read found: nothing; something of which it was not told what; something that cannot be read.
ABSENT, SOMETHING, NOT_READY = _Named("ABSENT"), _Named("SOMETHING"), _Named("NOT_READY")
NEVER = float("inf")


@dataclass(frozen=True)
class Range:
    """Bytes in a client's memory."""

    endpoint: str
    address: int
    size: int


@dataclass
class Operation:
    """One operation on one key. `value` is what was written, or what a read found; `ranges` are the bytes that the
    master named for it, if it was asked."""

    actor: str
    kind: str
    key: str
    invoked: float
    answered: float = NEVER
    outcome: str = UNKNOWN
    value: object = None
    ranges: tuple = ()
    # When the master named the ranges, which are reserved from then on, whatever becomes of the operation.
    told: float = NEVER
    # When the end of a put was asked for: the object can be read from then on, and evicted before its client has the answer.
    ending: float = NEVER
    # Of a put: never to be evicted; of a group, which is evicted as a whole.
    pinned: bool = False
    group: str | None = None


@dataclass
class History:
    """All operations of a run; filled by many threads. `complaints` are violations that an actor saw in one answer."""

    operations: list = field(default_factory=list)
    complaints: list = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, actor, kind, key, value=None):
        operation = Operation(actor, kind, key, time.monotonic(), value=value)
        with self._lock:
            self.operations.append(operation)
        return operation

    def acknowledged(self):
        """How many changes were acknowledged."""
        return sum(each.outcome == OK and each.kind in WRITES for each in self.operations)

    def keys(self):
        return sorted({each.key for each in self.operations})


def reserve(operation, ranges):
    """Notes the bytes that the master named at the start of a write."""
    operation.ranges = tuple(ranges)
    operation.told = time.monotonic()


def finish(operation, outcome, value=None, ranges=None):
    """Notes the answer; what is not given stays as it was."""
    operation.answered = time.monotonic()
    operation.outcome = outcome
    if value is not None:
        operation.value = value
    if ranges is not None:
        operation.ranges = tuple(ranges)
    return operation
