"""Lists over HTTP are answers as well: what is not durable yet is in none of them."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from actors import RawActor
from waiting import wait_until

pytestmark = pytest.mark.timeout(120)
LISTS = ["/get_all_keys", "/get_all_segments", "/get_segments_detail"]


def undurable(master):
    """How many records are applied and not durable."""
    text = master.http("/metrics") or ""
    found = {name: int(value) for name, value in re.findall(r"^(moonkeeper_\w+) (\d+)$", text, re.MULTILINE)}
    return found.get("moonkeeper_sequence_id", 0) - found.get("moonkeeper_durable_prefix", 0)


def test_nothing_is_listed_before_it_is_durable(start_world):
    # Long enough that the primary still leads when the lists are asked for.
    world = start_world(masters=1, clients=1, leader_lease_ttl="30s", keep_alive_interval="1s")
    actor = RawActor("raw0", world.seed, world.history, [], world.session())
    actor.put()
    primary = world.masters.wait_until_serving()
    assert len(primary.keys()) == 1
    [etcd] = world.etcd.members
    etcd.pause()
    removal = threading.Thread(target=actor.remove_batch)
    removal.start()
    try:
        wait_until(lambda: undurable(primary) > 0, "a removal that is applied and not durable", 10)
        # No answer is what they give until etcd is back.
        with ThreadPoolExecutor() as pool:
            assert list(pool.map(primary.http, LISTS)) == [None] * len(LISTS)
    finally:
        etcd.resume()
        removal.join()
    wait_until(lambda: primary.http("/get_all_keys") == "", "a list without it", 30)
