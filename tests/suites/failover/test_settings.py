"""Settings that say what a failover costs, each against its opposite: the setting alone makes the difference.

Time is compared with time, never with a number: of two deployments that are struck together, one is to be first.
"""

import functools
import time
from concurrent.futures import wait

import pytest

from actors import RawActor, StoreActor
from checker import summary
from cluster import OURS
from history import OK, UNKNOWN
from messages import ALL, TENANT, config, meta
from raw import NoAnswer, NotSent, Session
from struct_pack import Ok
from takeover import put_until_taken
from waiting import DEADLINE_SECONDS, wait_until

# The longest that there is: a primary speaks for almost so long while etcd is stopped.
LONG_LEASE = {"leader_lease_ttl": "60s"}
RELAXED = {"durability": "relaxed", "relaxed_tail_time": "60s"}
# For so long an answer is waited for that must not come.
SILENCE_SECONDS = 1
WRITER = (1, 1)
VALUE = b"value" * 100


@pytest.fixture
def start(start_world):
    """Starts a deployment of two masters; the reference has none of these settings."""
    return functools.partial(start_world, kind=OURS, masters=2)


def replace(world, strike):
    """Does something to the primary that gives the cluster another one, and returns that."""
    world.masters.wait_until_redundant()
    old = world.masters.primary()
    strike(old)
    return world.wait_for_another(old)


def call(world, name, *arguments):
    """A call that waits for its answer longer than etcd is stopped."""
    session = Session(world.masters.addresses, world.host, DEADLINE_SECONDS)
    try:
        return session.call(name, *arguments)
    finally:
        session.close()


def put_start(world, key):
    return call(world, "PutStart", WRITER, key, len(VALUE), config(), TENANT)


def put_end(world, key):
    return call(world, "PutEnd", WRITER, meta(key), ALL, TENANT)


def answered(asked):
    """The names of those that are answered while etcd is stopped."""
    wait(asked.values(), SILENCE_SECONDS)
    return {name for name, future in asked.items() if future.done()}


@pytest.mark.parametrize(
    "flags, early",
    [({"durability": "strict"}, set()), (RELAXED, {"end", "removal", "client's removal"})],
    ids=["strict", "relaxed"],
)
def test_what_is_answered_while_etcd_is_stopped(ask, start, flags, early):
    world = start(**LONG_LEASE, **flags)
    one, other = world.clients
    assert one.put_batch(["old", "older"], [VALUE] * 2) == 0
    assert isinstance(put_start(world, "begun"), Ok)

    world.etcd.pause()
    asked = {
        "end": ask(put_end, world, "begun"),
        "removal": ask(call, world, "Remove", "old", True, TENANT),
        "client's removal": ask(one.remove, "older", force=True),
        "start": ask(put_start, world, "new"),
        "client's put": ask(other.put, "newer", VALUE),
    }
    wait([asked[name] for name in early], DEADLINE_SECONDS)
    assert answered(asked) == early
    # No client is told what is not durable, however early it was acknowledged.
    reads = {key: ask(call, world, "ExistKey", key, TENANT) for key in ["begun", "old", "older"]}
    assert answered(reads) == set()

    world.etcd.resume()
    answers = {name: future.result(DEADLINE_SECONDS) for name, future in asked.items()}
    assert [name for name, answer in answers.items() if answer != 0 and not isinstance(answer, Ok)] == []
    found = {key: future.result(DEADLINE_SECONDS) for key, future in reads.items()}
    assert found == {"begun": Ok(True), "old": Ok(False), "older": Ok(False)}
    assert one.get("newer") == VALUE


def answered_early(ask, world, count, pause):
    """Of so many ends of puts, one after the other while etcd is stopped, those that are answered before one is not."""
    keys = [f"begun-{number}" for number in range(count)]
    for key in keys:
        assert isinstance(put_start(world, key), Ok)

    world.etcd.pause()
    early = 0
    for key in keys:
        end = ask(put_end, world, key)
        if not wait([end], SILENCE_SECONDS).done:
            break
        early += 1
        time.sleep(pause)
    world.etcd.resume()
    assert isinstance(end.result(DEADLINE_SECONDS), Ok)
    return early


