"""Several clients at the same time: on the same keys, and in random traffic, for a moment or for an hour."""

import os
import re
import time

import pytest

import random_clients
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


def actors_of(clients, published, removed, generation):
    """Actors named so that no key is used twice in a run: a value would not tell the two apart."""
    names = [f"client-{number}-{generation}" for number in range(len(clients))]
    return [random_clients.Actor(name, each, SEED, published, removed) for name, each in zip(names, clients)]


def evicted(master):
    return int(re.search(r"^master_evicted_key_count (\d+)", master.http("/metrics"), re.MULTILINE)[1])


def test_random_traffic(master, start_client):
    # Several times what the actors write.
    clients = [start_client(segment_size=64 * MIB) for _ in range(4)]
    actors = actors_of(clients, [], set(), 0)
    random_clients.run(actors, lambda steps: steps < 150)
    hits, misses = sum(each.hits for each in actors), sum(each.misses for each in actors)
    assert hits > misses, f"{hits} reads found their object, {misses} did not: not much was tested"
    missing = [key for each in actors for key in each.missing]
    assert (missing, evicted(master)) == ([], 0), "objects are missing though nothing was evicted"


def test_random_traffic_in_too_little_memory(master, start_client):
    clients = [start_client(segment_size=16 * MIB) for _ in range(4)]
    actors = actors_of(clients, [], set(), 0)
    random_clients.run(actors, lambda steps: steps < 250)
    assert evicted(master) > 0, "there was memory enough"
    assert sum(each.hits for each in actors) > 100


@pytest.mark.soak
@pytest.mark.master(client_ttl=5, default_kv_lease_ttl=2000)
def test_traffic_while_clients_die(master, start_client):
    end = time.monotonic() + float(os.environ.get("MOONKEEPER_SOAK_SECONDS", "60"))
    clients = [start_client(segment_size=16 * MIB) for _ in range(4)]
    published, removed, generation, hits, misses = [], set(), 0, 0, 0
    while time.monotonic() < end:
        # The victim only holds objects of others; the rest go on while it dies and while its segment goes.
        victim = clients.pop(0)
        actors = actors_of(clients, published, removed, generation)
        stop = time.monotonic() + 15

        def kill_the_victim():
            time.sleep(5)
            victim.kill()

        random_clients.run(actors, lambda _: time.monotonic() < stop, kill_the_victim)
        expected = sorted(each.segment for each in clients)
        wait_until(lambda: master.segments() == expected, "the dead client's segment to go")
        clients.append(start_client(segment_size=16 * MIB))
        generation += 1
        hits += sum(each.hits for each in actors)
        misses += sum(each.misses for each in actors)
        print(f"{generation} clients replaced, {len(published)} objects written, {hits} reads found theirs", flush=True)
    assert hits > misses, f"{hits} reads found their object, {misses} did not"
