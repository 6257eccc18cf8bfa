"""The differences that are kept on purpose.

Each one is demonstrated by ``test_deliberate.py`` and explained to users in
``docs/compatibility.md`` under the same name. A difference that is not on this
list fails the suite, and so does one that is, unless it says when it may be
met in passing: scenarios and walks stay away from the others.
"""

from collections.abc import Callable
from dataclasses import dataclass

from struct_pack import Err


def _never(call, left, right, copies):
    return False


@dataclass(frozen=True)
class Deliberate:
    """One difference: its name in the documentation, and when it applies."""

    name: str
    reason: str
    #: of a call, what the reference and we made of it, and the copies that are under way
    applies: Callable = _never


def _removal_beside_a_copy(call, left, right, copies):
    if call.name != "BatchRemove" or not isinstance(right, list) or len(left) != len(right):
        return False
    return all(
        theirs == ours or (theirs == Err(-703) and ours == Err(-708) and copies.stranded(key))
        for key, theirs, ours in zip(call.arguments[0], left, right)
    )


DELIBERATE = [
    Deliberate(
        "long-keys",
        "a key travels in a log record, and records are bounded: keys over 4 KiB are refused with -600",
    ),
    Deliberate(
        "long-texts",
        "so do the names of groups and segments, the targets of a copy and the message of a task",
    ),
    Deliberate(
        "costly-patterns",
        "the steps and the depth of a regular expression are bounded, so that no request keeps the others waiting",
    ),
    Deliberate(
        "offload-notices",
        "with offloading off a notice about an offloaded object is acknowledged and changes nothing",
    ),
    Deliberate(
        "non-utf8-task-keys",
        "a task's payload is JSON, which cannot carry such a key: -600 instead of an exception",
    ),
    Deliberate(
        "absurd-replica-counts",
        "a replica count that no list can hold is served as far as segments go instead of raising an exception",
    ),
    Deliberate(
        "foreign-unmount",
        "a client whose last segment was unmounted under another client's id has no segments, as otherwise",
    ),
    Deliberate(
        "failed-upserts",
        "an upsert that finds no memory leaves the object that is there as it was",
    ),
    Deliberate(
        "removal-beside-a-copy",
        "a copy's target in a segment that is gone does not count, for a batch of removals as for a single one",
        _removal_beside_a_copy,
    ),
    Deliberate(
        "moves-of-the-last-copy",
        "a move whose target lost its copy meanwhile leaves the source, the only copy there is",
    ),
    Deliberate(
        "pending-slots",
        "a task that ended before it was fetched no longer counts as waiting",
    ),
    Deliberate(
        "ended-tasks",
        "an ended task beyond those that are kept is forgotten at once, not by a sweep",
    ),
    Deliberate(
        "stale-grace-deadlines",
        "the end of a grace period concerns the mount it was asked for, not a later one of the same segment",
    ),
    Deliberate(
        "writes-into-unmounted-memory",
        "memory that is mounted again leaves out what a writer from before may still be writing to",
    ),
    Deliberate(
        "overlapping-memory",
        "no byte of an endpoint is given out twice: one client's overlap is refused, another's replaces what is there",
    ),
    Deliberate(
        "many-preferred-segments",
        "more than 1,024 preferred segments are refused: all are looked for while everybody else waits",
    ),
]


def deliberate(call, left, right, copies):
    """The entry that covers this difference, if any."""
    return next((entry for entry in DELIBERATE if entry.applies(call, left, right, copies)), None)
