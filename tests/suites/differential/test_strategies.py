"""Allocation strategies, where their choice follows from the request."""

from collections import Counter

from messages import MIB, TENANT, config, describe_replica
from scenario import A, B, C
from struct_pack import Ok

COUNT = 12


def placements(s, prefix, client, **options):
    """Where twelve small objects go, on each master."""
    places = [Counter(), Counter()]
    for number in range(COUNT):
        key = f"{prefix}{number}"
        s("PutStart", client, key, 1000, config(1, **options), TENANT, loose=True)
        for counter, answer in zip(places, s.last):
            counter[describe_replica(answer.value[0])[1]] += 1
        s.end(client, key)
    return places


def test_random_uses_every_segment(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        for number in range(60):
            s("PutStart", A, f"k{number}", 1000, config(1), TENANT, loose=True)
        for side in s.pair.sides:
            used = {
                describe_replica(side.connection.call("PutStart", A, f"r{number}", 10, config(1), TENANT).value[0])[1]
                for number in range(60)
            }
            assert len(used) == 3, f"{side.master.label} used only {used}"


def test_local_first_writes_where_the_writer_is(scenario):
    with scenario(allocation_strategy="local_first") as s:
        s.mount(1, 2, 3)
        for client, number in ((A, 1), (B, 2), (C, 3)):
            left, right = placements(s, f"named{number}", client, host=f"host{number}")
            assert left == right == {f"10.0.0.{number}:700{number}": COUNT}
        # A writer that does not say where it is, but has a segment there.
        left, right = placements(s, "silent", B)
        assert left == right
        left, right = placements(s, "preferred", A, host="host1", preferred=["seg3"])
        assert left == right == {"10.0.0.3:7003": COUNT}
        s.put(A, "filler", 60 * MIB, preferred=["seg1"])
        s("PutStart", A, "spills over", 10 * MIB, config(1, host="host1"), TENANT, loose=True)
        assert all(isinstance(answer, Ok) for answer in s.last)


def test_free_ratio_first_fills_the_emptiest(scenario):
    with scenario(allocation_strategy="free_ratio_first") as s:
        s.mount(1, 2, 3)
        s.put(A, "half of one", 32 * MIB, preferred=["seg1"])
        s.put(A, "quarter of two", 16 * MIB, preferred=["seg2"])
        left, right = placements(s, "small", A)
        assert left == right == {"10.0.0.3:7003": COUNT}
        s("PutStart", A, "two", 1000, config(2), TENANT)
        left, right = placements(s, "preferred", A, preferred=["seg1"])
        assert left == right
