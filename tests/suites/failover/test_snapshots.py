"""Snapshots: standbys take them while they follow, a primary takes them while it is alone, masters start from them, and a
bad file, a bad disk or a bad store costs nothing."""

import json
import os
import shutil
import subprocess

import pytest

from actors import RawActor, StoreActor
from checker import summary
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)
KEYS = 300


def put(world, name):
    """Puts some objects, all of them acknowledged."""
    actor = RawActor(name, world.seed, world.history, world.published["raw"], world.session())
    actor.put_batch(KEYS)
    assert len(actor.live) == KEYS


def put_real(world, name):
    """Has the real client put some objects, whose bytes are read again at the end."""
    StoreActor(name, world.seed, world.history, world.published["store"], world.clients[0]).put(20)


def applied(master):
    return master.status()["applied"]


def snapshots(master):
    return master.status()["snapshots"]


def held(master):
    """The last records of the snapshots that a master says it can start from, newest first."""
    return [each["sequence_id"] for each in snapshots(master)["held"]]


def folder(master):
    return master.folder / master.name / "snapshots"


def files(master):
    """The snapshots on the disk of a master, newest first."""
    return sorted(folder(master).glob("*.snapshot"), reverse=True)


def records(master):
    return [int(each.name.removesuffix(".snapshot")) for each in files(master)]


def wait_for_snapshot(master, record, count=1):
    """Until a master holds a snapshot of everything up to a record, and as many as that."""

    def there():
        return len(held(master)) >= count and held(master)[0] >= record

    wait_until(there, f"{count} snapshots of {master.name}, one from record {record} on", 60)


def wait_for_snapshot_of_all(world, master, count=1):
    """Until a master holds a snapshot of everything that was put so far. It takes another one only if something changes."""
    record = applied(world.masters.primary())
    put(world, f"raw-{record}")
    wait_for_snapshot(master, record, count)


