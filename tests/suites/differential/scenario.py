"""Hand-written sequences, for what a random walk would rarely reach.

A scenario goes on after a difference and reports all of them at its end, so
one run shows as much as possible. ``expect`` states what both answer, where
the scenario would otherwise not show what its name says.
"""

import time

from calls import Call
from messages import ALL, MIB, TENANT, config, describe_replica, meta, segment
from pair import Difference, Pair
from struct_pack import Ok

A, B, C, STRANGER = (1, 1), (2, 2), (3, 3), (9, 9)
_UNSTATED = object()


def segment_message(number, **changes):
    """The segment that scenarios mount under this number."""
    fields = dict(
        identity=(number, number),
        name=f"seg{number}",
        base=0x1_0000_0000 * number,
        size=64 * MIB,
        endpoint=f"10.0.0.{number}:700{number}",
        protocol="tcp",
        host=f"host{number}",
    )
    fields.update(changes)
    return segment(*fields.values())


def placed(answer):
    """Numbers of the segments that a Start was given, in order; the code where it was refused."""
    if not isinstance(answer, Ok):
        return answer.code
    return [int(describe_replica(replica)[1].rpartition(".")[2].partition(":")[0]) for replica in answer.value]


class Scenario:
    """A pair of masters, and a list of where they disagreed."""

    def __init__(self, tally=None, **flags):
        self.pair = Pair(tally, **flags)
        self.differences = []
        self.history = []
        #: the answers of both masters to the last call, as they came
        self.last = (None, None)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_rest):
        self.pair.stop()
        if kind is None and self.differences:
            raise AssertionError("\n".join(self.differences))

    def __call__(self, name, *arguments, expect=_UNSTATED, **options):
        """Call both masters; returns the reference's answer."""
        call = Call(name, arguments, **options)
        self.history.append(call)
        found = len(self.differences)
        try:
            self.last = self.pair.call(call)
        except Difference as difference:
            self.differences.append(f"call {len(self.history)}: {difference}\n{self._related(call)}")
            self.last = difference.answers
        answer, ours = self.last
        if expect is not _UNSTATED:
            assert answer == expect, f"{call}: the reference answered {answer!r}, this scenario expects {expect!r}"
            # Not even a difference that is kept on purpose will do where a scenario says what it wants.
            if ours != expect and len(self.differences) == found:
                self.differences.append(f"call {len(self.history)}: {call}\n  ours: {ours!r}, expected: {expect!r}")
        return answer

    def _related(self, failing, shown=15):
        keys = failing.keys()
        calls = [
            call
            for call in self.history[:-1]
            if keys is None or call.keys() is None or keys & call.keys() or "Segment" in call.name
        ]
        return "\n".join(f"    after {call}" for call in calls[-shown:])

    def rest(self, seconds):
        """Let time pass in which the masters may free memory."""
        time.sleep(seconds)
        for side in self.pair.sides:
            side.ledger.forget()

    # The usual beginnings.

    def mount(self, *numbers, **changes):
        """Each numbered segment, mounted and remounted by the client of its number."""
        for number in numbers:
            message = segment_message(number, **changes)
            self("MountSegment", message, (number, number), expect=Ok(None))
            self("ReMountSegment", [message], (number, number), expect=Ok(None))

    def start(self, client, key, size=1000, replicas=1, upsert=False, **options):
        """PutStart or UpsertStart on seg1 first, then the others in order."""
        loose = options.pop("loose", False)
        options.setdefault("preferred", ["seg1", "seg2", "seg3"])
        name = "UpsertStart" if upsert else "PutStart"
        return self(name, client, key, size, config(replicas, **options), TENANT, loose=loose)

    def end(self, client, key, kind=ALL, checksum=None, **options):
        return self("PutEnd", client, meta(key, checksum), kind, TENANT, **options)

    def put(self, client, key, size=1000, replicas=1, **options):
        """A complete object."""
        started = self.start(client, key, size, replicas, **options)
        if isinstance(started, Ok):
            self.end(client, key)
        return started

    def get(self, key, **options):
        return self("GetReplicaList", key, TENANT, **options)

    def remove(self, key, force=False, **options):
        return self("Remove", key, force, TENANT, **options)
