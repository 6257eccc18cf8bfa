"""What the masters answer over HTTP after the same calls."""

import pytest
from messages import MIB, TENANT
from pair import self_comparison
from scenario import A
from struct_pack import Err, Ok
from web import ask, compare

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