def damage(path):
    """Changes one bit in the middle of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def nothing_lost(world):
    world.wait_until_answered()
    violations = world.sweep()
    assert not violations, summary(violations)


def log_of(master):
    return master.logs[-1].read_text()


def test_a_killed_standby_starts_from_its_snapshot_and_can_lead(start_world):
    world = start_world(clients=1, snapshot_interval="2s")
    put(world, "raw-before")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    primary = world.masters.primary()
    standby, other = world.masters.standbys()
    wait_for_snapshot_of_all(world, standby)

    # Records after the snapshot, some of them while the standby is away.
    put(world, "raw-later")
    standby.kill()
    put(world, "raw-meanwhile")
    newest = records(standby)[0]
    standby.start()
    world.masters.wait_until_connected()
    assert snapshots(standby)["started_from"] == newest
    assert not list(folder(standby).glob("*.partial")), "what was being written is gone"

    # Its state is as good as that of a master that read the whole log: it is the only one left to lead.
    other.kill()
    primary.kill()
    wait_until(lambda: world.masters.primary() is standby, "the restarted standby to lead", 60)
    nothing_lost(world)


def test_all_masters_stop_and_start_and_a_damaged_snapshot_is_skipped(start_world):
    world = start_world(clients=1, snapshot_interval="1s", snapshots_kept=2)
    put(world, "raw-before")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    one, other = world.masters.standbys()
    wait_for_snapshot(one, 1)
    wait_for_snapshot_of_all(world, one, count=2)
    wait_for_snapshot(other, 1)
    wait_for_snapshot_of_all(world, other, count=2)
    for each in world.masters.all:
        each.kill()
    # One more may be kept: the nearest above the floor of the log.
    assert all(len(files(each)) in (2, 3) for each in (one, other)), "older ones are removed"
    assert all(each.stat().st_mode & 0o077 == 0 for each in files(one)), "only the owner may read them"

    damage(files(one)[0])
    shutil.copy(files(other)[0], folder(other) / "00000000099999999999.snapshot")
    expected = {one.name: records(one)[1], other.name: records(other)[1]}
    for each in world.masters.all:
        each.start()
    nothing_lost(world)
    for each in (one, other):
        assert snapshots(each)["started_from"] == expected[each.name]
        assert "a snapshot cannot be used" in log_of(each)


def test_a_disk_that_cannot_be_written_stops_nothing(start_world):
    world = start_world(clients=1, snapshot_interval="1s")
    world.masters.wait_until_redundant()
    standby = world.masters.standbys()[0]
    standby.kill()
    # No folder can be made where there is a file, not even by root.
    shutil.rmtree(folder(standby), ignore_errors=True)
    folder(standby).write_text("in the way")
    standby.start()
    world.masters.wait_until_redundant()
    error = wait_until(lambda: snapshots(standby)["error"], "the failure to be shown", 60)
    assert str(folder(standby)) in error
    put(world, "raw-meanwhile")
    nothing_lost(world)
    assert standby.ready()[0] == 200 and held(standby) == []

    folder(standby).unlink()
    wait_for_snapshot(standby, 1)
    assert snapshots(standby)["error"] is None


def test_a_master_that_is_alone_takes_snapshots_and_an_idle_one_takes_no_more(start_world):
    world = start_world(masters=1, clients=1, snapshot_interval="1s")
    put(world, "raw-before")
    put_real(world, "store-before")
    (alone,) = world.masters.all
    wait_for_snapshot_of_all(world, alone)

    def is_idle():
        """No other snapshot in three intervals."""
        newest = held(alone)[0]
        before = applied(alone)
        wait_until(lambda: applied(alone) >= before + 4, "heartbeats to be written")
        return held(alone)[0] == newest

    wait_until(is_idle, "the last snapshot of a cluster in which nothing changes", 60)
    newest = records(alone)[0]
    alone.kill()
    alone.start()
    nothing_lost(world)
    assert snapshots(alone)["started_from"] == newest


def lose_directory(master):
    """The machine of a master comes back with an empty disk."""
    master.kill()
    shutil.rmtree(master.folder / master.name)


def test_shared_storage_serves_a_master_without_a_directory_of_its_own(start_world, tmp_path):
    store = tmp_path / "shared"
    missing = "cannot follow the log.*the log begins at record"
    world = start_world(clients=1, snapshot_interval="1s", snapshot_store=store, may_log=[missing])
    put(world, "raw-before")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    one, other = world.masters.standbys()
    wait_for_snapshot_of_all(world, one)
    copies = lambda: list(store.glob(f"*/*/by-{one.name}/*.snapshot"))  # noqa: E731
    wait_until(lambda: all(each["shared"] for each in snapshots(one)["held"]) and copies(), "a copy to be shared", 60)
    assert all(each.stat().st_mode & 0o077 == 0 for each in copies())

    lose_directory(other)
    other.start()
    world.masters.wait_until_connected()
    assert snapshots(other)["started_from"]

    # The log is truncated behind a snapshot that is shared.
    newest = next(each for each in snapshots(one)["held"] if each["shared"])
    batches = f"mooncake-store/oplog/{world.masters.cluster_id}/batches/{newest['log']}/"
    world.etcd.delete_range(f"{batches}{0:020}", f"{batches}{newest['sequence_id'] + 1:020}")
    lose_directory(other)
    away = store.with_name("away")
    store.rename(away)
    other.start()

    def stuck():
        reason = other.ready() and (other.status().get("why_not_ready") or "")
        return reason if reason and "the log begins" in reason else None

    named = wait_until(stuck, "the master to say what it misses", 60)
    assert f"the log begins at record {newest['sequence_id'] + 1}" in named and f"{one.name} holds one" in named, named
    assert other.ready()[0] != 200
    shutil.rmtree(store, ignore_errors=True)
    away.rename(store)
    world.masters.wait_until_connected()
    assert snapshots(other)["started_from"] >= newest["sequence_id"]

    # Nothing that was acknowledged is missing when it leads.
    for each in world.masters.all:
        if each is not other:
            each.kill()
    wait_until(lambda: world.masters.primary() is other, "the master without a past to lead", 60)
    nothing_lost(world)


def command(*arguments, code=0):
    """Runs `moonkeeper snapshot` and returns what it prints."""
    run = [os.environ["MOONKEEPER_BIN"], "snapshot", *map(str, arguments)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120)
    assert done.returncode == code, done
    return done.stdout + done.stderr


def test_a_snapshot_on_request(start_world):
    world = start_world(clients=1)
    put(world, "raw-before")
    world.masters.wait_until_connected()
    primary = world.masters.primary()
    at = ("--admin", primary.host.at(primary.admin_port), "--admin_token_file", world.folder / "token")
    before = applied(primary)
    taken = json.loads(command("create", *at, "-o", "json"))
    standby = next(each for each in world.masters.standbys() if each.name == taken["member"])
    assert taken["sequence_id"] >= before and taken["objects"] == KEYS
    # The status follows within a moment. Before it may be the one that every standby takes when it has none.
    wait_for_snapshot(standby, taken["sequence_id"])
    assert records(standby) == held(standby) and held(standby)[0] == taken["sequence_id"]

    named = world.masters.standbys()[0]
    shown = command("create", *at, "--member", named.name)
    record = records(named)[0]
    assert shown.startswith(f"{named.name} has taken a snapshot up to record {record}: {KEYS} objects, ")
    wait_for_snapshot(named, record)
    assert "not a standby" in command("create", *at, "--member", primary.name, code=1)

    etcd = ("--etcd_endpoints", world.etcd.endpoints, "--cluster_id", world.masters.cluster_id)

    def listed():
        members = {each["member"]: each["held"] for each in json.loads(command("list", *etcd, "-o", "json"))}
        # The primary takes one, too, once standbys are two ahead of it.
        return all([one["sequence_id"] for one in members[each.name]] == held(each) for each in (standby, primary))

    wait_until(listed, "the snapshots to be in etcd")
    assert primary.name in command("list", "--http", primary.host.at(primary.metrics_port))

    data = standby.folder / standby.name
    assert command("verify", data).count(": good: ") == len(files(standby))
    damage(files(standby)[0])
    assert f"{files(standby)[0]}: not good: " in command("verify", data, code=1)
