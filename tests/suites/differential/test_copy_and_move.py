"""Copies and moves: the order of the checks, and what each end leaves behind."""

from messages import ALL, MIB, TENANT, config
from scenario import A, B, C, STRANGER, segment_message
from struct_pack import Err, Ok

OK = Ok(None)


def test_copy_start_checks(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s.start(A, "writing")
        s("CopyStart", A, "missing", TENANT, "seg1", ["nope"], expect=Err(-101))
        s("CopyStart", A, "missing", TENANT, "seg1", ["seg2"], expect=Err(-704))
        s("CopyStart", A, "k", TENANT, "seg1", ["seg2", "nope"], expect=Err(-101))
        s("CopyStart", A, "k", TENANT, "nope", ["seg2"], expect=Err(-710))
        s("CopyStart", A, "k", TENANT, "seg3", ["seg2"], expect=Err(-710))
        s("CopyStart", A, "k", TENANT, "10.0.0.1:7001", ["seg2"], expect=Err(-710))
        s("CopyStart", A, "k", TENANT, "seg1", ["10.0.0.3:7003"], expect=Err(-101))
        s("CopyStart", A, "writing", TENANT, "seg1", ["seg2"], expect=Err(-710))
        s("CopyEnd", A, "k", TENANT, expect=Err(-709))
        s("CopyRevoke", A, "k", TENANT, expect=Err(-709))
        s("CopyEnd", A, "missing", TENANT, expect=Err(-704))


def test_copy(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s("CopyStart", STRANGER, "k", TENANT, "seg1", ["seg2", "seg3"])
        s.get("k")
        for name, arguments in (
            ("CopyStart", ("seg1", ["seg3"])),
            ("MoveStart", ("seg1", "seg3")),
            ("DynamicReplicaCopyStart", ("seg1", ["seg3"], (0, 0), 0)),
            ("DynamicReplicaCopyStart", ("seg1", ["seg3"], (1, 1), 0)),
        ):
            s(name, STRANGER, "k", TENANT, *arguments, expect=Err(-708))
        s.start(A, "k", upsert=True)
        s.start(A, "k", 5, upsert=True)
        s.end(A, "k", expect=Err(-700))
        s("PutRevoke", A, "k", ALL, TENANT, expect=Err(-700))
        s("CopyEnd", A, "k", TENANT, expect=Err(-601))
        s("CopyRevoke", A, "k", TENANT, expect=Err(-601))
        s("MoveEnd", STRANGER, "k", TENANT, expect=Err(-600))
        s("MoveRevoke", STRANGER, "k", TENANT, expect=Err(-600))
        s("CopyEnd", STRANGER, "k", TENANT, expect=OK)
        s.get("k")
        s("CopyEnd", STRANGER, "k", TENANT, expect=Err(-709))
        s.end(A, "k", expect=OK)


def test_copy_targets_that_are_there_already(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        for targets in (["seg1"], []):
            s("CopyStart", A, "k", TENANT, "seg1", targets)
            s.remove("k", expect=Err(-708))
            s("CopyEnd", A, "k", TENANT, expect=OK)
        s("CopyStart", A, "k", TENANT, "seg1", ["seg2", "seg1"])
        s("CopyRevoke", A, "k", TENANT, expect=OK)
        s("CopyStart", A, "k", TENANT, "seg1", ["seg2", "seg2"])
        s("CopyEnd", A, "k", TENANT, expect=OK)
        s.get("k")


def test_copy_without_room(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "filler", 60 * MIB, preferred=["seg2"])
        s.put(A, "k", 30 * MIB)
        s("CopyStart", A, "k", TENANT, "seg1", ["seg2"], expect=Err(-200))
        s("CopyStart", A, "k", TENANT, "seg1", ["seg3", "seg2"], expect=Err(-200))
        s("CopyEnd", A, "k", TENANT, expect=Err(-709))
        s("MoveStart", A, "k", TENANT, "seg1", "seg2", expect=Err(-200))
        s.get("k")
        # What the failed copy took on seg3 was given back.
        s.put(A, "fits", 50 * MIB, preferred=["seg3"])


def test_dynamic_copies(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s("DynamicReplicaCopyStart", A, "k", TENANT, "seg1", ["seg2"], (0, 0), 3)
        for lease, epoch in (((0, 0), 0), ((0, 0), 4), ((1, 0), 3)):
            s("DynamicReplicaCopyEnd", A, "k", TENANT, lease, epoch, expect=Err(-300))
            s("DynamicReplicaCopyRevoke", A, "k", TENANT, lease, epoch, expect=Err(-300))
        s("CopyEnd", A, "k", TENANT, expect=Err(-300))
        s("CopyRevoke", A, "k", TENANT, expect=Err(-300))
        s("DynamicReplicaCopyEnd", B, "k", TENANT, (0, 0), 3, expect=Err(-601))
        s("DynamicReplicaCopyEnd", A, "k", TENANT, (0, 0), 3, expect=OK)
        s("CopyStart", A, "k", TENANT, "seg1", ["seg3"])
        s("DynamicReplicaCopyEnd", A, "k", TENANT, (0, 0), 0, expect=OK)
        for key, source, targets, code in (
            ("k", "seg1", ["seg2"], -1010),
            ("k", "seg1", ["nope"], -1010),
            ("k", "nope", ["seg2"], -1010),
            ("missing", "seg1", ["seg2"], -704),
        ):
            s("DynamicReplicaCopyStart", A, key, TENANT, source, targets, (5, 5), 0, expect=Err(code))
        s.put(A, "l")
        s("DynamicReplicaCopyStart", A, "l", TENANT, "seg1", ["nope"], (0, 0), 0, expect=Err(-101))
        s("DynamicReplicaCopyStart", A, "l", TENANT, "seg1", ["seg2"], (5, 5), 0)
        s("MoveStart", A, "l", TENANT, "seg1", "seg2")
        s("DynamicReplicaCopyEnd", A, "l", TENANT, (0, 0), 0, expect=Err(-600))
        s("DynamicReplicaCopyRevoke", A, "l", TENANT, (5, 5), 0, expect=Err(-600))


def test_move_start_checks(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s.start(A, "writing")
        s("MoveStart", A, "missing", TENANT, "nope", "nope", expect=Err(-600))
        s("MoveStart", A, "k", TENANT, "seg1", "seg1", expect=Err(-600))
        s("MoveStart", A, "missing", TENANT, "seg1", "nope", expect=Err(-101))
        s("MoveStart", A, "missing", TENANT, "seg1", "seg2", expect=Err(-704))
        s("MoveStart", A, "k", TENANT, "seg3", "seg2", expect=Err(-710))
        s("MoveStart", A, "writing", TENANT, "seg1", "seg2", expect=Err(-710))


def test_move(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s.get("k")
        s("MoveStart", B, "k", TENANT, "seg1", "seg2")
        s.get("k")
        s("MoveEnd", A, "k", TENANT, expect=Err(-601))
        s("MoveRevoke", A, "k", TENANT, expect=Err(-601))
        s("CopyEnd", B, "k", TENANT, expect=Err(-600))
        s("CopyRevoke", B, "k", TENANT, expect=Err(-600))
        s("MoveEnd", B, "k", TENANT, expect=OK)
        s.get("k")
        s("MoveEnd", B, "k", TENANT, expect=Err(-709))
        s("MoveStart", B, "k", TENANT, "seg2", "seg3")
        s("MoveRevoke", B, "k", TENANT, expect=OK)
        s.get("k")
        # A target that has a replica: the source merely goes.
        s("CopyStart", B, "k", TENANT, "seg2", ["seg3"])
        s("CopyEnd", B, "k", TENANT)
        s("MoveStart", B, "k", TENANT, "seg2", "seg3")
        s("MoveRevoke", B, "k", TENANT, expect=OK)
        s.get("k")
        s("MoveStart", B, "k", TENANT, "seg2", "seg3")
        s("MoveEnd", B, "k", TENANT, expect=OK)
        s.get("k")


def test_segments_that_go_during_a_copy(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "source goes")
        s.put(A, "revoked after")
        s.put(A, "survivor", replicas=2, preferred=["seg1", "seg2"])
        s("CopyStart", A, "source goes", TENANT, "seg1", ["seg3"])
        s("CopyStart", A, "revoked after", TENANT, "seg1", ["seg3"])
        s("CopyStart", A, "survivor", TENANT, "seg1", ["seg3"])
        s("UnmountSegment", (1, 1), A)
        s.get("source goes", expect=Err(-703))
        s("CopyEnd", A, "source goes", TENANT, expect=Err(-712))
        s("CopyEnd", A, "source goes", TENANT, expect=Err(-704))
        s("CopyRevoke", A, "revoked after", TENANT, expect=OK)
        s.get("revoked after", expect=Err(-704))
        s.get("survivor")
        s("CopyEnd", A, "survivor", TENANT, expect=Err(-712))
        s.get("survivor")
        s("CopyEnd", A, "survivor", TENANT, expect=Err(-709))
        s("MountSegment", segment_message(1), A)
        s.put(A, "target goes")
        s("CopyStart", A, "target goes", TENANT, "seg1", ["seg2", "seg3"])
        s("UnmountSegment", (3, 3), C)
        s("CopyEnd", A, "target goes", TENANT, expect=Err(-712))
        s.get("target goes")
        s("CopyEnd", A, "target goes", TENANT, expect=Err(-709))


def test_segments_that_go_during_a_move(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "target goes")
        s("MoveStart", A, "target goes", TENANT, "seg1", "seg3")
        s("UnmountSegment", (3, 3), C)
        s("MoveEnd", A, "target goes", TENANT, expect=Err(-712))
        s.get("target goes")
        s("MoveEnd", A, "target goes", TENANT, expect=Err(-709))
        s.put(A, "source goes")
        s("MoveStart", A, "source goes", TENANT, "seg1", "seg2")
        s("UnmountSegment", (1, 1), A)
        s("MoveEnd", A, "source goes", TENANT, expect=Err(-712))
        s.get("source goes", expect=Err(-704))


def test_no_end_of_a_copy_leaves_its_source_in_use(scenario):
    """A source that stayed in use would make upserts fail with -714."""
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "filler", 60 * MIB, preferred=["seg2"])
        s.put(A, "no room", 30 * MIB)
        s("CopyStart", A, "no room", TENANT, "seg1", ["seg3", "seg2"], expect=Err(-200))
        s("MoveStart", A, "no room", TENANT, "seg1", "seg2", expect=Err(-200))
        s.start(B, "no room", 30 * MIB, upsert=True)
        flights = [
            (start, end, goes)
            for start, end in (("CopyStart", "CopyEnd"), ("CopyStart", "CopyRevoke"), ("MoveStart", "MoveRevoke"))
            for goes in (False, True)
        ] + [("MoveStart", "MoveEnd", True)]
        for number, (start, _, _) in enumerate(flights):
            s.put(A, f"k{number}")
            s(start, A, f"k{number}", TENANT, "seg1", ["seg3"] if start == "CopyStart" else "seg3")
            s("UpsertStart", B, f"k{number}", 1000, config(1), TENANT, expect=Err(-708))
        for goes in (False, True):
            if goes:
                s("UnmountSegment", (3, 3), C)
            for number, (_, end, last) in enumerate(flights):
                if last == goes:
                    s(end, A, f"k{number}", TENANT, expect=Err(-712) if goes and end.endswith("End") else OK)
                    assert isinstance(s.start(B, f"k{number}", upsert=True), Ok)


def test_a_write_in_progress_and_its_segments(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.start(A, "one")
        s.start(A, "both", replicas=2)
        s("UnmountSegment", (1, 1), A)
        s.end(A, "one", expect=Err(-704))
        s.end(A, "both", expect=OK)
        s.get("both")
        s.end(A, "both", expect=OK)
        s.remove("both", True)
