"""The differences kept on purpose: each is real, and is documented."""

import re
from pathlib import Path

from deliberate import DELIBERATE
from calls import Call, TaskRef
from messages import ALL, FAILED, MIB, SUCCESS, TENANT, config, describe_replica, meta
from pair import self_comparison
from rpc import RpcError
from scenario import A, B, segment_message
from struct_pack import Err, Ok

DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "compatibility.md"


def test_the_list_the_documentation_and_these_tests_name_the_same():
    text = DOCUMENT.read_text(encoding="utf-8")
    table = text.split("## Differences that are kept on purpose")[1].split("\n## ")[0]
    documented = re.findall(r"^\| `([a-z0-9-]+)` \|", table, re.MULTILINE)
    assert sorted(documented) == sorted(entry.name for entry in DELIBERATE)
    untested = [name for name in documented if f"test_{name.replace('-', '_')}" not in globals()]
    assert not untested


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
        for start in ("PutStart", "UpsertStart"):
            longest = f"{start:x<4096}"
            assert all(isinstance(answer, Ok) for answer in answers(s, start, A, longest, 10, config(), TENANT))
            reference, *ours = answers(s, start, A, key + start, 10, config(), TENANT)
            assert isinstance(reference, Ok)
            assert all(answer == Err(-600) for answer in ours)
            keys = [f"before {start}", f"batch {start}" + key, f"after {start}"]
            reference, *ours = answers(s, f"Batch{start}", A, keys, [10] * 3, config(), TENANT)
            assert all(isinstance(item, Ok) for item in reference)
            for before, refused, after in ours:
                assert isinstance(before, Ok) and refused == Err(-600) and isinstance(after, Ok)
        # A key that cannot be is not there, but a task for it is refused.
        for name, arguments, expected in (
            ("ExistKey", (), Ok(False)),
            ("GetReplicaList", (), Err(-704)),
            ("Remove", (True,), Err(-704)),
        ):
            s(name, key, *arguments, TENANT, expect=expected)
        for request in (("CreateCopyTask", key, TENANT, ["seg1"]), ("CreateMoveTask", key, TENANT, "seg1", "seg2")):
            reference, *ours = answers(s, *request)
            assert reference == Err(-704)
            assert all(answer == Err(-600) for answer in ours)


