"""Who survives when memory runs out.

Each scenario fills three segments of twenty objects, then crosses the line by
one put and waits: which objects are gone follows from the rule alone. The
masters look every few milliseconds, so two puts in a row could meet one round
of eviction or two; one put at a time cannot.
"""

import pytest
from messages import DISABLE, ENABLE, MIB, PRESERVE, TENANT, meta
from scenario import A, B
from struct_pack import Err, Ok

SEGMENTS = ["seg1", "seg2", "seg3"]
CAPACITY = 60
# 0.9 of the capacity: with one more object eviction starts.
FULL = 54
LEASE_MS = 300
# Longer than a lease and than the pause between two looks at the memory.
REST = 0.5


@pytest.fixture
def memory(scenario):
    """Masters with three segments of 20 MiB and short leases."""

    def make(**flags):
        s = scenario(default_kv_lease_ttl=LEASE_MS, client_ttl=3600, **flags)
        s.mount(1, 2, 3, size=20 * MIB)
        return s

    return make


def fill(s, prefix, count, offset=0, **options):
    """One-MiB objects, spread evenly; returns their keys."""
    keys = [f"{prefix}{number:02}" for number in range(offset, offset + count)]
    for number, key in enumerate(keys):
        place = SEGMENTS[number % 3 :] + SEGMENTS[: number % 3]
        s.put(A, key, MIB, preferred=place, **options)
    return keys


def cross(s, key="straw", **options):
    """One more object, and the time to evict for it."""
    s.put(A, key, MIB, preferred=SEGMENTS[::-1], **options)
    s.rest(REST)


def survivors(s, keys):
    """Which of the keys are left, on both masters alike."""
    answer = s("BatchExistKey", keys, TENANT)
    return [key for key, item in zip(keys, answer) if item == Ok(True)]


def test_the_least_recently_used_go(memory):
    with memory() as s:
        keys = fill(s, "k", FULL)
        for key in keys[:4]:
            s.get(key)
        s.rest(REST)
        cross(s)
        # 55 of 60 used: 0.0667 of 55 objects, rounded up.
        left = survivors(s, keys)
        assert left == keys[:4] + keys[8:]


def test_a_write_renews_the_clock(memory):
    with memory() as s:
        keys = fill(s, "k", FULL)
        for key in keys[:3]:
            s.start(B, key, MIB, upsert=True)
            s.end(B, key)
        cross(s)
        assert survivors(s, keys) == keys[:3] + keys[7:]


def test_leased_objects_stay(scenario):
    with scenario(default_kv_lease_ttl=60_000, client_ttl=3600) as s:
        s.mount(1, 2, 3, size=20 * MIB)
        keys = fill(s, "k", FULL)
        s("BatchExistKey", keys, TENANT)
        cross(s, "unleased")
        s.get("unleased", expect=Err(-704))
        extra = fill(s, "h", CAPACITY - FULL, hard_pin=True)
        s.start(A, "no room", MIB)
        s.rest(REST)
        assert survivors(s, [*keys, *extra]) == [*keys, *extra]


def test_pinned_objects(memory):
    with memory() as s:
        hard = fill(s, "h", 10, hard_pin=True)
        soft = fill(s, "s", 10, soft_pin=ENABLE)
        plain = fill(s, "p", FULL - 20)
        cross(s)
        assert survivors(s, hard) == hard
        assert survivors(s, soft) == soft
        assert len(survivors(s, plain)) < len(plain)


def test_soft_pinned_objects_go_when_there_is_nothing_else(memory):
    with memory() as s:
        keys = fill(s, "s", FULL, soft_pin=ENABLE)
        cross(s, soft_pin=ENABLE)
        assert len(survivors(s, keys)) < FULL


def test_soft_pinned_objects_stay_if_so_told(memory):
    with memory(allow_evict_soft_pinned_objects=False) as s:
        keys = fill(s, "s", FULL, soft_pin=ENABLE)
        cross(s, soft_pin=ENABLE)
        assert survivors(s, keys) == keys


def test_hard_pinned_objects_fill_the_memory(memory):
    with memory() as s:
        keys = fill(s, "h", CAPACITY, hard_pin=True)
        s.start(A, "no room", MIB)
        s.rest(REST)
        assert survivors(s, keys) == keys


