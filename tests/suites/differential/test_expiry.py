"""What time does: leases, stuck writes, dead clients, grace periods, tasks.

Outcomes are compared well away from every deadline: the masters need not act
at the same moment, only be done when asked.
"""

import time

import pytest
from calls import TaskRef
from messages import FAILED, MIB, SUCCESS, TENANT, config
from scenario import A, B, C, Scenario, segment_message
from struct_pack import Err, Ok

OK = Ok(None)
# Tasks are swept every thirty seconds; by then the sweep was certainly there.
TASK_SWEEP_SECONDS = 34.0


@pytest.fixture(scope="module", autouse=True)
def aging_tasks(tally):
    """Masters with tasks that grow old while the other tests run."""
    flags = {"pending_task_timeout_sec": 1, "processing_task_timeout_sec": 1, "max_total_finished_tasks": 2}
    with Scenario(tally, client_ttl=3600, **flags) as s:
        s.mount(1, 2)
        s.put(A, "k")
        for token in range(1, 6):
            s("CreateCopyTask", "k", TENANT, ["seg2"], token=token)
        s("FetchTasks", A, 4)
        for token in (1, 2, 3):
            s("MarkTaskToComplete", A, (TaskRef(token), SUCCESS if token < 3 else FAILED, "ended"))
        # The first of the three that ended is one too many; when it is forgotten differs (`ended-tasks`).
        for token in range(2, 6):
            s("QueryTask", TaskRef(token))
        s.started = time.monotonic()
        yield s


def test_leases_end(scenario):
    # A lease of 5 s, renewed after 4 and looked at after 5.5: the machine may lose 3.5 s more before it is over.
    with scenario(default_kv_lease_ttl=5000) as s:
        s.mount(1)
        for key in ("once", "renewed", "by regex", "unread"):
            s.put(A, key)
        s.get("once")
        s.get("renewed")
        s("GetReplicaListByRegex", "regex", TENANT)
        for key in ("once", "renewed", "by regex"):
            s.remove(key, expect=Err(-706))
        s.rest(4.0)
        s("ExistKey", "renewed", TENANT)
        s.rest(1.5)
        s.remove("renewed", expect=Err(-706))
        s.remove("once", expect=OK)
        s("RemoveAll", False, TENANT, expect=2)
        s.rest(4.0)
        s.remove("renewed", expect=OK)


def test_group_leases_end_together(scenario):
    with scenario(default_kv_lease_ttl=1500) as s:
        s.mount(1)
        for key in ("g1", "g2", "g3"):
            s.put(A, key, groups=["g"])
        s.get("g1")
        s.remove("g2", expect=Err(-706))
        s.rest(2.2)
        s.remove("g2", expect=OK)
        s("ExistKey", "g3", TENANT)
        s.remove("g1", expect=Err(-706))


def test_stuck_writes_can_be_replaced_and_are_reaped(scenario):
    with scenario(put_start_discard_timeout_sec=2, put_start_release_timeout_sec=6, client_ttl=3600) as s:
        s.mount(1)
        s.start(A, "replaced", 40 * MIB)
        s.start(A, "late", 10)
        s.start(A, "stuck", 10)
        s("PutStart", B, "replaced", 10, config(1, preferred=["seg1"]), TENANT, expect=Err(-705))
        s.put(A, "copied", 10)
        s("CopyStart", A, "copied", TENANT, "seg1", [])
        s.rest(3.0)
        s.get("replaced", expect=Err(-703))
        s.end(A, "late", expect=OK)
        s.get("late")
        s("PutStart", B, "replaced", 10, config(1, preferred=["seg1"]), TENANT)
        s.end(A, "replaced", expect=Err(-601))
        s.end(B, "replaced", expect=OK)
        # The bytes of the first writer are still his. Two replicas are asked
        # for so that the refusal does not start an eviction.
        s.start(B, "room", 40 * MIB, replicas=2)
        # Twice the timeout since the writes began: the reference looks that seldom.
        s.rest(11.0)
        s.end(A, "stuck", expect=Err(-704))
        s("CopyEnd", A, "copied", TENANT, expect=Err(-709))
        s.get("copied")
        s.get("replaced")
        s.start(B, "room", 40 * MIB, replicas=2)