def test_long_texts(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        text = "x" * 4097
        requests = [("MountSegment", segment_message(3, **{field: text}), A) for field in ("name", "endpoint", "host")]
        requests.append(("PutStart", A, "grouped", 10, config(groups=[text]), TENANT))
        requests.append(("CopyStart", A, "k", TENANT, "seg1", ["seg1"] * 101))
        requests.append(("CreateCopyTask", "k", TENANT, ["seg2"] * 101))
        for request in requests:
            reference, *ours = answers(s, *request)
            assert isinstance(reference, Ok), request[0]
            assert all(answer == Err(-600) for answer in ours), request[0]
            if request[0] == "MountSegment":
                answers(s, "UnmountSegment", (3, 3), A)
        longest = text[:4096]
        s("MountSegment", segment_message(4, name=longest), A, expect=Ok(None))
        s("PutStart", A, "grouped as well", 10, config(preferred=["seg1"], groups=[longest]), TENANT)
        s.put(A, "l")
        s("CopyStart", A, "l", TENANT, "seg1", ["seg1"] * 100)
        s("CreateCopyTask", "l", TENANT, ["seg2"] * 100, token=1)
        s("MarkTaskToComplete", A, (TaskRef(1), FAILED, text), expect=Ok(None))
        reference, *ours = [side.send(Call("QueryTask", (TaskRef(1),))).value[6] for side in s.pair.sides]
        assert reference == text
        assert self_comparison() or ours == [longest]


def test_costly_patterns(scenario):
    with scenario() as s:
        s.mount(1)
        s.put(A, "a" * 20 + "b")
        for pattern, refused in (
            ("^(a+)+$", False),
            ("^(a+)+\\1$", True),
            ("(" * 200 + "c" + ")" * 200, False),
            ("(" * 201 + "c" + ")" * 201, True),
        ):
            for name, arguments, nothing in (
                ("GetReplicaListByRegex", (pattern, TENANT), Ok([])),
                ("RemoveByRegex", (pattern, True, TENANT), Ok(0)),
            ):
                reference, *ours = answers(s, name, *arguments)
                assert reference == nothing, pattern
                assert all(answer == (Err(-600) if refused else nothing) for answer in ours), pattern


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
            # The reference does not come as far as the payload if there is no such object.
            reference, *ours = answers(s, request[0], b"\xff", *request[2:])
            assert reference == Err(-704)
            assert all(answer == Err(-600) for answer in ours)


def test_absurd_replica_counts(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        for start in ("PutStart", "UpsertStart"):
            for name, key, size in ((start, start, 10), (f"Batch{start}", [f"batch {start}"], [10])):
                reference, *ours = answers(s, name, A, key, size, config(1 << 62), TENANT)
                assert reference == (10, "vector::reserve")
                for answer in ours:
                    (started,) = answer if isinstance(answer, list) else [answer]
                    endpoints = {describe_replica(replica)[1] for replica in started.value}
                    assert len(started.value) == 3 and endpoints == {f"10.0.0.{each}:700{each}" for each in (1, 2, 3)}


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
        answers(s, "GracefulUnmountSegment", (1, 1), A, 2000)
        answers(s, "UnmountSegment", (1, 1), A)
        answers(s, "MountSegment", segment_message(1), A)
        s.rest(3.0)
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


def test_ended_tasks(scenario):
    with scenario(max_total_finished_tasks=1) as s:
        s.mount(1, 2)
        s.put(A, "k")
        for token in (1, 2):
            s("CreateCopyTask", "k", TENANT, ["seg2"], token=token)
        s("FetchTasks", A, 2)
        s("MarkTaskToComplete", A, (TaskRef(1), SUCCESS, "first"), expect=Ok(None))
        # One may be remembered, and is.
        assert s("QueryTask", TaskRef(1)).value[6] == "first"
        s("MarkTaskToComplete", A, (TaskRef(2), SUCCESS, "second"), expect=Ok(None))
        # That the reference forgets it later is what test_old_tasks (test_expiry.py) waits for.
        reference, ours = [side.send(Call("QueryTask", (TaskRef(1),))) for side in s.pair.sides]
        assert isinstance(reference, Ok) and reference.value[6] == "first"
        assert self_comparison() or ours == Err(-1400)
        assert s("QueryTask", TaskRef(2)).value[6] == "second"


def test_removal_beside_a_copy(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        for key, start, targets in (
            ("copied", "CopyStart", ["seg2"]),
            ("moved", "MoveStart", "seg2"),
            ("two", "CopyStart", ["seg2", "seg3"]),
        ):
            s.put(A, key)
            s(start, A, key, TENANT, "seg1", targets)
            s("BatchRemove", [key], True, TENANT, expect=[Err(-703)])
        s("UnmountSegment", (2, 2), B)
        # One target is left, so the object is still incomplete for both.
        s("BatchRemove", ["two", "missing"], True, TENANT, expect=[Err(-703), Err(-704)])
        for key in ("copied", "moved"):
            # In passing, too: this is the one difference that random walks meet.
            s("BatchRemove", [key, "two"], True, TENANT)
            reference, *ours = s.last[:1] if self_comparison() else s.last
            assert reference == [Err(-703), Err(-703)]
            assert all(answer == [Err(-708), Err(-703)] for answer in ours)
            s.remove(key, True, expect=Err(-708))
            # That call has made the reference drop the replica.
            s("BatchRemove", [key], True, TENANT, expect=[Err(-708)])


def test_moves_of_the_last_copy(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k", replicas=2, preferred=["seg1", "seg2"])
        s("MoveStart", A, "k", TENANT, "seg1", "seg2")
        assert all(answer.value[1] is None for answer in s.last), "there is nothing to write"
        s("UnmountSegment", (2, 2), B)
        s("ExistKey", "k", TENANT, expect=Ok(True))
        reference, *ours = answers(s, "MoveEnd", A, "k", TENANT)
        assert reference == Ok(None)
        assert all(answer == Err(-712) for answer in ours)
        reference, *ours = answers(s, "GetReplicaList", "k", TENANT)
        assert reference == Err(-704)
        for answer in ours:
            (left,) = answer.value[0]
            assert describe_replica(left)[1] == "10.0.0.1:7001"


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


def test_overlapping_memory(scenario):
    """One client's is a mistake; another client's is what a dead process left behind."""
    with scenario() as s:
        s.mount(1)
        far = segment_message(1, identity=(7, 7), name="far", base=0x7_0000_0000)
        s("MountSegment", far, A, expect=Ok(None))
        s.put(A, "k")
        s.put(A, "far", preferred=["far"])
        again = segment_message(1, identity=(8, 8), name="again", base=0x1_0000_0000 + MIB)
        reference, *ours = answers(s, "MountSegment", again, A)
        assert reference == Ok(None)
        assert all(answer == Err(-600) for answer in ours)
        assert all(answer == Ok(None) for answer in answers(s, "MountSegment", again, B))
        reference, *ours = answers(s, "GetReplicaList", "k", TENANT)
        assert isinstance(reference, Ok)
        assert all(answer == Err(-704) for answer in ours)
        # Nothing says that memory at other addresses is lost: two clients of one process may share its endpoint.
        s("QuerySegmentStatusById", (7, 7), expect=Ok(1))
        assert all(isinstance(answer, Ok) for answer in answers(s, "GetReplicaList", "far", TENANT))


def test_many_preferred_segments(scenario):
    with scenario() as s:
        s.mount(1)
        names = [f"seg{number}" for number in range(1, 1025)]
        s("PutStart", A, "at the limit", 10, config(preferred=names), TENANT)
        wide = config(preferred=[*names, "one more"])
        reference, *ours = answers(s, "PutStart", A, "k", 10, wide, TENANT)
        assert isinstance(reference, Ok)
        assert all(answer == Err(-600) for answer in ours)
        reference, *ours = answers(s, "BatchUpsertStart", A, ["a", "b"], [10, 10], wide, TENANT)
        assert all(isinstance(item, Ok) for item in reference)
        assert all(answer == [Err(-600)] * 2 for answer in ours)
