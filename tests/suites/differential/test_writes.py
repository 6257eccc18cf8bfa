"""Put and upsert: checks and their order, ends, revokes, batches, groups."""

import pytest
from messages import ALL, DFS, DISABLE, DISK, ENABLE, LOCAL_DISK, MEMORY, MIB, NOF_SSD, TENANT, config, meta
from scenario import A, B, C, STRANGER, placed
from struct_pack import Err, Ok

OK = Ok(None)
START = pytest.mark.parametrize("start", ["PutStart", "UpsertStart"])


@START
def test_start_without_segments(scenario, start):
    with scenario() as s:
        s(start, A, "k", 10, config(), TENANT, expect=Err(-200))
        s(f"Batch{start}", A, ["k", "l"], [1, 2], config(), TENANT, expect=[Err(-200), Err(-200)])


@START
def test_parameters_are_checked_before_the_key(scenario, start):
    bad = [
        config(0),
        config(1, dfs=2),
        config(0, dfs=1),
        config(1, nof=1),
        config(0, nof=1),
        config(1, nof=1, same_node=True),
        config(1, soft_pin_ttl=5),
        config(1, soft_pin=DISABLE, soft_pin_ttl=5),
        config(1, soft_pin=ENABLE, soft_pin_ttl=86_400_001),
        config(1, soft_pin=3),
        config(1, groups=[]),
        config(1, groups=["a", "b"]),
    ]
    with scenario() as s:
        s.mount(1)
        s.put(A, "exists")
        for key in ("exists", "new"):
            for options in bad:
                s(start, A, key, 10, options, TENANT, expect=Err(-600))
            s(start, A, key, 10, config(1, dfs=1), TENANT, expect=Err(-1601))
            s(start, A, key, 0, config(), TENANT, expect=Err(-600))
        s(start, A, "", 10, config(), TENANT, expect=Err(-600))
        # The order among the checks.
        s(start, A, "", 10, config(1, dfs=1), TENANT, expect=Err(-600))
        s(start, A, "new", 10, config(1, dfs=1, nof=1), TENANT, expect=Err(-1601))
        s(start, A, "new", 10, config(1, dfs=1, soft_pin=3), TENANT, expect=Err(-1601))
        s.get("exists")


@START
def test_odd_but_accepted(scenario, start):
    with scenario() as s:
        s.mount(1)
        accepted = [
            ("max-ttl", config(1, soft_pin=ENABLE, soft_pin_ttl=86_400_000)),
            ("zero-ttl", config(1, soft_pin=ENABLE, soft_pin_ttl=0)),
            ("data-type", config(1, data_type=77)),
            ("no-group", config(1, groups=[""])),
            ("same-node", config(1, same_node=True)),
            ("nul\0key", config()),
            ("\udcff\udcfe", config()),
            ("x" * 4000, config()),
        ]
        for key, options in accepted:
            s(start, STRANGER, key, 10, options, "_any\x01tenant")
            s("PutEnd", STRANGER, meta(key), ALL, "")
            s("ExistKey", key, "yet another", expect=Ok(True))