def test_soft_pins_end_are_kept_and_are_taken_off(memory):
    with memory() as s:
        lapsed = fill(s, "l", 4, soft_pin=ENABLE, soft_pin_ttl=100)
        never = fill(s, "n", 4, soft_pin=ENABLE, soft_pin_ttl=0)
        pinned = fill(s, "p", 4, soft_pin=ENABLE)
        freed = fill(s, "f", 4, soft_pin=ENABLE)
        kept = fill(s, "k", 4, soft_pin=ENABLE)
        resized = fill(s, "r", 4, soft_pin=ENABLE)
        late = fill(s, "t", 4)
        for keys, action, size in (
            (freed, DISABLE, MIB),
            (kept, PRESERVE, MIB),
            (resized, PRESERVE, MIB // 2),
            (late, ENABLE, MIB),
        ):
            for key in keys:
                s.start(B, key, size, upsert=True, soft_pin=action)
                s("UpsertEnd", B, meta(key), 4, TENANT)
        plain = fill(s, "x", 24)
        s.rest(REST)
        everything = [*lapsed, *never, *pinned, *freed, *kept, *resized, *late, *plain]
        for number in range(7):
            cross(s, f"straw{number}")
        survivors_now = survivors(s, everything)
        assert set(pinned) <= set(survivors_now)
        assert not set(lapsed) & set(survivors_now)


def test_groups_go_together(memory):
    with memory() as s:
        first = fill(s, "a", 8, groups=["a"])
        second = fill(s, "b", 8, groups=["b"])
        plain = fill(s, "p", FULL - 16)
        s.get(first[3])
        s.rest(REST)
        cross(s)
        # The whole second group went, and nothing else.
        assert survivors(s, second) == []
        assert survivors(s, [*first, *plain]) == [*first, *plain]


def test_pinned_members_stay_behind(memory):
    with memory() as s:
        fill(s, "a", 3, groups=["g"])
        fill(s, "h", 1, groups=["g"], hard_pin=True)
        fill(s, "s", 1, groups=["g"], soft_pin=ENABLE)
        fill(s, "b", 3, groups=["g"])
        plain = fill(s, "p", FULL - 8)
        cross(s)
        assert survivors(s, ["a00", "a01", "a02", "h00", "s00", "b00"]) == ["h00", "s00"]
        survivors(s, plain)


def test_what_is_in_flight_stays(memory):
    with memory() as s:
        s.put(A, "copied", MIB)
        s("CopyStart", A, "copied", TENANT, "seg1", ["seg2"])
        s.put(A, "moved", MIB)
        s("MoveStart", A, "moved", TENANT, "seg1", "seg3")
        s.start(A, "written", MIB)
        s.put(A, "two replicas", MIB, replicas=2)
        keys = fill(s, "k", FULL - 7)
        cross(s)
        s("CopyEnd", A, "copied", TENANT, expect=Ok(None))
        s("MoveEnd", A, "moved", TENANT, expect=Ok(None))
        s.end(A, "written", expect=Ok(None))
        s.get("two replicas", expect=Err(-704))
        survivors(s, keys)


def test_a_refused_put_makes_room_for_the_next(memory):
    with memory() as s:
        keys = fill(s, "k", 40)
        for _ in range(3):
            s.start(A, "large", 15 * MIB, preferred=SEGMENTS)
            s.rest(REST)
        left = survivors(s, keys)
        assert left == keys[6:]
        # Not when replicas were wanted on more segments than there are.
        s.start(A, "large", 15 * MIB, replicas=4, preferred=SEGMENTS)
        s.rest(REST)
        assert survivors(s, keys) == left


def test_other_watermark_and_ratio(memory):
    with memory(eviction_high_watermark_ratio=0.5, eviction_ratio=0.3) as s:
        keys = fill(s, "k", 30)
        cross(s)
        assert len(survivors(s, keys)) < 30


def test_one_full_segment_is_not_a_full_memory(memory):
    with memory() as s:
        keys = [f"k{number:02}" for number in range(20)]
        for key in keys:
            s.put(A, key, MIB, preferred=["seg1"])
        s.rest(REST)
        assert survivors(s, keys) == keys
        s.put(A, "elsewhere", MIB, preferred=["seg1", "seg2"])
