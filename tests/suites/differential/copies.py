"""Which copies and moves write to a segment that is gone.

The masters answer differently there, on purpose (`removal-beside-a-copy`), so
the comparison has to know when it is there. It follows the reference.
"""

from messages import describe_replica
from struct_pack import Err, Ok

_STARTS = {"CopyStart", "DynamicReplicaCopyStart", "MoveStart"}
_ENDS = {
    "CopyEnd",
    "CopyRevoke",
    "DynamicReplicaCopyEnd",
    "DynamicReplicaCopyRevoke",
    "MoveEnd",
    "MoveRevoke",
}


class Copies:
    """The copies and moves that are under way, and where they write to."""

    def __init__(self):
        #: identity of a mounted segment -> its endpoint
        self._endpoints = {}
        #: key -> endpoints that its copy writes to, and those of them that are gone
        self._targets = {}
        self._gone = {}

    def stranded(self, key):
        """Whether the object is being copied, and only to segments that are gone."""
        targets = self._targets.get(key)
        return bool(targets) and targets == self._gone[key]

    def observe(self, call, answer):
        """Take note of one call and of what the reference answered."""
        name, arguments = call.name, call.arguments
        if name in _STARTS and isinstance(answer, Ok):
            self._started(arguments[1], answer.value[1])
        elif name in _ENDS and (isinstance(answer, Ok) or answer == Err(-712)):
            self._targets.pop(arguments[1], None)
        elif name == "MountSegment" and isinstance(answer, Ok):
            self._mounted([arguments[0]])
        elif name == "ReMountSegment" and isinstance(answer, Ok):
            self._mounted(arguments[0])
        elif _unmounts(call) and isinstance(answer, Ok):
            self._unmounted(arguments[0])

    def _started(self, key, written):
        replicas = written if isinstance(written, list) else [written]
        described = (describe_replica(replica) for replica in replicas if replica is not None)
        self._targets[key] = {endpoint for _, endpoint, _, _ in filter(None, described)}
        self._gone[key] = set()

    def _mounted(self, segments):
        for segment in segments:
            self._endpoints.setdefault(segment[0], segment[4])

    def _unmounted(self, identity):
        endpoint = self._endpoints.pop(identity, None)
        for key, targets in self._targets.items():
            self._gone[key] |= targets & {endpoint}


def _unmounts(call):
    """A grace period that is not over yet takes nothing away."""
    return call.name == "UnmountSegment" or (call.name == "GracefulUnmountSegment" and call.arguments[2] == 0)
