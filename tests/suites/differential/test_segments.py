"""Mounting, remounting, unmounting; client status; addresses of clients."""

from messages import MIB, TENANT
from scenario import A, B, C, STRANGER, segment_message
from struct_pack import Err, Ok

OK = Ok(None)
READY, REMOUNT = Ok((0, 1)), Ok((0, 2))


def test_a_client_becomes_ready_by_remounting(scenario):
    with scenario() as s:
        s("Ping", A, expect=REMOUNT)
        s("MountSegment", segment_message(1), A, expect=OK)
        s("Ping", A, expect=REMOUNT)
        s("ReMountSegment", [segment_message(1)], A, expect=OK)
        s("Ping", A, expect=READY)
        s("ReMountSegment", [], C, expect=OK)
        s("Ping", C, expect=READY)
        s("ReMountSegment", [segment_message(2)] * 2, B, expect=OK)
        s("Ping", B, expect=READY)
        s("QuerySegmentStatusById", (2, 2), expect=Ok(1))
        # Without segments a client stays what it was.
        s("UnmountSegment", (1, 1), A)
        s("Ping", A, expect=READY)


def test_mount_checks_little(scenario):
    changes = [
        {"base": 0},
        {"size": 0},
        {"name": ""},
        {"endpoint": ""},
        {"identity": (0, 0)},
        {"base": 0x1234567, "size": 1001},
        {"size": 1},
        {"base": 0x1_0000_0000, "name": "overlaps"},
        {"protocol": "whatever"},
        {"host": ""},
    ]
    with scenario() as s:
        s.mount(1)
        for number, change in enumerate(changes, start=10):
            s("MountSegment", segment_message(number, **change), A)
            s("QuerySegmentStatusById", change.get("identity", (number, number)))
        s("MountSegment", segment_message(30), (0, 0), expect=OK)
        s("QuerySegmentStatus", "", expect=Ok(1))
        s("QuerySegmentStatus", "unknown", expect=Err(-101))
        s("BatchQueryIp", [A, (0, 0), STRANGER, A])


def test_mounting_again(scenario):
    with scenario() as s:
        s.mount(1)
        for change in ({}, {"base": 0x9_0000_0000}, {"size": 128 * MIB}, {"name": "other"}, {"endpoint": "x:1"}):
            s("MountSegment", segment_message(1, **change), A, expect=OK)
        s("MountSegment", segment_message(1), B, expect=OK)
        s("QuerySegmentStatus", "seg1", expect=Ok(1))
        s("QuerySegmentStatus", "other", expect=Err(-101))
        s("BatchQueryIp", [A, B])
        s("PutStart", A, "k", 65 * MIB, (2, 0, 0, 0, None, False, [], "", [], False, 0, "", None), TENANT)


def test_remount_checks_what_is_mounted(scenario):
    differing = [
        {"base": 0x9_0000_0000},
        {"size": MIB},
        {"name": "other"},
        {"endpoint": "10.9.9.9:9"},
        {"protocol": "rdma"},
        {"host": "elsewhere"},
    ]
    with scenario() as s:
        s("MountSegment", segment_message(1), A)
        for change in differing:
            s("ReMountSegment", [segment_message(1, **change)], A)
            s("Ping", A)
    with scenario() as s:
        s("MountSegment", segment_message(1), A)
        s("ReMountSegment", [segment_message(1)], B, expect=Err(-600))
        s("Ping", B, expect=REMOUNT)
        s("ReMountSegment", [segment_message(1)], A, expect=OK)
        # Once ready, a wrong description is still refused, a new one ignored.
        s("ReMountSegment", [segment_message(1, base=0x9_0000_0000)], A, expect=Err(-600))
        s("ReMountSegment", [segment_message(2)], A, expect=OK)
        s("QuerySegmentStatusById", (2, 2), expect=Err(-101))
        for bad in ({"base": 0}, {"size": 0}):
            s("ReMountSegment", [segment_message(3, **bad)], C, expect=Err(-1))
            s("ReMountSegment", [segment_message(4), segment_message(3, **bad)], C)
            s("QuerySegmentStatusById", (3, 3))
            s("QuerySegmentStatusById", (4, 4))
            s("Ping", C)