def test_more_replicas_than_segments(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        assert sorted(placed(s.start(A, "five", replicas=5))) == [1, 2, 3]
        s.end(A, "five", expect=OK)
        s.get("five")
        # Asked for more replicas than there are segments, so that the refusal
        # does not start an eviction.
        for size in (65 * MIB, 1 << 63, (1 << 64) - 1):
            assert placed(s.start(A, "large", size, replicas=5)) == -200
        # Two replicas wanted, one fits.
        assert placed(s.put(A, "filler", 60 * MIB)) == [1]
        assert placed(s.put(A, "third filler", 60 * MIB, preferred=["seg3"])) == [3]
        assert placed(s.start(A, "partial", 10 * MIB, replicas=2, preferred=["seg1", "seg2"])) == [2]


def test_preference(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        for key, expected, options in (
            ("second", [2], dict(preferred=["seg2"])),
            ("deprecated field", [2], dict(preferred=[], preferred_single="seg2")),
            ("deprecated field wins", [2], dict(preferred=["seg3"], preferred_single="seg2")),
            ("unknown first", [3], dict(preferred=["nope", "seg3", "seg1"])),
            ("two in order", [3, 1], dict(replicas=2, preferred=["seg3", "seg1"])),
            ("twice the same", [3, 2, 1], dict(replicas=3, preferred=["seg3", "seg3", "seg2", "seg1"])),
            ("endpoint is no name", [2], dict(preferred=["10.0.0.3:7003", "seg2"])),
        ):
            assert placed(s.start(A, key, **options)) == expected, key
        assert len(placed(s.start(A, "unknown only", preferred=["nope"], loose=True))) == 1
        assert placed(s.put(A, "filler", 60 * MIB, preferred=["seg1"])) == [1]
        assert placed(s.start(A, "preferred one is full", 10 * MIB, preferred=["seg1", "seg2"])) == [2]


def test_same_name_twice_is_one_place(scenario):
    with scenario() as s:
        s.mount(1, 2, name="same")
        s.mount(3)
        s.start(A, "three wanted", replicas=3, preferred=["seg3", "same"], loose=True)
        s("QuerySegmentStatus", "same", expect=Ok(1))
        s("GracefulUnmountSegment", (1, 1), A, 600_000)
        s("QuerySegmentStatus", "same", expect=Ok(1))
        for number in range(5):
            s.start(A, f"only the second is left {number}", preferred=["same"])
        s("GracefulUnmountSegment", (2, 2), B, 600_000)
        s("QuerySegmentStatus", "same", expect=Ok(4))
        s.start(A, "none left", preferred=["same", "seg3"])


def test_same_node(scenario):
    with scenario() as s:
        for number in (1, 2, 3):
            s.mount(number, name=f"10.0.0.{number}:700{number}")
        names = [f"10.0.0.{number}:700{number}" for number in (3, 1, 2)]
        keys = [f"k{number}" for number in range(5)]
        s("BatchPutStart", A, keys, [1] * 5, config(1, same_node=True, preferred=names), TENANT)
        # The last replica of the first key decides, and replaces the preference.
        more = [f"m{number}" for number in range(5)]
        s("BatchPutStart", A, more, [1] * 5, config(2, same_node=True, preferred=names), TENANT, loose=True)
        for answer in s.last:
            assert all(item.value[0][1][1][0][3] == names[1] for item in answer[1:])
        upserts = [f"u{number}" for number in range(5)]
        s("BatchUpsertStart", A, upserts, [1] * 5, config(1, same_node=True, preferred=names), TENANT)


@pytest.mark.parametrize("kind", [MEMORY, DISK, LOCAL_DISK, NOF_SSD, ALL, DFS, 5, -1])
def test_end_and_revoke_of_each_kind(scenario, kind):
    with scenario() as s:
        s.mount(1)
        s.start(A, "ended")
        s.end(B, "ended", kind, expect=Err(-601))
        s.end(A, "ended", kind, checksum=1)
        s("ExistKey", "ended", TENANT)
        s.get("ended")
        s.end(A, "ended", kind, checksum=2)
        s.end(A, "ended", ALL, checksum=3)
        s.end(A, "ended", kind, checksum=4)
        s.end(B, "ended", kind, expect=Err(-601))
        s.get("ended")
        s("PutRevoke", A, "ended", kind, TENANT)
        s.start(A, "revoked")
        s("PutRevoke", B, "revoked", kind, TENANT, expect=Err(-601))
        s("PutRevoke", A, "revoked", kind, TENANT)
        s.end(A, "revoked")
        s("PutRevoke", A, "revoked", kind, TENANT)
        s.get("revoked")
        s.end(A, "missing", kind, expect=Err(-704))
        s("PutRevoke", A, "missing", kind, TENANT, expect=Err(-704))


def test_batches(scenario):
    with scenario() as s:
        s.mount(1)
        for start in ("BatchPutStart", "BatchUpsertStart"):
            key = start
            s(start, A, [key, key, "", "zero"], [1, 2, 3, 0], config(), TENANT)
            s(start, A, ["x", "y"], [1], config(), TENANT, expect=[Err(-600)] * 2)
            s(start, A, ["x"], [1, 2], config(), TENANT, expect=[Err(-600)])
            s(start, A, [], [1], config(), TENANT, expect=[])
            s(start, A, ["x", "y"], [1, 1], config(groups=["g"]), TENANT, expect=[Err(-600)] * 2)
            s(start, A, [f"{key}g", f"{key}h"], [1, 1], config(groups=["g", ""]), TENANT)
        s("BatchPutEnd", A, [meta("BatchPutStart"), meta("zz"), meta("BatchPutStart", 5)], ALL, TENANT)
        s("BatchUpsertEnd", A, [meta("BatchUpsertStart", 1), meta("zz"), meta("BatchUpsertStart", 2)], TENANT)
        s("BatchGetReplicaList", ["BatchPutStart", "BatchUpsertStart", "zz"], TENANT)
        s("BatchPutRevoke", A, ["BatchPutStart", "BatchPutStartg", "zz", "BatchPutStartg"], ALL, TENANT)
        s("BatchUpsertRevoke", B, ["BatchUpsertStartg"], TENANT, expect=[Err(-601)])
        s("BatchUpsertRevoke", A, ["BatchUpsertStart", "BatchUpsertStartg", "zz", "BatchUpsertStartg"], TENANT)


def test_large_batch_and_long_strings(scenario):
    with scenario() as s:
        s.mount(1)
        keys = [f"key-{number:04}" for number in range(400)]
        s("BatchPutStart", A, keys, [10] * 400, config(), TENANT)
        s("BatchPutEnd", A, [meta(key, number) for number, key in enumerate(keys)], ALL, TENANT)
        s("BatchExistKey", [*keys, "none"], TENANT)
        s("BatchGetReplicaList", keys, TENANT)
        s("GetReplicaListByRegex", "key-0[0-9]*", TENANT)
        s("BatchRemove", keys[:300], True, TENANT)
        s("RemoveAll", True, TENANT, expect=100)


def test_upsert_in_place(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k", replicas=2)
        s.get("k")
        # Neither replica count nor preference matter; the owner changes.
        s.start(C, "k", replicas=1, upsert=True, preferred=["seg3"])
        s.get("k", expect=Err(-703))
        s("ExistKey", "k", TENANT, expect=Ok(False))
        s.end(A, "k", expect=Err(-601))
        s("UpsertEnd", C, meta("k", 5), MEMORY, TENANT, expect=OK)
        s.get("k")
        s.remove("k", expect=Err(-706))
        s.start(A, "k", upsert=True)
        s("UpsertRevoke", B, "k", ALL, TENANT, expect=Err(-601))
        s("UpsertRevoke", A, "k", ALL, TENANT, expect=OK)
        s.get("k", expect=Err(-704))


def test_upsert_with_another_size(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k", 1000)
        s.get("k")
        s.start(B, "k", 2000, upsert=True, preferred=["seg2"])
        s.get("k", expect=Err(-703))
        s("UpsertEnd", B, meta("k"), ALL, TENANT)
        s.remove("k", expect=OK)
        s.put(A, "k", 1000)
        s.start(B, "k", 2000, upsert=True)
        s("UpsertRevoke", B, "k", ALL, TENANT)
        s.get("k", expect=Err(-704))


def test_upsert_preempts(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.start(A, "put")
        s.start(B, "put", upsert=True, preferred=["seg2"])
        s.end(A, "put", expect=Err(-601))
        s("PutRevoke", A, "put", ALL, TENANT, expect=Err(-601))
        s.end(B, "put", expect=OK)
        s.get("put")
        # The same client may end the second write with either call.
        s.start(A, "own")
        s.start(A, "own", upsert=True, preferred=["seg2"])
        s.end(A, "own", expect=OK)
        s.get("own")
        # An in-place upsert that is preempted has lost the old object.
        s.start(A, "own", upsert=True)
        s.start(B, "own", upsert=True, preferred=["seg3"])
        s("UpsertRevoke", B, "own", ALL, TENANT, expect=OK)
        s.get("own", expect=Err(-704))
        s("PutStart", A, "put", 10, config(), TENANT, expect=Err(-705))


def test_groups_do_not_change(scenario):
    with scenario() as s:
        s.mount(1)
        s.put(A, "grouped", groups=["g"])
        s.put(A, "alone")
        for groups, code in ((["h"], -600), ([""], -600)):
            s("UpsertStart", A, "grouped", 1000, config(groups=groups), TENANT, expect=Err(code))
        s("UpsertStart", A, "alone", 1000, config(groups=["g"]), TENANT, expect=Err(-600))
        s.start(A, "alone", upsert=True, groups=[""])
        s.end(A, "alone")
        s.start(A, "grouped", upsert=True)
        s.end(A, "grouped")
        s.start(A, "grouped", 2000, upsert=True)
        s.end(A, "grouped")
        s.put(A, "member", groups=["g"])
        # Reading one member leases them all.
        s("ExistKey", "member", TENANT, expect=Ok(True))
        s.remove("grouped", expect=Err(-706))
        s.remove("alone", expect=OK)
        # Joining a leased group gives no lease, the next read of a member does.
        s.put(A, "late", groups=["g"])
        s.remove("late", expect=OK)
        s.put(A, "late", groups=["g"])
        s.start(A, "unfinished", groups=["g"])
        s("ExistKey", "member", TENANT)
        s.remove("late", expect=Err(-706))
        s.end(A, "unfinished")
        s.remove("unfinished", expect=Err(-706))


def test_a_preempted_write_leaves_nothing_behind(scenario):
    with scenario() as s:
        s.mount(1)
        s.start(A, "k", groups=["g"], hard_pin=True)
        s.start(B, "k", upsert=True)
        s("UpsertEnd", B, meta("k"), ALL, TENANT, expect=OK)
        s("UpsertStart", B, "k", 1000, config(groups=["g"]), TENANT, expect=Err(-600))
        s.start(A, "no room", 10)
        s.start(B, "no room", 100 * MIB, replicas=3, upsert=True, preferred=["seg1"])
        s.get("no room", expect=Err(-704))


def test_a_replica_keeps_its_id(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        seen = [set(), set()]
        for key in ("first", "second"):
            s.start(A, key, replicas=2)
            started = [[replica[0] for replica in answer.value] for answer in s.last]
            s.end(A, key)
            s("CopyStart", A, key, TENANT, "seg1", ["seg3"])
            copied = [[replica[0] for replica in answer.value[1]] for answer in s.last]
            s("CopyEnd", A, key, TENANT)
            s.get(key)
            for number, answer in enumerate(s.last):
                identities = [replica[0] for replica in answer.value[0]]
                assert identities == started[number] + copied[number]
                assert not seen[number] & set(identities)
                seen[number] |= set(identities)


def test_checksums(scenario):
    with scenario() as s:
        s.mount(1)
        s.start(A, "k", 10)
        s.end(A, "k", checksum=99, expect=OK)
        assert s.get("k").value[2] == 99
        for size, checksum in ((10, None), (10, 12), (20, None), (20, 1 << 63)):
            s.start(A, "k", size, upsert=True)
            s("UpsertEnd", A, meta("k", checksum), ALL, TENANT, expect=OK)
            assert s.get("k").value[2] == checksum
        s.end(A, "k", checksum=5)
        s.get("k")
        s.start(A, "disk", 10)
        s.end(A, "disk", DISK, checksum=3)
        s.end(A, "disk", ALL)
        s.get("disk")
