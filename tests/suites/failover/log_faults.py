"""Faults that take the log away from under the masters; see faults.py for what a fault is. The right result is that no
master serves another history and that each says so; then the log is put back."""

import json
import shutil
import time

from expectations import EITHER, Expects, expects
from messages import TENANT
from raw import NoAnswer, NotSent, Session
from struct_pack import Ok
from waiting import wait_until

# For so long the masters are watched with the wrong log: two leases, and the second that a new primary takes.
WATCH_SECONDS = 12
# All masters throw away what they cannot vouch for, and each says that a person must act.
LOG_GONE = Expects(
    EITHER,
    rebuilds=20,
    faults=("etcd's revision went back",),
    errors=(r"cannot follow the log", r"the revision of etcd went back"),
)
# Traffic between a backup and its restoration.
LATER_SECONDS = 2


def watch(world, keys, seconds=WATCH_SECONDS):
    """Asks all masters for `keys` all the time: an answer may only be that all of them are there."""
    end = time.monotonic() + seconds
    sessions = [Session([address], world.host, answer_seconds=1) for address in world.masters.addresses]
    while time.monotonic() < end:
        for session in sessions:
            try:
                answers = session.call("BatchExistKey", keys, TENANT)
            except (NoAnswer, NotSent):
                continue
            missing = sum(each != Ok(True) for each in answers)
            assert not missing, f"{missing} of {len(keys)} acknowledged keys are not there"
        time.sleep(0.05)
    for session in sessions:
        session.close()


def _names_it(text):
    """Whether a text says that the log in etcd is not the one that this master has seen."""
    return "another history" in text or "this master knows" in text


def wait_until_named(world):
    """Until no master is ready or serves, and each says that the log is not the one that it has seen."""

    def unnamed():
        found = []
        for each in world.masters.all:
            status, ready = each.http("/api/v1/status"), each.ready()
            status = status and json.loads(status)
            if not status or not ready:
                found.append(f"{each.name} does not answer")
            elif ready[0] != 503 or status["ready"]:
                found.append(f"{each.name} is ready: {ready}")
            elif not _names_it(ready[1]) or not _names_it(status["why_not_ready"] or ""):
                found.append(f"{each.name} does not name it: {ready[1]!r}, {status['why_not_ready']!r}")
        return found

    last = []

    def named():
        last[:] = unnamed()
        return not last

    try:
        wait_until(named, "all masters to name another history")
    except AssertionError as gave_up:
        raise AssertionError(f"{gave_up}: {'; '.join(last)}") from None


def delete_log(world):
    """All keys of the log are deleted under running masters."""
    taken = world.etcd.take_away(f"mooncake-store/oplog/{world.masters.cluster_id}/")
    yield
    world.etcd.put_back(taken)


def delete_all_keys(world):
    """All keys of all clusters are deleted under running masters."""
    taken = world.etcd.take_away("mooncake-store/")
    yield
    world.etcd.put_back(taken)


def empty_etcd(world):
    """etcd comes back with an empty folder, and gets as many revisions as it had."""
    revision = world.etcd.revision()
    world.etcd.exchange("nothing")
    # Another user of the same etcd writes: the masters' view must not only seem to be older.
    while world.etcd.revision() <= revision:
        world.etcd.write_elsewhere()
    yield
    world.etcd.exchange("nothing")
    _forget(world, "nothing")


def restore_backup(world, later=lambda: time.sleep(LATER_SECONDS)):
    """etcd is restored from a backup that lacks what was written since."""
    world.etcd.back_up("backup")
    world.wait_until_answered()
    later()
    # A master that has seen nothing of what came later could take the backup for the whole log.
    world.masters.wait_until_redundant()
    world.etcd.exchange("backup")
    yield
    world.etcd.exchange("backup")
    _forget(world, "backup")


def _forget(world, name):
    for each in world.etcd.members:
        shutil.rmtree(each.data.with_name(f"{each.name}-{name}"))


def _round(world, harm):
    world.masters.wait_until_serving()
    struck = time.monotonic()
    steps = harm(world)
    next(steps)
    # The traffic of the round goes on; what it reads is checked with everything else.
    time.sleep(WATCH_SECONDS)
    wait_until_named(world)
    next(steps, None)
    yield struck


@expects(LOG_GONE)
def log_deleted(world):
    """The log, or all keys, deleted; then put back."""
    yield from _round(world, world.random.choice([delete_log, delete_all_keys]))


@expects(LOG_GONE)
def etcd_restored(world):
    """etcd restored from a backup, or empty; then its data is put back."""
    yield from _round(world, world.random.choice([restore_backup, restore_backup, empty_etcd]))
