"""The masters delete the log below the floor, whatever happens to the primary meanwhile: batches do not pile up in etcd,
nothing that was acknowledged is lost, and every master can start again. Where the floor cannot move, they say why."""

import base64
import itertools
import json
import os
import subprocess
import time

import pytest

from actors import RawActor
from test_snapshots import folder, held, lose_directory, nothing_lost, put, put_real, snapshots
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)

# etcd keeps about so many batches: those of two or three intervals of a second, and heartbeats.
FEW = 150


def log_prefix(world):
    return f"mooncake-store/oplog/{world.masters.cluster_id}/"


def floor(world):
    """The last record that may be missing; 0 without a floor."""
    value = world.etcd.get(log_prefix(world) + "floor")
    return json.loads(value)["last"] if value else 0


def batches(world):
    """The first records of the batches that etcd has."""
    start = (log_prefix(world) + "batches/").encode()
    end = start[:-1] + bytes([start[-1] + 1])
    body = {"key": base64.b64encode(start).decode(), "range_end": base64.b64encode(end).decode(), "keys_only": True}
    keys = [base64.b64decode(each["key"]).decode() for each in world.etcd.call("kv/range", body).get("kvs", [])]
    return sorted(int(key.rsplit("/", 1)[1]) for key in keys)


def oplog(world):
    primary = world.masters.primary()
    return (primary and primary.status()["oplog"]) or {}


def work_until(world, name, done, what, seconds=90):
    """Changes something all the time until something is true: nothing is cut off while nothing changes."""
    turns = 0

    def turn():
        nonlocal turns
        if done():
            return True
        put(world, f"{name}-{turns}")
        turns += 1
        time.sleep(0.2)
        return False

    wait_until(turn, what, seconds)


def work_until_floor_is_above(world, name, record):
    try:
        work_until(world, name, lambda: floor(world) > record, f"the floor to be above record {record}")
    except AssertionError as error:
        raise AssertionError(f"{error}; {oplog(world)}") from None


def wait_until_puts_work(world, name):
    """Until the client has reported its memory to the new primary."""
    tries = itertools.count()

    def works():
        number = next(tries)
        actor = RawActor(f"{name}-{number}", world.seed, world.history, world.published["raw"], world.session())
        actor.put_batch(1)
        return len(actor.live) == 1

    wait_until(works, "puts to work again", 60)


def below_floor_is_gone(world):
    return batches(world)[0] > floor(world)


def test_the_log_stays_small_while_primaries_are_killed(start_world):
    world = start_world(clients=1, snapshot_interval="1s")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    for turn in range(4):
        before = floor(world)
        work_until_floor_is_above(world, f"raw-{turn}", before)
        # Somewhere between a decision, the floor, and the last chunk that is deleted.
        time.sleep(world.random.random())
        primary = world.masters.primary()
        primary.kill()
        world.wait_for_another(primary)
        primary.start()
        world.masters.wait_until_redundant()
        wait_until_puts_work(world, f"probe-{turn}")
    work_until_floor_is_above(world, "raw-last", floor(world))
    wait_until(lambda: below_floor_is_gone(world), "the batches below the floor to be deleted", 60)
    first, applied = batches(world)[0], world.masters.primary().status()["applied"]
    assert floor(world) < first and len(batches(world)) < FEW, (first, applied, len(batches(world)))
    assert oplog(world)["floor"] == floor(world) and oplog(world)["can_move"]
    assert world.masters.primary().metric("moonkeeper_floor") == floor(world)

    # All stop, all start: what is deleted from the log is in their snapshots.
    for each in world.masters.all:
        each.kill()
    for each in world.masters.all:
        each.start()
    world.masters.wait_until_redundant()
    assert all(snapshots(each)["started_from"] for each in world.masters.all)
    nothing_lost(world)


def test_a_new_standby_starts_from_shared_storage_when_the_log_is_cut_off(start_world, tmp_path):
    # Every directory is lost with its machine: what counts is the storage, once a second member has read it.
    world = start_world(
        clients=1, snapshot_interval="3s", snapshot_store=tmp_path / "shared", data_dir_durable="false"
    )
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    work_until_floor_is_above(world, "raw-before", 0)
    wait_until(lambda: below_floor_is_gone(world), "the batches below the floor to be deleted", 60)
    assert any(snapshots(each)["proven"] for each in world.masters.all)

    newcomer = world.masters.standbys()[0]
    lose_directory(newcomer)
    newcomer.start()
    world.masters.wait_until_connected()
    assert snapshots(newcomer)["started_from"] >= floor(world) or folder(newcomer).exists()
    for each in world.masters.all:
        if each is not newcomer:
            each.kill()
    wait_until(lambda: world.masters.primary() is newcomer, "the newcomer to lead", 60)
    nothing_lost(world)


def test_a_log_that_cannot_be_cut_off_says_why(start_world):
    world = start_world(clients=1, snapshot_interval="1s", data_dir_durable="false")
    put(world, "raw-before")
    world.masters.wait_until_redundant()

    def explained():
        return "lost with their machines" in (oplog(world).get("held_by") or "")

    work_until(world, "raw", explained, "the reason to be shown")
    assert all(len(held(each)) >= 2 for each in world.masters.standbys())
    assert not oplog(world)["can_move"] and floor(world) == 0 and batches(world)[0] == 1
    etcd = ("--etcd_endpoints", world.etcd.endpoints, "--cluster_id", world.masters.cluster_id)
    shown = subprocess.run(
        [os.environ["MOONKEEPER_BIN"], "status", *etcd], capture_output=True, text=True, timeout=60, check=False
    ).stdout
    assert "it begins at its first record; enough members hold two snapshots, but in directories" in shown, shown
    nothing_lost(world)
