"""Checks the addresses that one master hands out.

Addresses are the one thing that is not compared between masters, so they are
checked against the rule behind them: every range lies inside a segment that
was mounted, and no two live ranges share a byte. Bytes whose writer may still
be writing (replaced by an upsert, moved away) count as live until the segment
goes: the release timeout of a random walk is longer than the walk.

A range is forgotten when an answer says that it was freed, or that the object
is not there. What a removal of many took is not said: then every complete
object is forgotten, so an overlap can be missed but none is invented.
"""

from messages import describe_replica
from struct_pack import Err, Ok

_STARTS = {"PutStart", "UpsertStart"}
_BATCH_STARTS = {"BatchPutStart", "BatchUpsertStart"}
_FREES_ITS_KEY = {
    "PutRevoke",
    "UpsertRevoke",
    "Remove",
    "CopyEnd",
    "CopyRevoke",
    "DynamicReplicaCopyEnd",
    "DynamicReplicaCopyRevoke",
    "MoveEnd",
    "MoveRevoke",
}
_FREES_EACH_KEY = {"BatchPutRevoke", "BatchUpsertRevoke", "BatchRemove"}
_ENDS = {"PutEnd", "UpsertEnd", "BatchPutEnd", "BatchUpsertEnd"}
# The object is not there; a source or a target of its copy is not.
_GONE = {-704, -712}


class Ledger:
    """The ranges one master is known to have given out."""

    def __init__(self):
        self._segments = {}
        self._identities = {}
        self._live = {}
        self._abandoned = []
        #: keys whose write was begun, and not ended as far as is known: no removal of many takes those
        self._writing = set()

    def observe(self, call, answer):
        """Take note of one call; returns complaints about its answer."""
        name, arguments = call.name, call.arguments
        if name == "MountSegment" and isinstance(answer, Ok):
            self._mounted([arguments[0]])
        elif name == "ReMountSegment" and isinstance(answer, Ok):
            self._mounted(arguments[0])
        elif name == "UnmountSegment" and isinstance(answer, Ok):
            self._going(arguments[0])
            self._identities.pop(arguments[0], None)
        elif name == "GracefulUnmountSegment" and isinstance(answer, Ok):
            self._going(arguments[0])
        elif name in _STARTS:
            return self._started(name, arguments[1], answer)
        elif name in _BATCH_STARTS:
            return [
                complaint
                for key, item in zip(arguments[1], answer)
                for complaint in self._started(name, key, item)
            ]
        elif name in ("CopyStart", "DynamicReplicaCopyStart") and isinstance(answer, Ok):
            return self._added(arguments[1], answer.value[1])
        elif name == "MoveStart" and isinstance(answer, Ok) and answer.value[1] is not None:
            return self._added(arguments[1], [answer.value[1]])
        elif name in _ENDS:
            self._writing -= call.keys()
        elif name in _FREES_ITS_KEY:
            self._freed([(key, answer) for key in call.keys()])
        elif name in _FREES_EACH_KEY:
            self._freed(zip(arguments[0 if name == "BatchRemove" else 1], answer))
        elif name == "BatchReplicaClear" and isinstance(answer, Ok):
            self._freed([(key, answer) for key in answer.value])
        elif name in ("RemoveAll", "RemoveByRegex") and answer not in (0, Ok(0)) and not isinstance(answer, Err):
            self._live = {key: ranges for key, ranges in self._live.items() if key in self._writing}
        elif name == "GetReplicaListByRegex" and isinstance(answer, Ok):
            return self._census(answer.value)
        return []

    def has_mounted(self, identity):
        """Whether a segment of this id was mounted, and not unmounted since."""
        return identity in self._identities

    def forget(self):
        """Anything may have been freed: an eviction, a client that expired."""
        self._live.clear()
        self._writing.clear()
        self._abandoned.clear()

    def _freed(self, answers):
        for key, answer in answers:
            if isinstance(answer, Ok) or answer.code in _GONE:
                self._live.pop(key, None)
                self._writing.discard(key)

    def _mounted(self, segments):
        for identity, _name, base, size, endpoint, _protocol, _host in segments:
            if base and size:
                self._segments.setdefault(endpoint, set()).add((base, size))
                # Mounting an id again changes nothing.
                self._identities.setdefault(identity, endpoint)

    def _going(self, identity):
        endpoint = self._identities.get(identity)
        for key, ranges in self._live.items():
            self._live[key] = [item for item in ranges if item[0] != endpoint]
        self._abandoned = [item for item in self._abandoned if item[0] != endpoint]

    def _started(self, name, key, answer):
        if not isinstance(answer, Ok):
            # A failed upsert may have dropped the old object.
            if name in ("UpsertStart", "BatchUpsertStart"):
                self._live.pop(key, None)
            return []
        self._writing.add(key)
        new = self._ranges(answer.value)
        old = self._live.pop(key, [])
        if name in ("UpsertStart", "BatchUpsertStart") and not set(new) & set(old):
            self._abandoned.extend(old)
        return self._added(key, answer.value)

    def _added(self, key, descriptors):
        new = self._ranges(descriptors)
        complaints = self._misplaced(key, new)
        for other, ranges in [*self._live.items(), ("(abandoned)", self._abandoned)]:
            complaints += [
                f"{key!r} got {_show(mine)}, which overlaps {_show(theirs)} of {other!r}"
                for mine in new
                for theirs in ranges
                if _overlap(mine, theirs)
            ]
        self._live.setdefault(key, []).extend(new)
        return complaints

    def _census(self, found):
        """All readable replicas at one moment must be disjoint."""
        everything = sorted((item, key) for key, descriptors in found for item in self._ranges(descriptors))
        complaints = [c for item, key in everything for c in self._misplaced(key, [item])]
        for (first, key), (second, other) in zip(everything, everything[1:]):
            if _overlap(first, second):
                complaints.append(f"{key!r} at {_show(first)} overlaps {other!r} at {_show(second)}")
        return complaints

    def _misplaced(self, key, ranges):
        return [
            f"{key!r} is at {_show(item)}, outside every mounted segment"
            for item in ranges
            if not any(
                base <= item[1] and item[2] <= base + size for base, size in self._segments.get(item[0], ())
            )
        ]

    @staticmethod
    def _ranges(descriptors):
        described = (describe_replica(descriptor) for descriptor in descriptors)
        return [(endpoint, address, address + size) for _, endpoint, address, size in filter(None, described)]


def _overlap(first, second):
    return first[0] == second[0] and first[1] < second[2] and second[1] < first[2]


def _show(item):
    return f"{item[0]} [{item[1]:#x}, {item[2]:#x})"