@pytest.mark.timeout(240)
def test_how_many_records_are_answered_early(ask, start):
    few, many = (
        answered_early(ask, start(clients=1, **LONG_LEASE, **(RELAXED | {"relaxed_tail_records": bound})), 40, 0)
        for bound in (8, 24)
    )
    assert 0 < few <= 8 < many <= 24


@pytest.mark.timeout(240)
def test_for_how_long_records_are_answered_early(ask, start):
    """Of two tails the one that may last longer takes more ends, each a tenth of the shorter time after the one before.
    A slow machine lets fewer of them through, never more: the time that passes is what bounds them."""
    short, long = 1, 4
    counts = []
    for bound in (short, long):
        world = start(clients=1, **LONG_LEASE, **(RELAXED | {"relaxed_tail_time": f"{bound}s"}))
        counts.append(answered_early(ask, world, 10 * (short + long), short / 10))
    assert counts[0] <= 10 * short + 1 and counts[1] <= 10 * long + 1, counts
    assert 0 < counts[0] < counts[1], counts


def find_primary(session):
    """Until a session has a connection to the primary: the companion of a dead one takes connections and closes them."""

    def is_answered():
        try:
            session.call("ExistKey", "probe", TENANT)
        except (NoAnswer, NotSent):
            return False
        return True

    wait_until(is_answered, "an answer of the primary")
    return session


def actors(world, name):
    session = find_primary(Session(world.masters.addresses, world.host, DEADLINE_SECONDS))
    return (
        RawActor(f"raw-{name}", world.seed, world.history, world.published["raw"], session),
        StoreActor(f"store-{name}", world.seed, world.history, world.published["store"], world.clients[0]),
    )


def test_a_crash_loses_the_tail_and_nothing_else(start):
    world = start(**LONG_LEASE, **RELAXED)
    operations = world.history.operations
    raw, store = actors(world, "before")
    raw.put_batch(1000)
    store.put(300)
    begun = raw.start_batch(300)
    primary = world.masters.primary()
    # Then all of that is durable.
    world.masters.digests()
    durable = len(operations)

    world.etcd.pause()
    # The first of them is on its way to etcd, and may be found there when etcd wakes up.
    for _ in range(20):
        store.remove()
    raw.remove_batch(300)
    raw.end_batch(begun)
    tail = operations[durable:] + begun
    assert [each.outcome for each in tail] == [OK] * 620
    primary.kill()
    world.etcd.resume()
    world.wait_for_another(primary)

    lost = world.sweep()
    assert {each.kind for each in lost} == {"undone", "unready"}, summary(lost)
    assert {each.key for each in lost} <= {each.key for each in tail}
    # From here on they are as if they had not been answered. What is left of them keeps its bytes to itself.
    for each in tail:
        each.outcome = UNKNOWN
    put_until_taken(lambda: world.clients[0].put("new", VALUE))
    raw, store = actors(world, "after")
    raw.put_batch(2000)
    store.put(300)
    swept = len(operations)
    violations = world.sweep()
    assert not violations, summary(violations)
    # The checker takes a removal in doubt for the end of an object; these are still there.
    places = [place for each in operations[swept:] for place in each.ranges]
    places.sort(key=lambda each: (each.endpoint, each.address))
    assert len(places) > 3000
    for one, other in zip(places, places[1:]):
        assert one.endpoint != other.endpoint or one.address + one.size <= other.address


ENDED, SPARED = {"never read", "read"}, {"in use", "soft pin", "hard pin"}
PINS = {"soft pin": {"soft_pin_action": "ENABLE"}, "hard pin": {"with_hard_pin": True}}


