"""`moonkeeper recover` with real etcd and real masters: each choice, each disaster it is for, what it refuses, and what is
left when it is killed."""

import contextlib
import json
import os
import pty
import shutil
import signal
import socket
import subprocess
import threading

import pytest

import log_faults
from actors import RawActor, StoreActor
from checker import summary
from history import History
from log_faults import wait_until_named
from messages import TENANT
from struct_pack import Ok
from takeover import put_until_taken
from test_snapshots import files, folder, wait_for_snapshot_of_all
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)
KEYS = 300
# For how long nothing can be written after a recovery: as short as the flag allows, and longer than a test.
SHORTLY, FOR_LONG = ("--put_start_release_timeout_sec", "1"), ("--put_start_release_timeout_sec", "3600")


def put(world, name, history=None):
    """Puts some objects, all of them acknowledged, and returns their keys. What a recovery will lose goes into a history of
    its own, which nothing is compared with."""
    published = world.published["raw"] if history is None else []
    actor = RawActor(name, world.seed, history or world.history, published, world.session())
    actor.put_batch(KEYS)
    assert len(actor.live) == KEYS
    return list(actor.live)


def put_real(world, name):
    StoreActor(name, world.seed, world.history, world.published["store"], world.clients[0]).put(20)


def command(world, *arguments, endpoints=None):
    etcd = ("--etcd_endpoints", endpoints or world.etcd.endpoints, "--cluster_id", world.masters.cluster_id)
    return [os.environ["MOONKEEPER_BIN"], "recover", *etcd, *map(str, arguments)]


