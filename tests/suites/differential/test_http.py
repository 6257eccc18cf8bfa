"""What the masters answer over HTTP after the same calls, and how the calls move their metrics."""

import time

import pytest
from calls import TaskRef
from messages import ALL, DISK, ENABLE, MIB, NO_LEASE, SUCCESS, TENANT, config, meta
from pair import self_comparison
from scenario import A, B, C, STRANGER, segment_message
from struct_pack import Err, Ok
from web import ask, compare, moved, samples

GRACE_MS = 3_600_000
STATUS = ["/health", "/role", "/ha_status", "/leader"]
LISTS = ["/get_all_keys", "/get_all_segments", "/get_segments_detail"]
BY_NAME = ["/query_segment?segment=", "/api/v1/segments/status?segment="]


def about(*names):
    """Every question about segments, for these names."""
    return LISTS[1:] + [path + name for path in BY_NAME for name in names]


def test_a_master_without_anything(scenario):
    with scenario() as s:
        for path in STATUS + LISTS + about("seg1") + ["/query_key?key=k", "/batch_query_keys?keys=k"]:
            compare(s, path)
        assert compare(s, "/api/v1/remove_all", "POST").json() == {"success": True, "removed_count": 0}


def test_every_route(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        # Ours gives memory out in units of 64 bytes.
        s.put(A, "one", 1024)
        s.put(A, "two", 2048, replicas=2)
        s.put(A, "a+b", 64)
        s.start(A, "unfinished", 1024)
        for path in STATUS + LISTS + about("seg1", "seg2", "unknown"):
            compare(s, path)
        for key in ("one", "two", "a+b", "unfinished", "unknown"):
            compare(s, f"/query_key?key={key}")
        assert [compare(s, f"/query_key?key={key}").status for key in ("one", "unknown")] == [200, 404]
        assert sorted(compare(s, "/get_all_keys").body.split()) == ["a+b", "one", "two"]
        for query in ("", "?", "?key", "?key=", "?KEY=one", "?x=1&key=one", "?key=unknown&key=one"):
            compare(s, f"/query_key{query}")
        for keys in ("one", "one,two,unknown,unfinished", "one,,one", ",", "%6Fne", "a%2Bb", "a%20b%2Cone", "one%00"):
            compare(s, f"/batch_query_keys?keys={keys}")
        for query in ("", "?keys", "?keys=", "?KEYS=one"):
            compare(s, f"/batch_query_keys{query}")
        for path in BY_NAME:
            for query in (path, path.removesuffix("="), path.partition("?")[0], path.replace("segment=", "Segment=seg1")):
                compare(s, query)
        compare(s, "/api/v1/segments/status?segment=seg%31")
        for method, path in (("POST", "/health"), ("GET", "/api/v1/remove_all"), ("GET", "/unknown"), ("GET", "/")):
            compare(s, path, method)


def test_a_query_grants_a_lease_and_a_batch_query_does_not(scenario):
    with scenario() as s:
        s.mount(1)
        s.put(A, "queried")
        s.put(A, "peeked at")
        assert compare(s, "/query_key?key=queried").status == 200
        assert compare(s, "/batch_query_keys?keys=peeked%20at").json()["data"]["peeked at"]["ok"]
        s.remove("queried", expect=Err(-706))
        s.remove("peeked at", expect=Ok(None))


def test_removal_of_everything(scenario):
    with scenario() as s:
        s.mount(1)
        for key in ("leased", "free", "free too"):
            s.put(A, key)
        s.start(A, "unfinished")
        s.get("leased")
        for query, count in (("", 2), ("?force=True", 0), ("?force=false", 0), ("?force=true", 1), ("?force=1", 0)):
            assert compare(s, f"/api/v1/remove_all{query}", "POST").json()["removed_count"] == count
            compare(s, "/get_all_keys")
        s.end(A, "unfinished", expect=Ok(None))


def test_a_draining_segment(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "k")
        s("GracefulUnmountSegment", (1, 1), A, GRACE_MS, expect=Ok(None))
        for path in about("seg1", "seg2"):
            compare(s, path)
        # It is out of the pool, but what lies there can be read.
        assert ask(s.pair.left, "/get_all_segments").body == "seg2\n"
        assert ask(s.pair.left, "/query_segment?segment=seg1").status == 500
        assert compare(s, "/api/v1/segments/status?segment=seg1").json()["status_name"] == "GRACEFULLY_UNMOUNTING"
        compare(s, "/query_key?key=k")
        s("UnmountSegment", (1, 1), A)
        for path in about("seg1", "seg2"):
            compare(s, path)


@pytest.mark.parametrize("drained", [1, 2], ids=["the first drains", "the second drains"])
def test_several_segments_of_one_name(scenario, drained):
    names = ["/get_all_segments", *(path + "shared" for path in BY_NAME)]
    with scenario() as s:
        s.mount(1, 2, name="shared")
        s.put(A, "k", 32 * MIB, preferred=["shared"], loose=True)
        s.put(A, "two", 40 * MIB, preferred=["shared"], loose=True)
        for path in names:
            compare(s, path)
        s("RemoveAll", True, TENANT)
        s("GracefulUnmountSegment", (drained, drained), (drained, drained), GRACE_MS, expect=Ok(None))
        # The one that was mounted last speaks for all.
        s("QuerySegmentStatus", "shared", expect=Ok(4 if drained == 2 else 1))
        for path in names:
            compare(s, path)
        s.put(A, "three", 4096, preferred=["shared"])
        assert compare(s, "/query_segment?segment=shared").body.startswith("shared\nUsed(bytes): 4096\n")
        s("GracefulUnmountSegment", (3 - drained,) * 2, (3 - drained,) * 2, GRACE_MS, expect=Ok(None))
        s("QuerySegmentStatus", "shared", expect=Ok(4))
        for path in names:
            compare(s, path)


def test_details_of_segments_that_share_a_name(scenario):
    """The reference looks owner, state and use up by name, so each of them shows those of another or of all; ours shows
    its own: docs/metrics.md."""
    with scenario() as s:
        s.mount(1, 2, name="shared")
        s("GracefulUnmountSegment", (1, 1), A, GRACE_MS, expect=Ok(None))
        s.put(A, "k", 1024, preferred=["shared"])
        fields = ("segment_id", "client_id", "status", "allocator_used_bytes", "allocator_capacity_bytes")
        reference, ours = (
            sorted(tuple(each[name] for name in fields) for each in ask(side, "/get_segments_detail").json()["segments"])
            for side in s.pair.sides
        )
        assert reference == [("1-1", "2-2", "OK", 1024, 64 * MIB), ("2-2", "2-2", "OK", 1024, 64 * MIB)]
        if not self_comparison():
            assert ours == [("1-1", "1-1", "GRACEFULLY_UNMOUNTING", 0, 0), ("2-2", "2-2", "OK", 1024, 64 * MIB)]


CALLS = [
    *((name, arguments) for number in (1, 2, 3) for name, arguments in (
        ("MountSegment", (segment_message(number), (number, number))),
        ("ReMountSegment", ([segment_message(number)], (number, number))),
    )),
    ("MountSegment", (segment_message(4, base=0), A)),
    ("ReMountSegment", ([segment_message(1)], STRANGER)),
    ("Ping", (A,)),
    ("Ping", (STRANGER,)),
    # One object after the other.
    ("PutStart", (A, "k", 1024, config(1, preferred=["seg1"]), TENANT)),
    ("PutStart", (A, "k", 1024, config(1, preferred=["seg1"]), TENANT)),
    ("PutStart", (A, "nothing", 0, config(1), TENANT)),
    ("GetReplicaList", ("k", TENANT)),
    ("PutEnd", (A, meta("k"), ALL, TENANT)),
    ("PutEnd", (A, meta("unknown"), ALL, TENANT)),
    ("PutStart", (A, "revoked", 1024, config(1, preferred=["seg1"]), TENANT)),
    ("PutRevoke", (A, "revoked", ALL, TENANT)),
    ("PutRevoke", (A, "revoked", ALL, TENANT)),
    ("PutStart", (A, "in four places", 1024, config(4), TENANT)),
    ("PutEnd", (A, meta("in four places"), ALL, TENANT)),
    ("ExistKey", ("k", TENANT)),
    ("ExistKey", ("unknown", TENANT)),
    ("GetReplicaList", ("k", TENANT)),
    ("GetReplicaList", ("unknown", TENANT)),
    ("GetReplicaListByRegex", ("^k", TENANT)),
    ("GetReplicaListByRegex", ("(", TENANT)),
    ("UpsertStart", (A, "k", 1024, config(1, preferred=["seg1"]), TENANT)),
    ("UpsertStart", (A, "upserted", 2048, config(1, preferred=["seg1"]), TENANT)),
    ("UpsertEnd", (A, meta("upserted"), ALL, TENANT)),
    ("UpsertStart", (A, "upserted", 4096, config(1, preferred=["seg1"]), TENANT)),
    ("UpsertStart", (A, "upserted", 8192, config(1, preferred=["seg1"]), TENANT)),
    ("UpsertStart", (A, "upserted", 8192, config(1, preferred=["seg1"]), TENANT)),
    ("UpsertRevoke", (A, "upserted", ALL, TENANT)),
    ("UpsertStart", (A, "upserted", 2048, config(1, preferred=["seg1"]), TENANT)),
    ("UpsertEnd", (A, meta("upserted"), ALL, TENANT)),
    ("UpsertEnd", (A, meta("unknown"), ALL, TENANT)),
    ("UpsertRevoke", (A, "unknown", ALL, TENANT)),
    # Batches: of all, of some, of none.
    ("BatchPutStart", (A, ["b1", "b2"], [128, 256], config(1, preferred=["seg2"]), TENANT)),
    ("BatchPutStart", (A, ["b1", "b3"], [128, 320], config(1, preferred=["seg2"]), TENANT)),
    ("BatchPutStart", (A, ["b1"], [128], config(1, preferred=["seg2"]), TENANT)),
    ("BatchPutEnd", (A, [meta("b1"), meta("unknown")], ALL, TENANT)),
    ("BatchPutEnd", (A, [meta("b2")], ALL, TENANT)),
    ("BatchPutEnd", (A, [meta("unknown")], ALL, TENANT)),
    ("BatchPutRevoke", (A, ["b3", "unknown"], ALL, TENANT)),
    ("BatchPutRevoke", (A, ["unknown"], ALL, TENANT)),
    ("BatchUpsertStart", (A, ["b1", "b4"], [128, 448], config(1, preferred=["seg2"]), TENANT)),
    ("BatchUpsertEnd", (A, [meta("b4"), meta("unknown")], TENANT)),
    ("BatchUpsertRevoke", (A, ["unknown"], TENANT)),
    ("BatchExistKey", (["b2", "unknown"], TENANT)),
    ("BatchExistKey", ([], TENANT)),
    ("BatchGetReplicaList", (["b2", "unknown"], TENANT)),
    ("BatchGetReplicaList", (["unknown", "unknown"], TENANT)),
    ("BatchGetReplicaList", (["b2", "k"], TENANT)),
    ("BatchGetReplicaList", ([], TENANT)),
    ("BatchQueryIp", ([A, B],)),
    ("BatchQueryIp", ([A, STRANGER],)),
    ("BatchQueryIp", ([STRANGER],)),
    ("BatchReplicaClear", (["unknown"], A, "")),
    ("BatchReplicaClear", ([], A, "")),
    ("BatchPutStart", (A, ["c1", "c2"], [128, 128], config(1, preferred=["seg2"]), TENANT)),
    ("BatchPutEnd", (A, [meta("c1"), meta("c2")], ALL, TENANT)),
    ("BatchReplicaClear", (["c1", "unknown"], A, "")),
    ("BatchReplicaClear", (["c2"], A, "seg2")),
    ("BatchPutStart", (A, [], [], config(1), TENANT)),
    ("BatchPutEnd", (A, [], ALL, TENANT)),
    ("BatchPutRevoke", (A, [], ALL, TENANT)),
    ("BatchUpsertStart", (A, [], [], config(1), TENANT)),
    ("BatchQueryIp", ([],)),
    ("BatchQueryIp", ([A, A, STRANGER, STRANGER],)),
    ("BatchRemove", ([], False, TENANT)),
    ("EvictDiskReplica", (A, "k", TENANT, DISK)),
    ("EvictDiskReplica", (A, "unknown", TENANT, DISK)),
    # Copies, moves and tasks.
    ("PutStart", (A, "travels", 1024, config(1, preferred=["seg1"]), TENANT)),
    ("PutEnd", (A, meta("travels"), ALL, TENANT)),
    ("CopyStart", (A, "travels", TENANT, "seg1", ["seg2"])),
    ("CopyStart", (A, "unknown", TENANT, "seg1", ["seg2"])),
    ("CopyEnd", (A, "travels", TENANT)),
    ("CopyEnd", (A, "travels", TENANT)),
    ("CopyStart", (A, "travels", TENANT, "seg1", ["seg3"])),
    ("CopyRevoke", (A, "travels", TENANT)),
    ("CopyRevoke", (A, "travels", TENANT)),
    ("DynamicReplicaCopyStart", (A, "travels", TENANT, "seg1", ["seg3"], NO_LEASE, 0)),
    ("DynamicReplicaCopyEnd", (A, "travels", TENANT, NO_LEASE, 0)),
    ("DynamicReplicaCopyRevoke", (A, "travels", TENANT, NO_LEASE, 0)),
    ("PutStart", (A, "moves", 1024, config(1, preferred=["seg1"]), TENANT)),
    ("PutEnd", (A, meta("moves"), ALL, TENANT)),
    ("MoveStart", (A, "moves", TENANT, "seg1", "seg3")),
    ("MoveStart", (A, "unknown", TENANT, "seg1", "seg3")),
    ("MoveRevoke", (A, "moves", TENANT)),
    ("MoveRevoke", (A, "moves", TENANT)),
    ("MoveStart", (A, "moves", TENANT, "seg1", "seg3")),
    ("MoveEnd", (A, "moves", TENANT)),
    ("MoveEnd", (A, "moves", TENANT)),
    ("CreateCopyTask", ("moves", TENANT, ["seg2"])),
    ("CreateCopyTask", ("unknown", TENANT, ["seg2"])),
    ("CreateMoveTask", ("moves", TENANT, "seg3", "seg2")),
    ("CreateMoveTask", ("unknown", TENANT, "seg3", "seg2")),
    ("QueryTask", (TaskRef(1),)),
    ("QueryTask", ((5, 5),)),
    ("FetchTasks", (C, 10)),
    ("FetchTasks", (STRANGER, 10)),
    ("MarkTaskToComplete", (C, (TaskRef(1), SUCCESS, ""))),
    ("MarkTaskToComplete", (C, ((5, 5), SUCCESS, ""))),
    # Over HTTP.
    ("GET", ("/query_key?key=k",)),
    ("GET", ("/query_key?key=unknown",)),
    ("GET", ("/batch_query_keys?keys=k,unknown",)),
    ("GET", ("/get_all_keys",)),
    ("GET", ("/get_segments_detail",)),
    ("GET", ("/query_segment?segment=unknown",)),
    ("GET", ("/api/v1/segments/status?segment=unknown",)),
    # What ends objects.
    ("Remove", ("unknown", False, TENANT)),
    ("Remove", ("k", False, TENANT)),
    ("Remove", ("moves", False, TENANT)),
    ("BatchRemove", (["b4", "unknown"], False, TENANT)),
    ("RemoveByRegex", ("^upserted$", False, TENANT)),
    ("RemoveByRegex", ("(", False, TENANT)),
    ("PutStart", (A, "pinned", 1024, config(1, preferred=["seg1"], soft_pin=ENABLE), TENANT)),
    ("PutEnd", (A, meta("pinned"), ALL, TENANT)),
    ("POST", ("/api/v1/remove_all",)),
    ("POST", ("/api/v1/remove_all?force=true",)),
    ("RemoveAll", (False, TENANT)),
    ("RemoveAll", (True, TENANT)),
    ("GracefulUnmountSegment", ((3, 3), STRANGER, GRACE_MS)),
    ("GracefulUnmountSegment", ((3, 3), C, GRACE_MS)),
    ("UnmountSegment", ((2, 2), B)),
    ("UnmountSegment", ((9, 9), B)),
    # Last, because it makes the masters evict in their own time.
    ("PutStart", (A, "too large", 100 * MIB, config(1), TENANT)),
]
# Ours alone; about replication, of which there is none; rounds of eviction, which come in their own time; and the
# histogram, in which ours counts writes in place, too.
APART = (
    "moonkeeper_",
    "ha_",
    "master_attempted_evictions_total",
    "master_successful_evictions_total",
    "master_value_size_bytes",
)
# What is swept up or counted behind a call has been by then.
SETTLED_SECONDS = 1.0


def differing(before, after):
    """What moved differently on the two masters, with how it moved on each."""
    left, right = (moved(*each) for each in zip(before, after))
    return {
        name: (left.get(name, 0), right.get(name, 0))
        for name in sorted(left.keys() | right.keys())
        if left.get(name) != right.get(name) and not name.startswith(APART)
    }


def test_metrics_move_alike(scenario):
    """One call after the other, each with what it adds to every counter and gauge of the reference."""
    with scenario(client_ttl=3600) as s:
        before = [samples(side) for side in s.pair.sides]
        for name, arguments in CALLS:
            if name in ("GET", "POST"):
                compare(s, *arguments, name)
            else:
                # The one task that is created.
                token = 1 if name == "CreateCopyTask" and arguments[0] == "moves" else None
                s(name, *arguments, token=token, loose=True)
            end = time.monotonic() + SETTLED_SECONDS
            while True:
                after = [samples(side) for side in s.pair.sides]
                different = differing(before, after)
                if not different or time.monotonic() > end:
                    break
                time.sleep(0.05)
            if different:
                s.differences.append(f"{name}{arguments!r} moves (reference, ours): {different}")
            before = after
        untouched = [name for name, value in before[0].items() if name.endswith("_requests_total") and not value]
        assert untouched == [], "the calls move every counter of requests"