def test_a_client_that_dies(scenario):
    with scenario(client_ttl=2) as s:
        s.mount(1, 2, 3)
        s.put(B, "only there")
        s.put(B, "there and elsewhere", replicas=2)
        s.start(B, "being written there")
        s.start(B, "being written on both", replicas=2)
        s.start(A, "being written by the dead", preferred=["seg2"])
        s.put(B, "copied by the dead", preferred=["seg2"])
        s("CopyStart", A, "copied by the dead", TENANT, "seg2", ["seg3"])
        s.put(B, "copied to the dead", preferred=["seg2"])
        s("CopyStart", B, "copied to the dead", TENANT, "seg2", ["seg1"])
        s.put(A, "written by the dead", preferred=["seg3"])
        s("CreateCopyTask", "only there", TENANT, ["seg2"], token=1)
        # Clients 5 and 6 never ping: one mounts again and again, one only writes.
        s.mount(5, 6)
        for _ in range(17):
            s("Ping", B)
            s("Ping", C)
            s("MountSegment", segment_message(5), (5, 5))
            s("FetchTasks", (6, 6), 1)
            s("ExistKey", "nothing", TENANT)
            s.rest(0.3)
        s("QuerySegmentStatusById", (1, 1), expect=Err(-101))
        s("QuerySegmentStatusById", (5, 5), expect=Ok(1))
        s("QuerySegmentStatusById", (6, 6), expect=Err(-101))
        s("Ping", A, expect=Ok((0, 2)))
        s("BatchQueryIp", [A, B, (5, 5), (6, 6)])
        s.get("only there", expect=Err(-704))
        s.get("there and elsewhere")
        s.end(B, "being written there", expect=Err(-704))
        s.end(B, "being written on both", expect=OK)
        s.get("being written on both")
        s.end(A, "being written by the dead", expect=OK)
        s("CopyEnd", A, "copied by the dead", TENANT, expect=OK)
        s("CopyEnd", B, "copied to the dead", TENANT, expect=Err(-712))
        s.get("written by the dead")
        s("QueryTask", TaskRef(1))
        s("FetchTasks", A, 5)
        s.start(A, "the dead may write", preferred=["seg2"])
        s.mount(1)
        s("Ping", A, expect=Ok((0, 1)))
        s.start(A, "back again", preferred=["seg1"])


def test_grace_period(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        s.put(A, "both", replicas=2)
        s("GracefulUnmountSegment", (1, 1), A, 3000)
        s.get("k")
        s.rest(0.4)
        s("QuerySegmentStatusById", (1, 1), expect=Ok(4))
        s.get("k")
        s.rest(3.5)
        s("QuerySegmentStatusById", (1, 1), expect=Err(-101))
        s.get("k", expect=Err(-704))
        s.get("both")
        s("MountSegment", segment_message(1), A, expect=OK)
        s("QuerySegmentStatusById", (1, 1), expect=Ok(1))


def test_old_tasks(aging_tasks):
    s = aging_tasks
    s.rest(max(0.0, s.started + TASK_SWEEP_SECONDS - time.monotonic()))
    # Only the two that finished last are remembered: those that timed out.
    for token in (1, 2, 3):
        s("QueryTask", TaskRef(token), expect=Err(-1400))
    assert s("QueryTask", TaskRef(4)).value[2:7:4] == (FAILED, "processing timeout")
    assert s("QueryTask", TaskRef(5)).value[2:7:4] == (FAILED, "pending timeout")
    s("FetchTasks", A, 10, expect=Ok([]))
    s("MarkTaskToComplete", A, (TaskRef(4), SUCCESS, "too late"), expect=OK)
    s("QueryTask", TaskRef(4))