def recover(world, *arguments, code=0):
    """Runs the command, and returns what it prints."""
    done = subprocess.run(
        command(world, *arguments), stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == code, done
    return done.stdout + done.stderr


def report(world, *arguments):
    return json.loads(recover(world, *arguments, "-o", "json"))


def latest(world):
    return json.loads(world.etcd.get(f"mooncake-store/oplog/{world.masters.cluster_id}/latest") or "{}")


def count(world, keys):
    """How many of these keys there are."""
    return sum(each == Ok(True) for each in world.call("BatchExistKey", keys, TENANT))


def kept(world, lost):
    """A primary serves, everything of the world's history is there, bytes included, and nothing of what was lost."""
    world.masters.wait_until_serving()
    world.wait_until_answered()
    world.masters.wait_until_redundant()
    assert not lost or count(world, lost) == 0
    violations = world.sweep()
    assert not violations, summary(violations)
    put_until_taken(lambda: world.clients[0].put("after", b"value"))
    assert len(set(world.masters.digests().values())) == 1


def test_a_restored_backup_is_continued_and_masters_that_knew_more_follow(start_world):
    world = start_world(clients=1, may_log=log_faults.LOG_GONE.errors)
    put(world, "raw-before")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    lost = []

    def later():
        lost.extend(put(world, "raw-lost", History()))
        # Every master has applied them.
        world.masters.digests()

    next(log_faults.restore_backup(world, later))
    wait_until_named(world)
    absent = world.masters.standbys()[0]
    absent.kill()

    shown = recover(world)
    end = latest(world)
    assert "no master leads" in shown and f"to {end['last']}, the last one of term {end['term']}" in shown
    assert "knows records up to" in shown and "this master knows" in shown
    plan = recover(world, "--truncate-at", end["last"], code=1)
    assert "nothing was changed: pass --yes" in plan and "which are not in etcd" in plan, plan
    assert latest(world) == end
    recover(world, "--truncate-at", end["last"] + 1, "--yes", code=1)
    recover(world, "--truncate-at", end["last"], "--empty", code=2)

    done = report(world, "--truncate-at", end["last"], "--yes", *SHORTLY)
    assert done["choice"]["kept"]["last"] == end["last"] and done["choice"]["supersedes"] == [end["log"]]
    assert latest(world)["log"] == done["new_log"]["id"] != end["log"]
    absent.start()
    kept(world, lost)


def test_a_lost_etcd_is_replaced_and_a_snapshot_continued(start_world):
    world = start_world(clients=1, snapshot_interval="2s", may_log=log_faults.LOG_GONE.errors)
    put(world, "raw-before")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    taker = world.masters.standbys()[0]
    wait_for_snapshot_of_all(world, taker)
    newest = world.folder / files(taker)[0].name
    shutil.copy(files(taker)[0], newest)
    record = int(newest.name.removesuffix(".snapshot"))
    lost = put(world, "raw-lost", History())
    end = latest(world)
    next(log_faults.empty_etcd(world))
    wait_until_named(world)

    shown = recover(world, "--from-snapshot", newest, code=1)
    assert "its readers get the wrong bytes" in shown and "there is no log in etcd" in shown, shown
    done = report(world, "--from-snapshot", newest, "--yes", *SHORTLY)
    assert done["choice"]["kept"]["last"] == record < end["last"]
    assert done["choice"]["supersedes"] == [end["log"]]
    # The others need a copy of the file, and say so.
    for each in world.masters.all:
        folder(each).mkdir(mode=0o700, exist_ok=True)
        shutil.copy(newest, folder(each))
    kept(world, lost)
    assert latest(world)["log"] == done["new_log"]["id"]
    # Snapshots of the new log replace the one that it was begun with.
    taker = world.masters.standbys()[0]
    wait_for_snapshot_of_all(world, taker)
    assert {each["log"] for each in taker.status()["snapshots"]["held"]} == {done["new_log"]["id"]}
    taker.kill()
    taker.start()
    world.masters.wait_until_connected()
    assert taker.status()["snapshots"]["started_from"] > record


def test_a_log_without_its_beginning_is_replaced_by_an_older_snapshot(start_world, tmp_path):
    store = tmp_path / "shared"
    world = start_world(clients=1, snapshot_interval="1s", snapshot_store=store, may_log=[*log_faults.LOG_GONE.errors])
    put(world, "raw-before")
    put_real(world, "store-before")
    world.masters.wait_until_redundant()
    taker = world.masters.standbys()[0]
    before = taker.status()["applied"]
    wait_for_snapshot_of_all(world, taker)
    lost = put(world, "raw-lost", History())
    for each in world.masters.all:
        each.kill()
    # The first snapshot that has everything that was put before is the only one left.
    copies = {int(each.name.removesuffix(".snapshot")): each for each in sorted(store.glob("*/*/by-*/*.snapshot"))}
    record = min(each for each in copies if each > before)
    for each in store.glob("*/*/by-*/*.snapshot"):
        if each != copies[record]:
            each.unlink()
    # What followed it at once is gone from the log, and so are the directories of the masters.
    end = latest(world)
    batches = f"mooncake-store/oplog/{world.masters.cluster_id}/batches/{end['log']}/"
    first, second = sorted(each for each in world.etcd.keys(batches) if each > f"{batches}{record:020}")[:2]
    assert first.endswith(f"{record + 1:020}")
    world.etcd.delete_range(f"{batches}{0:020}", second)
    for each in world.masters.all:
        shutil.rmtree(each.folder / each.name)
        each.start()

    def stuck():
        status = all(each.ready() for each in world.masters.all) and [each.status() for each in world.masters.all]
        return status and all("the log begins at record" in (each["why_not_ready"] or "") for each in status)

    wait_until(stuck, "all masters to say what they miss", 60)
    # The lease of the primary that was killed ends.
    wait_until(lambda: world.masters.primary() is None, "no master to lead", 60)
    held_back = recover(world, "--from-snapshot", record, "--truncate-at", end["last"], "--snapshot_store", store, code=1)
    assert "cannot be kept" in held_back and "the log in etcd begins at record" in held_back, held_back
    assert "which is not given" in recover(world, "--from-snapshot", record, "--yes", code=1)
    done = report(world, "--from-snapshot", record, "--snapshot_store", store, "--yes", *SHORTLY)
    assert done["choice"]["from_snapshot"]["last"] == record
    kept(world, lost)


def on_a_terminal(world, answer, *arguments):
    """Runs the command on a terminal, types an answer and returns the exit code."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(command(world, *arguments), stdin=theirs, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        os.write(ours, f"{answer}\n".encode())
        printed, _ = process.communicate(timeout=120)
        return process.returncode, printed.decode()
    finally:
        os.close(ours)
        os.close(theirs)


def test_an_empty_log_is_begun_after_a_question_and_writers_wait(start_world):
    world = start_world(clients=1, may_log=log_faults.LOG_GONE.errors)
    lost = put(world, "raw-lost", History())
    world.masters.wait_until_redundant()
    before = latest(world)
    primary = world.masters.primary()
    refused = recover(world, "--empty", "--yes", code=1)
    assert f"{primary.name} leads in term" in refused and latest(world)["log"] == before["log"], refused
    assert world.masters.primary() is primary and count(world, lost) == KEYS

    next(log_faults.delete_log(world))
    wait_until_named(world)
    code, printed = on_a_terminal(world, "yes", "--empty", *FOR_LONG)
    assert code == 1 and "nothing was changed" in printed and not latest(world), printed
    code, printed = on_a_terminal(world, world.masters.cluster_id, "--empty", *FOR_LONG)
    assert code == 0 and "The cluster has a new log" in printed, printed
    world.masters.wait_until_serving()
    world.wait_until_answered()
    assert count(world, lost) == 0
    # Its client has offered its memory again, and no bytes of it are given away.
    wait_until(lambda: world.segments(), "the client to offer its memory again")
    assert world.clients[0].put("early", b"value") != 0
    # No restart and no other primary changes that.
    world.masters.wait_until_connected()
    world.masters.primary().switchover()
    world.masters.wait_until_serving()
    assert world.clients[0].put("early", b"value") != 0
    # Another recovery sets another time.
    for each in world.masters.all:
        each.kill()
    world.etcd.delete(f"mooncake-store/{world.masters.cluster_id}/election")
    recover(world, "--empty", "--yes", *SHORTLY)
    for each in world.masters.all:
        each.start()
    world.masters.wait_until_serving()
    put_until_taken(lambda: world.clients[0].put("later", b"value"))


class Throttle:
    """Passes connections on to etcd, and stops for good when a number of bytes has gone there."""

    def __init__(self, endpoint, limit):
        host, port = endpoint.rsplit(":", 1)
        self._to, self._left, self._lock = (host, int(port)), limit, threading.Lock()
        self.reached = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self.endpoint = f"127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                incoming, _ = self._listener.accept()
                outgoing = socket.create_connection(self._to, timeout=10)
                outgoing.settimeout(None)
                self._sockets += [incoming, outgoing]
                for source, target, bounded in ((incoming, outgoing, True), (outgoing, incoming, False)):
                    threading.Thread(target=self._pass_on, args=(source, target, bounded), daemon=True).start()

    def _pass_on(self, source, target, bounded):
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if bounded:
                    with self._lock:
                        data, self._left = data[: self._left], self._left - len(data[: self._left])
                    if self._left == 0:
                        target.sendall(data)
                        self.reached.set()
                        return
                target.sendall(data)

    def close(self):
        for each in self._sockets:
            each.close()


def killed_after(world, limit, *arguments):
    """Runs the command until so many bytes have gone to etcd, and kills it. Returns whether it ended before."""
    throttle = Throttle(world.etcd.endpoints, limit)
    process = subprocess.Popen(
        command(world, *arguments, endpoints=throttle.endpoint), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        wait_until(lambda: throttle.reached.is_set() or process.poll() is not None, "the command to get so far", 60)
        ended = process.poll() is not None
        if not ended:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
        return ended
    finally:
        throttle.close()


def logs_with_batches(world):
    prefix = f"mooncake-store/oplog/{world.masters.cluster_id}/batches/"
    found = world.etcd.keys(prefix)
    return {key.removeprefix(prefix).split("/")[0] for key in found}


def test_a_recovery_that_is_killed_anywhere_can_be_run_again(start_world):
    world = start_world(clients=1, may_log=log_faults.LOG_GONE.errors)
    put(world, "raw-before")
    put_real(world, "store-before")
    # Records that no codec makes small, so that copying them takes several transactions.
    world.masters.wait_until_redundant()
    for each in world.masters.all:
        each.kill()
    world.etcd.delete(f"mooncake-store/{world.masters.cluster_id}/election")
    end = latest(world)
    choice = ("--truncate-at", end["last"], "--yes", *SHORTLY)
    limit, step, killed = 400, 400, 0
    while not killed_after(world, limit, *choice):
        killed += 1
        # Either nothing has happened, or all of it.
        now = latest(world)
        assert now == end or now["last"] == end["last"] + 1, now
        assert len(logs_with_batches(world)) <= 2
        if now != end:
            break
        world.etcd.delete(f"mooncake-store/{world.masters.cluster_id}/election")
        limit, step = limit + step, step + 200
        assert killed < 200
    assert killed >= 5, "it was never killed in the middle"
    if latest(world) == end:
        recover(world, *choice)
    # What it has left over is gone: the old log, which is kept, and the new one.
    assert logs_with_batches(world) == {end["log"], latest(world)["log"]}
    world.etcd.delete(f"mooncake-store/{world.masters.cluster_id}/election")
    for each in world.masters.all:
        each.start()
    kept(world, [])
