"""A log that is gone, or that is older than what a master has seen (F6): no master serves another history, every master
says why, and all go on when the log is back."""

import functools
import time

import pytest

import log_faults
from actors import RawActor
from checker import summary
from takeover import put_until_taken

pytestmark = pytest.mark.timeout(240)
KEYS = 300


def put(world, name):
    """Puts some objects, all of them acknowledged, and returns their keys."""
    actor = RawActor(name, world.seed, world.history, world.published["raw"], world.session())
    actor.put_batch(KEYS)
    assert len(actor.live) == KEYS
    return actor.live


def put_later(world, keys):
    keys.extend(put(world, "raw-later"))
    # Every master has applied them.
    world.masters.digests()


def all_is_there(world):
    world.wait_until_answered()
    world.settle()
    put_until_taken(lambda: world.clients[0].put("after", b"value"))
    put(world, "raw-after")
    violations = world.sweep()
    assert not violations, summary(violations)


@pytest.mark.parametrize("harm", ["delete_log", "delete_all_keys", "empty_etcd", "restore_backup"])
def test_no_master_serves_another_history(start_world, harm):
    world = start_world(clients=1, may_log=log_faults.LOG_GONE.errors)
    keys = put(world, "raw-before")
    world.masters.wait_until_redundant()
    harm = getattr(log_faults, harm)
    if harm is log_faults.restore_backup:
        harm = functools.partial(harm, later=lambda: put_later(world, keys))
    steps = harm(world)
    next(steps)
    log_faults.watch(world, keys)
    log_faults.wait_until_named(world)
    next(steps, None)
    all_is_there(world)


def test_a_restart_remembers_the_history(start_world):
    """With a data directory the memory of a history outlives the process."""
    world = start_world(clients=1, may_log=log_faults.LOG_GONE.errors)
    keys = put(world, "raw-before")
    world.masters.wait_until_redundant()
    # Written each second.
    time.sleep(2)
    for each in world.masters.all:
        each.kill()
    taken = world.etcd.take_away("mooncake-store/")
    for each in world.masters.all:
        each.start()
    log_faults.watch(world, keys)
    log_faults.wait_until_named(world)
    world.etcd.put_back(taken)
    all_is_there(world)