def test_unmount(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s("UnmountSegment", (7, 7), A, expect=OK)
        # The client is not checked.
        s("UnmountSegment", (2, 2), A, expect=OK)
        s("QuerySegmentStatusById", (2, 2), expect=Err(-101))
        s("Ping", B, expect=READY)
        s("UnmountSegment", (2, 2), B, expect=OK)
        s("MountSegment", segment_message(2), B, expect=OK)
        s("QuerySegmentStatusById", (2, 2), expect=Ok(1))
        s("BatchQueryIp", [A, B])


def test_graceful_unmount(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s.put(A, "same size")
        s("GracefulUnmountSegment", (1, 1), STRANGER, 5, expect=Err(-101))
        s("GracefulUnmountSegment", (1, 1), B, 5, expect=Err(-600))
        s("GracefulUnmountSegment", (7, 7), A, 5, expect=Err(-600))
        s("GracefulUnmountSegment", (1, 1), A, 1_000_000, expect=OK)
        s("QuerySegmentStatus", "seg1", expect=Ok(4))
        s("QuerySegmentStatusById", (1, 1), expect=Ok(4))
        s("GracefulUnmountSegment", (1, 1), A, 1_000_000, expect=OK)
        s("MountSegment", segment_message(1), A, expect=Err(-1010))
        s("ReMountSegment", [segment_message(1)], A)
        s("ReMountSegment", [segment_message(1)], STRANGER)
        s("Ping", A, expect=READY)
        s("BatchQueryIp", [A])
        s.get("k")
        s.start(A, "goes elsewhere", preferred=["seg1", "seg2"])
        s.start(A, "same size", upsert=True)
        s.end(A, "same size")
        s("CopyStart", A, "k", TENANT, "seg2", ["seg1"], expect=Err(-1010))
        s("CopyStart", A, "k", TENANT, "seg1", ["seg2"])
        s("CopyEnd", A, "k", TENANT, expect=OK)
        s("MoveStart", A, "k", TENANT, "seg2", "seg1", expect=Err(-1010))
        s("CreateCopyTask", "k", TENANT, ["seg1"], expect=Err(-1010))
        s("CreateMoveTask", "k", TENANT, "seg2", "seg1", expect=Err(-1010))
        s("UnmountSegment", (1, 1), A, expect=OK)
        s("QuerySegmentStatusById", (1, 1), expect=Err(-101))
        s.get("k")
        s.get("same size", expect=Err(-704))


def test_the_earliest_grace_period_counts(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s("GracefulUnmountSegment", (1, 1), A, 3_000_000, expect=OK)
        s("GracefulUnmountSegment", (1, 1), A, 0, expect=OK)
        s("QuerySegmentStatusById", (1, 1), expect=Err(-101))
        s("GracefulUnmountSegment", (2, 2), B, 2000, expect=OK)
        s("GracefulUnmountSegment", (2, 2), B, 3_000_000, expect=OK)
        s("QuerySegmentStatusById", (2, 2), expect=Ok(4))
        s.rest(3.0)
        s("QuerySegmentStatusById", (2, 2), expect=Err(-101))


def test_addresses_of_clients(scenario):
    endpoints = ["[::1]:80", "[::1]", "fe80::1", "host.name:80", "host.name:81", "", ":80", "10.0.0.1"]
    with scenario() as s:
        for number, endpoint in enumerate(endpoints, start=1):
            owner = (50, 0) if endpoint.startswith("host") else (number, 7)
            s("MountSegment", segment_message(number, endpoint=endpoint), owner, expect=OK)
        found = s("BatchQueryIp", [(number, 7) for number in range(1, 9)] + [(50, 0), STRANGER])
        assert dict(found.value)[50, 0] == ["host.name"] and STRANGER not in dict(found.value)
        s("BatchQueryIp", [], expect=Ok([]))
