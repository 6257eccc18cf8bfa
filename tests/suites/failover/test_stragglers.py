"""Work of an ended term: a removal by pattern that is still running when its primary hands over (F4)."""

import os
import time

import pytest

from bench_load import fill
from handover_faults import EVERY_KEY, NO_KEY, SEARCH_SECONDS, remove_by_regex
from messages import TENANT
from raw_client import RawClient
from struct_pack import Ok
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)
OBJECTS = 60_000
# A search keeps one thread busy; a master that only follows needs next to nothing.
BUSY_SHARE, LOOK_SECONDS = 0.3, 1


def processor_seconds(master):
    with open(f"/proc/{master.process.pid}/stat") as stat:
        user, system = stat.read().rsplit(")", 1)[1].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def idle(master):
    before = processor_seconds(master)
    time.sleep(LOOK_SECONDS)
    return processor_seconds(master) - before < BUSY_SHARE * LOOK_SECONDS


def test_a_slow_removal_across_two_switchovers(ask, start_world):
    world = start_world(masters=2, clients=0, client_ttl=3600, inherited_client_ttl="1h")
    there = fill(world, OBJECTS).metric("moonkeeper_objects")
    assert there >= OBJECTS
    removed = []
    for pattern in (NO_KEY, EVERY_KEY):
        world.masters.wait_until_connected()
        search = ask(remove_by_regex, world, pattern)
        time.sleep(1)
        # It may be refused or given up; what counts is the state after it.
        world.masters.wait_until_serving().try_switchover()
        removed.append(search.result(SEARCH_SECONDS + 10))
        # Its connection may have gone before it has ended in the master.
        wait_until(lambda: all(idle(each) for each in world.masters.all), "searches to end", SEARCH_SECONDS)
    client = RawClient(world)
    try:
        acknowledged = client.put([f"after/{number}" for number in range(50)])
        assert len(acknowledged) == 50
        assert len(set(world.masters.digests().values())) == 1

        old = world.masters.wait_until_serving()
        world.masters.wait_until_connected()
        old.kill()
        new = world.wait_for_another(old)
        # A master without any state reads the whole log.
        fresh = world.masters.add("fresh")
        wait_until(lambda: fresh.http("/ready"), "a fresh master to read the log", 60)
        assert len(set(world.masters.digests().values())) == 1
        assert all(each == Ok(True) for each in world.call("BatchExistKey", acknowledged, TENANT))
        left = new.metric("moonkeeper_objects") - len(acknowledged)
        if removed[1] is not None:
            assert left == there - removed[1]
        assert 0 <= left <= there
    finally:
        client.close()
