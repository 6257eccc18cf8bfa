"""Copy and move tasks: creation, assignment, payload, completion, limits."""

import json

from calls import TaskRef
from messages import FAILED, PENDING, PROCESSING, SUCCESS, TENANT
from scenario import A, B, C, STRANGER
from struct_pack import Err, Ok

OK = Ok(None)


def test_creation_checks(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(B, "k")
        s.start(B, "writing")
        s("CreateCopyTask", "missing", TENANT, [], expect=Err(-600))
        s("CreateCopyTask", "missing", TENANT, ["nope"], expect=Err(-704))
        for targets in (["nope"], ["seg2", "nope"], [""], ["10.0.0.3:7003"]):
            s("CreateCopyTask", "k", TENANT, targets, expect=Err(-600))
        for source, target in (("a", "b"), ("seg1", "seg1"), ("seg1", "seg2")):
            s("CreateMoveTask", "missing", TENANT, source, target, expect=Err(-704))
        for source, target in (("seg1", "nope"), ("nope", "seg2"), ("seg1", "seg1"), ("seg2", "seg3")):
            s("CreateMoveTask", "k", TENANT, source, target, expect=Err(-600))
        # Neither an existing replica nor an unfinished write nor a running copy is in the way.
        s("CreateCopyTask", "k", TENANT, ["seg1"], token=1)
        s("CreateCopyTask", "writing", TENANT, ["seg2"], token=2)
        s("CreateMoveTask", "writing", TENANT, "seg1", "seg2", token=3)
        s("CopyStart", A, "k", TENANT, "seg1", [])
        s("CreateCopyTask", "k", "any tenant", ["seg3", "seg3"], token=4)
        s("FetchTasks", A, 100)


def test_a_task_from_creation_to_completion(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(B, "k")
        for token in (1, 2, 3):
            s("CreateCopyTask", "k", TENANT, ["seg2"], token=token)
        s("QueryTask", TaskRef(1))
        s("FetchTasks", B, 10, expect=Ok([]))
        s("FetchTasks", STRANGER, 10, expect=Ok([]))
        s("FetchTasks", A, 0, expect=Ok([]))
        s("FetchTasks", A, 1)
        s("QueryTask", TaskRef(1))
        s("QueryTask", TaskRef(2))
        s("FetchTasks", A, (1 << 64) - 1)
        s("FetchTasks", A, 10, expect=Ok([]))
        for status in (PENDING, PROCESSING, 9):
            for task in (TaskRef(1), TaskRef(77)):
                s("MarkTaskToComplete", B, (task, status, "x"), expect=Err(-600))
        s("MarkTaskToComplete", B, (TaskRef(1), SUCCESS, "x"), expect=Err(-601))
        s("MarkTaskToComplete", A, (TaskRef(77), SUCCESS, "x"), expect=Err(-1400))
        s("QueryTask", TaskRef(77), expect=Err(-1400))
        s("MarkTaskToComplete", A, (TaskRef(1), SUCCESS, "first"), expect=OK)
        s("QueryTask", TaskRef(1))
        s("MarkTaskToComplete", A, (TaskRef(1), FAILED, "second"), expect=OK)
        s("QueryTask", TaskRef(1))
        s("MarkTaskToComplete", B, (TaskRef(1), SUCCESS, "x"), expect=Err(-601))
        s("MarkTaskToComplete", A, (TaskRef(2), FAILED, "bad"), expect=OK)
        s("QueryTask", TaskRef(2))
        # A failed task is not handed out again.
        s("FetchTasks", A, 10, expect=Ok([]))


def test_a_pending_task_can_be_completed(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(B, "k")
        s("CreateMoveTask", "k", TENANT, "seg1", "seg2", token=1)
        s("MarkTaskToComplete", A, (TaskRef(1), SUCCESS, "early"), expect=OK)
        s("FetchTasks", A, 10, expect=Ok([]))
        s("QueryTask", TaskRef(1))


def test_tasks_outlive_what_they_are_about(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(B, "k")
        s.put(B, "removed", preferred=["seg2"])
        s("CreateCopyTask", "k", TENANT, ["seg3"], token=1)
        s("CreateCopyTask", "removed", TENANT, ["seg3"], token=2)
        s("UnmountSegment", (1, 1), A, expect=OK)
        s.remove("removed", expect=OK)
        assert isinstance(s("QueryTask", TaskRef(1)), Ok)
        assert [len(s("FetchTasks", client, 10).value) for client in (A, B)] == [1, 1]


def test_payload_escapes(scenario):
    keys = ['quote"', "back\\slash", "line\nfeed", "tab\t", "\x01\x1f\x7f", "\b\f\r"]
    keys += ["schlüssel", "鍵", "🔑", "a/b", "<&>'"]
    with scenario() as s:
        s.mount(1, 2)
        for key in keys:
            s.put(B, key)
            s("CreateCopyTask", key, 'tenant"', ["seg2"])
            s("CreateMoveTask", key, TENANT, "seg1", "seg2")
        assert len(s("FetchTasks", A, 100).value) == 2 * len(keys)


def test_the_source_is_one_of_the_replicas(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(B, "k", replicas=2)
        owners = {"seg1": A, "seg2": B}
        for side in s.pair.sides:
            created = [side.connection.call("CreateCopyTask", "k", TENANT, ["seg3"]) for _ in range(20)]
            assert all(isinstance(item, Ok) for item in created)
            sources = set()
            for client in (A, B, C):
                for _, _, payload, _, _ in side.connection.call("FetchTasks", client, 100).value:
                    source = json.loads(payload)["source"]
                    assert owners[source] == client, side.master.label
                    sources.add(source)
            assert sources == {"seg1", "seg2"}, f"{side.master.label} always takes {sources}"


def test_limits(scenario):
    with scenario(max_total_pending_tasks=3, max_total_processing_tasks=2, max_retry_attempts=7) as s:
        s.mount(1, 2)
        s.put(A, "k")
        s.put(A, "other", preferred=["seg2"])
        for token in range(1, 6):
            s("CreateCopyTask", "k", TENANT, ["seg2"], token=token)
        s("CreateCopyTask", "other", TENANT, ["seg1"], expect=Err(-1401))
        s("CreateMoveTask", "k", TENANT, "seg1", "seg2", expect=Err(-1401))
        s("CreateCopyTask", "missing", TENANT, ["seg2"], expect=Err(-704))
        s("CreateCopyTask", "k", TENANT, ["nope"], expect=Err(-600))
        s("FetchTasks", A, 10)
        s("CreateCopyTask", "k", TENANT, ["seg2"], token=6)
        s("FetchTasks", A, 10, expect=Ok([]))
        s("MarkTaskToComplete", A, (TaskRef(1), SUCCESS, ""), expect=OK)
        s("FetchTasks", A, 10)
        s("QueryTask", TaskRef(3))
