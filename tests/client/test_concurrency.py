"""Several clients at the same time: on the same keys, and in random traffic, for a moment or for an hour."""

import os
import time

import pytest

import traffic
from clients import MIB
from waiting import wait_until

# Printed with a failure; another seed is another run.
SEED = os.environ.get("MOONKEEPER_TEST_SEED", "1")


def test_clients_that_write_the_same_keys(start_client):
    clients = [start_client() for _ in range(4)]
    keys = [f"contended-{index}" for index in range(50)]
    for number, each in enumerate(clients):
        each.begin("put_batch", keys, [f"client {number}".encode()] * len(keys))
    assert [each.finish() for each in clients] == [0] * 4
    seen = [each.get_batch(keys) for each in clients]
    assert all(values == seen[0] for values in seen), "all agree on who won each key"
    assert set(seen[0]) <= {f"client {number}".encode() for number in range(4)}


def actors_of(clients, published, generation):
    """Actors named so that no key is used twice in a run: a value would not tell the two apart."""
    return [
        traffic.Actor(f"client-{number}-{generation}", each, SEED, published) for number, each in enumerate(clients)
    ]


def test_random_traffic(start_client):
    clients = [start_client(segment_size=16 * MIB) for _ in range(4)]
    actors = actors_of(clients, [], 0)
    traffic.run(actors, lambda steps: steps < 150)
    hits, misses = sum(each.hits for each in actors), sum(each.misses for each in actors)
    assert hits > misses, f"{hits} reads found their object, {misses} did not: not much was tested"


@pytest.mark.soak
@pytest.mark.master(client_ttl=5, default_kv_lease_ttl=2000)
def test_traffic_while_clients_die(master, start_client):
    end = time.monotonic() + float(os.environ.get("MOONKEEPER_SOAK_SECONDS", "60"))
    clients = [start_client(segment_size=16 * MIB) for _ in range(4)]
    published, generation, hits = [], 0, 0
    while time.monotonic() < end:
        # The victim only holds objects of others; the rest go on while it dies and while its segment goes.
        victim = clients.pop(0)
        actors = actors_of(clients, published, generation)
        stop = time.monotonic() + 15

        def kill_the_victim():
            time.sleep(5)
            victim.kill()

        traffic.run(actors, lambda _: time.monotonic() < stop, kill_the_victim)
        expected = sorted(each.segment for each in clients)
        wait_until(lambda: master.segments() == expected, "the dead client's segment to go")
        clients.append(start_client(segment_size=16 * MIB))
        generation += 1
        hits += sum(each.hits for each in actors)
        print(f"{generation} clients replaced, {len(published)} objects written, {hits} reads found theirs", flush=True)
    assert hits > 0
