"""The differences kept on purpose: each is real, and is documented."""

from pathlib import Path

import pytest
from deliberate import DELIBERATE
from calls import TaskRef
from messages import ALL, MIB, SUCCESS, TENANT, config, meta
from pair import self_comparison
from rpc import RpcError
from scenario import A, B, segment_message
from struct_pack import Err, Ok

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "compatibility.md"


@pytest.mark.parametrize("entry", DELIBERATE, ids=lambda entry: entry.name)
def test_each_is_documented(entry):
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"`{entry.name}`" in text, f"{DOCUMENT.name} does not explain {entry.name}"


def answers(s, name, *arguments):
    """What each master answers; ours is the reference's in a self-comparison."""
    found = []
    for side in s.pair.sides:
        try:
            found.append(side.connection.call(name, *arguments))
        except RpcError as error:
            found.append((error.code, error.message))
    return found[:1] if self_comparison() else found


def test_long_keys(scenario):
    with scenario() as s:
        s.mount(1)
        key = "x" * 4097
        reference, *ours = answers(s, "PutStart", A, key, 10, config(), TENANT)
        assert isinstance(reference, Ok)
        assert all(answer == Err(-600) for answer in ours)


def test_offload_notices(scenario):
    with scenario() as s:
        s.mount(1)
        notice = ("NotifyOffloadSuccess", A, [(TENANT, "unheard of", 5)], [(1, 2, 3, 4, "10.0.0.1:1")])
        assert all(answer == Ok(None) for answer in answers(s, *notice))
        reference, *ours = answers(s, "ExistKey", "unheard of", TENANT)
        assert reference == Ok(True)
        assert all(answer == Ok(False) for answer in ours)


def test_non_utf8_task_keys(scenario):
    with scenario() as s:
        s.mount(1, 2)
        key = b"\xff\xfe"
        answers(s, "PutStart", A, key, 10, config(1, preferred=["seg1"]), TENANT)
        answers(s, "PutEnd", A, meta(key), ALL, TENANT)
        for request in (("CreateCopyTask", key, TENANT, ["seg2"]), ("CreateMoveTask", key, TENANT, "seg1", "seg2")):
            reference, *ours = answers(s, *request)
            assert reference == (10, "illegal unicode character")
            assert all(answer == Err(-600) for answer in ours)


def test_absurd_replica_counts(scenario):
    with scenario() as s:
        s.mount(1)
        reference, *ours = answers(s, "PutStart", A, "k", 10, config(1 << 62), TENANT)
        assert reference == (10, "vector::reserve")
        assert all(isinstance(answer, Ok) and len(answer.value) == 1 for answer in ours)


def test_foreign_unmount(scenario):
    with scenario() as s:
        s.mount(1)
        answers(s, "UnmountSegment", (1, 1), B)
        reference, *ours = answers(s, "BatchQueryIp", [A])
        assert reference == Ok([(A, [])])
        assert all(answer == Ok([]) for answer in ours)
        reference, *ours = answers(s, "GracefulUnmountSegment", (1, 1), A, 5)
        assert reference == Err(-600)
        assert all(answer == Err(-101) for answer in ours)


def test_stale_grace_deadlines(scenario):
    with scenario() as s:
        s.mount(1)
        answers(s, "GracefulUnmountSegment", (1, 1), A, 300)
        answers(s, "UnmountSegment", (1, 1), A)
        answers(s, "MountSegment", segment_message(1), A)
        s.rest(1.0)
        reference, *ours = answers(s, "QuerySegmentStatusById", (1, 1))
        assert reference == Err(-101)
        assert all(answer == Ok(1) for answer in ours)


def test_failed_upserts(scenario):
    with scenario() as s:
        s.mount(1)
        s.put(A, "k", hard_pin=True)
        s.start(B, "k", 100 * MIB, replicas=3, upsert=True, preferred=["seg1"])
        reference, *ours = answers(s, "GetReplicaList", "k", TENANT)
        assert reference == Err(-704)
        assert all(isinstance(answer, Ok) for answer in ours)


def test_pending_slots(scenario):
    with scenario(max_total_pending_tasks=1) as s:
        s.mount(1, 2)
        s.put(A, "k")
        s("CreateCopyTask", "k", TENANT, ["seg2"], token=1)
        s("MarkTaskToComplete", A, (TaskRef(1), SUCCESS, "never fetched"), expect=Ok(None))
        reference, *ours = answers(s, "CreateCopyTask", "k", TENANT, ["seg2"])
        assert reference == Err(-1401)
        assert all(isinstance(answer, Ok) for answer in ours)


def test_removal_beside_a_copy(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        s("CopyStart", A, "k", TENANT, "seg1", ["seg2"])
        s("UnmountSegment", (2, 2), B)
        reference, *ours = answers(s, "Remove", "k", True, TENANT)
        assert reference in (Err(-703), Err(-708))
        assert all(answer == Err(-708) for answer in ours)


def test_writes_into_unmounted_memory(scenario):
    with scenario() as s:
        s.mount(1)
        most = 40 * MIB
        assert all(isinstance(answer, Ok) for answer in answers(s, "PutStart", A, "k", most, config(), TENANT))
        answers(s, "UnmountSegment", (1, 1), A)
        answers(s, "MountSegment", segment_message(1), A)
        reference, *ours = answers(s, "PutStart", A, "again", most, config(), TENANT)
        assert isinstance(reference, Ok)
        assert all(answer == Err(-200) for answer in ours)
        # Whoever was writing there says that it writes no more.
        assert all(answer == Err(-704) for answer in answers(s, "PutRevoke", A, "k", ALL, TENANT))
        _, *ours = answers(s, "PutStart", A, "at last", most, config(), TENANT)
        assert all(isinstance(answer, Ok) for answer in ours)
