"""Where the reference takes anything and this master has a limit.

Each limit stands in ``docs/compatibility.md``. At the limit both masters answer
alike; beyond it the reference still does what it was asked, which shows that
the limit is ours.
"""

from calls import Call, TaskRef
from messages import FAILED, MIB, TENANT, config
from pair import self_comparison
from scenario import A, B, segment_message
from struct_pack import Err, Ok
from test_deliberate import answers

LONG = "x" * 4096


def beyond(s, name, *arguments):
    """What the reference answers, and that we refuse."""
    reference, *ours = answers(s, name, *arguments)
    assert all(answer == Err(-600) for answer in ours), f"{name}: {ours}"
    return reference


def test_preferred_segments(scenario):
    with scenario() as s:
        s.mount(1)
        names = [f"seg{number}" for number in range(1, 1025)]
        s("PutStart", A, "at the limit", 10, config(preferred=names), TENANT)
        wide = config(preferred=[*names, "one more"])
        assert isinstance(beyond(s, "PutStart", A, "k", 10, wide, TENANT), Ok)
        reference, *ours = answers(s, "BatchUpsertStart", A, ["a", "b"], [10, 10], wide, TENANT)
        assert all(isinstance(item, Ok) for item in reference)
        assert all(answer == [Err(-600)] * 2 for answer in ours)


def test_targets(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        for call, head in (("CopyStart", (A, "k", TENANT, "seg1")), ("CreateCopyTask", ("k", TENANT))):
            reference = beyond(s, call, *head, ["seg2"] * 101)
            assert reference != Err(-600), f"{call}: {reference}"


def test_texts(scenario):
    with scenario() as s:
        s.mount(1)
        s.put(A, "at the limit", groups=[LONG])
        assert isinstance(beyond(s, "PutStart", A, "k", 10, config(groups=[f"{LONG}x"]), TENANT), Ok)
        for number, field in enumerate(("name", "endpoint", "host"), start=2):
            s("MountSegment", segment_message(number, **{field: LONG}), B)
            longer = segment_message(number + 3, **{field: f"{LONG}x"})
            assert beyond(s, "MountSegment", longer, B) == Ok(None)


def test_messages_of_tasks(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        s("CreateCopyTask", "k", TENANT, ["seg2"], token=1)
        s("FetchTasks", A, 10)
        s("MarkTaskToComplete", A, (TaskRef(1), FAILED, f"{LONG}and more"), expect=Ok(None))
        told = [side.send(Call("QueryTask", (TaskRef(1),))).value[-1] for side in s.pair.sides]
        assert told[0] == f"{LONG}and more"
        assert self_comparison() or told[1] == LONG


def test_memory_that_overlaps(scenario):
    """One client's is a mistake; another client's is what a dead process left behind."""
    with scenario() as s:
        s.mount(1)
        s.put(A, "k")
        again = segment_message(1, identity=(8, 8), name="again", base=0x1_0000_0000 + MIB)
        assert beyond(s, "MountSegment", again, A) == Ok(None)
        assert all(answer == Ok(None) for answer in answers(s, "MountSegment", again, B))
        reference, *ours = answers(s, "GetReplicaList", "k", TENANT)
        assert isinstance(reference, Ok)
        assert all(answer == Err(-704) for answer in ours)
