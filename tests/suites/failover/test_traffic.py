"""Traffic that needs a deployment of its own beside faults: RemoveAll, eviction under pressure, the metadata server. All
other kinds of changes are in every round (busy_actor.py)."""

import pytest

import faults
from actors import FaithfulReader
from checker import Evicting, summary
from history import OK, REMOVE
from messages import MIB
from raw import Session
from scene import FAITHFUL_SECONDS
from test_faults import LONG
from extra_actors import CrowdingActor, MetadataActor, RemovingActor

pytestmark = pytest.mark.timeout(300)
SEGMENT_BYTES, OBJECT_BYTES = 4 * MIB, 4096
# Leases that end while the test runs, in milliseconds for the master and in seconds for the checker.
READ_LEASE = {"default_kv_lease_ttl": "2000ms"}
READ_LEASE_SECONDS = 2
# A pass of eviction takes a twentieth of the objects more than are above the watermark of nine tenths.
LEAST_KEPT = 0.7


def faithful_readers(world):
    return [
        FaithfulReader(
            f"faithful{number}",
            world.seed,
            world.history,
            world.published["raw"],
            Session([address], world.host, FAITHFUL_SECONDS),
        )
        for number, address in enumerate(world.masters.addresses)
    ]


def run(world, fault, actors, least):
    done = world.round(fault, actors=[*actors, *faithful_readers(world)], warm_up=0.5, least=least)
    print(f"{done.fault}: {done.acknowledged} acknowledged, {summary(done.violations, 3)}", flush=True)
    if done.violations:
        pytest.fail(f"{done.fault}: {summary(done.violations)}")


@pytest.mark.parametrize("fault", [faults.kill, faults.switchover], ids=lambda fault: fault.__name__)
def test_all_objects_removed(start_world, fault):
    world = start_world(clients=0, raw_clients=2, **LONG)
    actor = world.raw_actor("raw0", RemovingActor)
    run(world, fault, [actor], least=600)
    removed = sum(each.kind == REMOVE and each.outcome == OK for each in world.history.operations)
    assert removed > 100, "not much was removed"


def test_eviction_under_pressure(start_world):
    """First with free memory, where every object has to stay; then with more than there is memory for."""
    world = start_world(clients=0, raw_clients=2, raw_client_bytes=SEGMENT_BYTES, **READ_LEASE)
    capacity = 2 * SEGMENT_BYTES
    world.evicting = Evicting(capacity, OBJECT_BYTES, READ_LEASE_SECONDS)
    sparing = world.raw_actor("raw-sparing", CrowdingActor, object_bytes=OBJECT_BYTES, most_pinned=20, batch=8)
    sparing.pace = 0.03
    run(world, faults.switchover, [sparing], least=200)
    primary = world.masters.wait_until_serving()
    assert primary.metric("master_evicted_key_count") == 0

    for fault in (faults.switchover, faults.kill):
        actors = [
            world.raw_actor(f"raw{number}-{fault.__name__}", CrowdingActor, object_bytes=OBJECT_BYTES, most_pinned=20)
            for number in range(2)
        ]
        # After a crash nothing is evicted for the leader's lease and a read lease; puts are refused meanwhile.
        run(world, fault, actors, least=1.5 * capacity / OBJECT_BYTES)
        primary = world.masters.wait_until_serving()
        used = primary.metric("master_allocated_bytes")
        assert used >= LEAST_KEPT * capacity, f"{used:,.0f} of {capacity:,} bytes are left: too much was evicted"
        # Most of it may have been evicted by the primary before the switchover, which counts on as a standby.
        evicted = sum(each.metric("master_evicted_key_count") or 0 for each in world.masters.all)
        assert evicted > 0 or fault is faults.kill


@pytest.mark.parametrize("fault", [faults.kill, faults.switchover], ids=lambda fault: fault.__name__)
def test_the_metadata_server(start_world, fault):
    world = start_world(clients=0, enable_http_metadata_server="true", **LONG)
    actors = [MetadataActor(f"actor{number}", world.seed, world.history, world.masters) for number in range(2)]
    run(world, fault, actors, least=100)
