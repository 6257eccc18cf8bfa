"""The differences that are kept on purpose.

Each one is demonstrated by ``test_deliberate.py`` and explained to users in
``docs/compatibility.md`` under the same name. A difference that is not on this
list fails the suite.
"""

from collections.abc import Callable
from dataclasses import dataclass

from struct_pack import Err


@dataclass(frozen=True)
class Deliberate:
    """One difference: its name in the documentation, and when it applies."""

    name: str
    reason: str
    applies: Callable


def _false(call, left, right):
    return False


DELIBERATE = [
    Deliberate(
        "long-keys",
        "a key travels in a log record, and records are bounded: keys over 4 KiB are refused with -600",
        lambda call, left, right: any(_length(key) > 4096 for key in call.keys() or ()),
    ),
    Deliberate(
        "offload-notices",
        "with offloading off a notice about an offloaded object is acknowledged and changes nothing",
        _false,
    ),
    Deliberate(
        "non-utf8-task-keys",
        "a task's payload is JSON, which cannot carry such a key: -600 instead of an exception",
        lambda call, left, right: call.name in ("CreateCopyTask", "CreateMoveTask")
        and left == ("rpc error", 10, "illegal unicode character")
        and not _is_utf8(call.arguments[0]),
    ),
    Deliberate(
        "absurd-replica-counts",
        "a replica count that no list can hold is served as far as segments go instead of raising an exception",
        lambda call, left, right: call.name in ("PutStart", "UpsertStart")
        and left == ("rpc error", 10, "vector::reserve"),
    ),
    Deliberate(
        "foreign-unmount",
        "a client whose last segment was unmounted under another client's id has no segments, as otherwise",
        _false,
    ),
    Deliberate(
        "failed-upserts",
        "an upsert that finds no memory leaves the object that is there as it was",
        _false,
    ),
    Deliberate(
        "removal-beside-a-copy",
        "a copy's target in a segment that is gone does not count, at once and not only when it is swept away",
        lambda call, left, right: call.name in ("Remove", "BatchRemove") and _incomplete(left) == _incomplete(right),
    ),
    Deliberate(
        "pending-slots",
        "a task that ended before it was fetched no longer counts as waiting",
        _false,
    ),
    Deliberate(
        "stale-grace-deadlines",
        "the end of a grace period concerns the mount it was asked for, not a later one of the same segment",
        _false,
    ),
    Deliberate(
        "writes-into-unmounted-memory",
        "memory that is mounted again leaves out what a writer from before may still be writing to",
        _false,
    ),
]


def deliberate(call, left, right):
    """The entry that covers this difference, if any."""
    return next((entry for entry in DELIBERATE if entry.applies(call, left, right)), None)


def _incomplete(answer):
    """An answer with both refusals of a removal beside a copy taken for one."""
    answers = answer if isinstance(answer, list) else [answer]
    return [Err(-708) if each == Err(-703) else each for each in answers]


def _length(key):
    return len(key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape"))


def _is_utf8(key):
    try:
        (key if isinstance(key, bytes) else key.encode("utf-8", "surrogateescape")).decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
