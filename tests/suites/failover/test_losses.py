"""What the reference loses when its leader dies, scene by scene: none of it may be lost here.

Run with MOONKEEPER_TEST_MASTER=reference to see the losses.
"""

import pytest

import faults
from actors import RawActor, StoreActor
from checker import summary
from history import OK, REMOVE
from ports import free_port
from takeover import put_until_taken
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)


def strike(world, fault=faults.kill):
    """The fault, and all of its repair."""
    steps = fault(world)
    next(steps)
    world.wait_until_answered()
    next(steps, None)


def check_now(world):
    violations = world.sweep()
    print(f"{world.history.acknowledged()} acknowledged, {summary(violations, 3)}", flush=True)
    if violations:
        pytest.fail(summary(violations))


def store_actor(world, client=None, name="store0"):
    return StoreActor(name, world.seed, world.history, world.published["store"], client or world.clients[0])


def raw_actor(world, name="raw0"):
    return RawActor(name, world.seed, world.history, world.published["raw"], world.session())


@pytest.mark.parametrize("speaker", ["real client", "raw"])
def test_a_batch_of_5000_then_an_immediate_kill(start_world, speaker):
    world = start_world()
    actor = store_actor(world) if speaker == "real client" else raw_actor(world)
    world.masters.wait_until_redundant()
    if speaker == "real client":
        actor.LARGEST_VALUE = 512
        # Into its own memory: the client's transport refuses so many transfers to another at once.
        actor.put(5000, preferred_segments=[actor.client.segment])
    else:
        actor.put_batch(5000)
    assert world.history.acknowledged() == 5000
    strike(world)
    check_now(world)


def test_a_kill_in_a_stream_of_puts(start_world):
    world = start_world()
    raw, store = [raw_actor(world, f"raw{number}") for number in range(3)], store_actor(world)
    raw[0].step, raw[1].step, raw[2].step, store.step = raw[0].put, raw[1].put, raw[2].put_batch, store.put
    done = world.round(faults.kill, actors=[*raw, store])
    print(f"{done.acknowledged} acknowledged, {summary(done.violations, 3)}", flush=True)
    if done.violations:
        pytest.fail(summary(done.violations))
    assert done.acknowledged > 100


def test_a_kill_after_removals(start_world):
    world = start_world()
    raw, store = raw_actor(world), store_actor(world)
    raw.put_batch(3000)
    store.put(500)
    for _ in range(250):
        store.remove()
    raw.remove_batch(2500)
    removed = sum(each.kind == REMOVE and each.outcome == OK for each in world.history.operations)
    # The reference refuses some when many come at once.
    assert removed > 500
    strike(world)
    check_now(world)


@pytest.mark.parametrize("expired", [False, True], ids=["at once", "after the old one expired"])
def test_a_client_that_restarted_under_its_host_name(start_world, expired):
    world = start_world(client_ttl=5)
    name = f"127.0.0.1:{free_port()}"
    other = store_actor(world, world.clients[0], "store-other")
    other.put(200)
    before = world.start_client(hostname=name)
    assert before.put_registered([f"old/{n}" for n in range(200)], [b"old"] * 200) == [0] * 200
    before.kill()

    after = world.start_client(hostname=name)
    assert after.segment == name
    if expired:
        primary = world.masters.primary()
        wait_until(lambda: primary.segments().count(name) == 1, "the dead client's segment to go")
    # Not into the memory of the dead client: it has the same name until it expires.
    place = name if expired else world.clients[0].segment
    actor = store_actor(world, after, "store-after")
    actor.put(200, preferred_segments=[place])
    assert world.history.acknowledged() == 400
    strike(world)
    check_now(world)
    # The new one's memory is in use again.
    wait_until(lambda: name in world.masters.wait_until_serving().segments(), "the client's segment")
    # Nothing is placed there before the client has told it to the new primary.
    put_until_taken(lambda: after.put("after the kill", b"value", config={"preferred_segments": [place]}))
    assert world.clients[0].get("after the kill") == b"value"


def test_an_idle_cluster_of_empty_masters(start_world):
    world = start_world(clients=0)
    for _ in range(2):
        strike(world)
    client = world.start_client()
    assert client.put("first", b"value") == 0
    assert client.get("first") == b"value"


@pytest.mark.parametrize("how", ["killed", "terminated"])
def test_all_masters_stopped_and_started_again(start_world, how):
    world = start_world()
    raw, store = raw_actor(world), store_actor(world)
    raw.put_batch(1000)
    store.put(500)
    for each in world.masters.all:
        each.kill() if how == "killed" else each.terminate()
    for each in world.masters.all:
        each.start()
    check_now(world)