def test_objects_whose_lease_has_ended(start):
    short = {"leader_lease_ttl": "2s", "keep_alive_interval": "500ms", "default_kv_lease_ttl": "5s"}
    keep, evict = worlds = [start(clients=1, expired=each, **short) for each in ["keep", "evict"]]
    for world in worlds:
        for key in ENDED | SPARED:
            assert world.clients[0].put(key, VALUE, config=PINS.get(key, {})) == 0
        assert world.clients[0].get("read") == VALUE
        replace(world, lambda primary: primary.kill())

    [client], primary = evict.clients, evict.masters.primary()
    put_until_taken(lambda: client.put("new", VALUE))

    def evicted():
        client.is_exist("in use")
        found, held = primary.keys(), primary.status()["hold_ms_left"] > 0
        assert not held or found == ENDED | SPARED | {"new"}, "a reader may hold a lease of the old primary"
        return not found & ENDED

    wait_until(evicted, "eviction")
    assert primary.keys() == SPARED | {"new"}
    assert [client.get(key) for key in SPARED] == [VALUE] * 3

    [client], primary = keep.clients, keep.masters.primary()
    wait_until(lambda: primary.status()["hold_ms_left"] == 0, "the end of the hold")
    # Objects are looked at each second.
    time.sleep(2)
    assert primary.keys() == ENDED | SPARED
    assert [client.get(key) for key in ENDED] == [VALUE] * 2


def test_a_lease_that_has_not_ended_at_a_switchover(start):
    world = start(clients=1, expired="evict", default_kv_lease_ttl="600s")
    [client] = world.clients
    assert client.put_batch(["never read", "read"], [VALUE] * 2) == 0
    assert client.get("read") == VALUE
    primary = replace(world, lambda primary: primary.switchover())
    wait_until(lambda: "never read" not in primary.keys(), "eviction")
    assert primary.keys() == {"read"}
    assert client.get("read") == VALUE


def test_how_long_a_client_of_the_old_primary_is_waited_for(start):
    """The two have the time for which a client may be silent otherwise the other way round: it has no part in this."""
    long = start(inherited_client_ttl="60s", client_ttl=5)
    short = start(inherited_client_ttl="10s", client_ttl=60)
    for world in [long, short]:
        dead, alive = world.clients
        for key, each in [("dead", dead), ("alive", alive)]:
            assert each.put(key, VALUE, config={"preferred_segments": [each.segment]}) == 0
        primary = replace(world, lambda primary: (dead.kill(), primary.kill()))
        assert primary.segments() == sorted([dead.segment, alive.segment])
        assert primary.keys() == {"dead", "alive"}

    (dead, alive), primary = short.clients, short.masters.primary()
    wait_until(lambda: primary.segments() == [alive.segment], "the dead client to be given up")
    wait_until(lambda: primary.keys() == {"alive"}, "its object to go")
    assert alive.get("alive") == VALUE

    (dead, alive), primary = long.clients, long.masters.primary()
    assert primary.segments() == sorted([dead.segment, alive.segment])
    assert primary.keys() == {"dead", "alive"}
    assert alive.get("alive") == VALUE
    # The memory is known, and nothing is placed there: it could not be written.
    assert alive.put("new", VALUE, config={"preferred_segments": [dead.segment]}) == 0
    assert alive.get("new") == VALUE


def test_a_primary_that_hangs_is_replaced_when_its_lease_ends(start):
    worlds = [start(clients=0, leader_lease_ttl=each, keep_alive_interval="500ms") for each in ["12s", "2s"]]
    for each in worlds:
        each.masters.wait_until_redundant()
    hung = [each.masters.primary() for each in worlds]
    for each in hung:
        each.pause()
    long, short = worlds
    new = [short.wait_for_another(hung[1])]
    assert long.masters.primary() is hung[0]
    new.append(long.wait_for_another(hung[0]))
    assert [each.status()["promotion"]["reason"] for each in new] == ["the lease ran out"] * 2
