"""What is answered for features that are off, and to calls without values."""

import ast

from messages import ALL, DISK, LOCAL_DISK, MEMORY, TENANT
from rpc import RPCS, TABLE_PATH, RpcError
from scenario import A, STRANGER
from struct_pack import Err, Ok

OK = Ok(None)


RECORDED = TABLE_PATH.with_name("zero-argument-answers.txt")


def recorded_answers():
    """What a fresh reference master was once seen to answer to zero values."""
    answers = {}
    for line in RECORDED.read_text(encoding="utf-8").splitlines():
        described, _, answer = line.partition(" -> ")
        answers[described.split()[0]] = _answer(ast.literal_eval(answer))
    return answers


def _answer(recorded):
    if isinstance(recorded, tuple):
        kind, value = recorded
        if isinstance(value, dict):
            value = tuple(value.values()) or []
        return Ok(value) if kind == "ok" else Err(value)
    return recorded


def test_every_rpc_with_zero_values(scenario):
    recorded = recorded_answers()
    assert set(RPCS) - set(recorded) == {"RemoveAll", "RemoveByRegex"}
    with scenario() as s:
        for name, rpc in sorted(RPCS.items()):
            s(name, *rpc.zero_arguments())
            for answer in s.last:
                assert answer == recorded.get(name, answer), name


def test_every_rpc_with_zero_values_when_there_is_something(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        s.start(A, "writing")
        # An empty pattern matches every key, so the removals come last.
        removals = {"RemoveAll", "RemoveByRegex"}
        for name, rpc in sorted(RPCS.items(), key=lambda item: (item[0] in removals, item[0])):
            s(name, *rpc.zero_arguments())
        # The empty pattern has read what was there, and its lease has kept it.
        s("ExistKey", "k", TENANT, expect=Ok(True))
        s.end(A, "writing", expect=OK)


def test_disk_and_promotion(scenario):
    with scenario() as s:
        s.mount(1)
        s.put(A, "k")
        s.start(A, "writing")
        for key in ("k", "writing", "missing"):
            for kind in (DISK, LOCAL_DISK, MEMORY, ALL):
                s("EvictDiskReplica", A, key, TENANT, kind)
            s("PromotionAllocStart", A, key, TENANT, 1000, ["seg1"])
            s("NotifyPromotionSuccess", A, key, TENANT)
            s("NotifyPromotionFailure", A, key, TENANT)
        s("BatchEvictDiskReplica", A, ["k", "missing"], TENANT, DISK)
        s("BatchEvictDiskReplica", A, ["k", "missing"], TENANT, MEMORY)
        for client in (A, STRANGER):
            for enabled in (False, True):
                s("MountLocalDiskSegment", client, enabled, expect=Err(-1300))
                s("OffloadObjectHeartbeat", client, enabled, expect=Err(-101))
            s("UnmountLocalDiskSegment", client, expect=Err(-1300))
            s("PromotionObjectHeartbeat", client, expect=Err(-101))
            s("PollRemoveAll", client, expect=Err(-101))
            for capacity in (0, 1, -1, 1 << 62, -(1 << 63)):
                s("ReportSsdCapacity", client, capacity)
        s("NotifyOffloadSuccess", A, [], [], expect=OK)
        s("NotifyOffloadSuccess", A, [(TENANT, "k", 5)], [], expect=Err(-600))
        s("NotifyOffloadSuccess", A, [], [(1, 2, 3, 4, "x")], expect=Err(-600))
        s.get("k")


def test_storage_settings(scenario):
    with scenario(quota_bytes=12_345, enable_disk_eviction=False) as s:
        assert isinstance(s("GetStorageConfig"), Ok) and isinstance(s("GetFsdir"), Ok)
        s("ServiceReady")


def test_unknown_functions_and_bad_arguments(scenario):
    with scenario() as s:
        requests = [
            (0x12345678, b""),
            (RPCS["Ping"].function_id, b""),
            (RPCS["Ping"].function_id, b"\x00" * 20),
            (RPCS["Ping"].function_id, RPCS["ExistKey"].encode(("a", "b"))),
            (RPCS["ExistKey"].function_id, RPCS["ExistKey"].encode(("abc", "b"))[:-1]),
            (RPCS["ExistKey"].function_id, RPCS["ExistKey"].encode(("abc", "b")) + b"trailing"),
            (RPCS["ServiceReady"].function_id, b"unexpected body"),
        ]
        for function_id, body in requests:
            left, right = (_raw(side.connection, function_id, body) for side in s.pair.sides)
            assert left == right, f"{function_id:#x} {body.hex()}"
        s("ServiceReady")


def _raw(connection, function_id, body):
    try:
        answer = connection.call_raw(function_id, body)
    except RpcError as error:
        return (error.code, error.message)
    (rpc,) = (rpc for rpc in RPCS.values() if rpc.function_id == function_id)
    return rpc.response.decode(answer)
