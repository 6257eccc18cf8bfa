"""The companion of a master: turns clients away when the master has died, and does nothing before that."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import tempfile
import time

import pytest

import out_of_memory
import processes
from messages import TENANT
from rpc import Connection
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)

# More than a connection on the loopback needs; an answer that takes as long would be none.
PATIENCE_SECONDS = 10
# A connection that nothing accepts stays silent; this long is enough to tell, because one that is accepted is closed at
# once.
SILENCE_SECONDS = 1
# What a companion may cost beside its master.
MAX_BYTES = 5_000_000
NOBODY = 65534


def connect(master, port=None):
    with master.host.inside():
        return socket.create_connection((master.host.address, port or master.rpc_port), timeout=PATIENCE_SECONDS)


def is_refused(master, port=None):
    try:
        connect(master, port).close()
        return False
    except ConnectionRefusedError:
        return True


def is_turned_away(master):
    """Whether a connection is accepted and closed without an answer; False if it is refused."""
    try:
        with connect(master) as client, contextlib.suppress(ConnectionResetError):
            client.sendall(b"\0" * 64)
            assert client.recv(1) == b""
        return True
    except ConnectionRefusedError:
        return False


def is_silent(master):
    """Whether a connection is neither closed nor answered."""
    with connect(master) as client:
        client.settimeout(SILENCE_SECONDS)
        try:
            return client.recv(1) != b""
        except TimeoutError:
            return True


def companion_of(masters, master):
    """The process id of its companion, once that watches it."""
    wait_until(lambda: master.metric("moonkeeper_companion_connected") == 1, "a companion", PATIENCE_SECONDS)
    before = masters.companions()
    inode = listening_inode(master.process.pid, master.rpc_port)
    if inode is None:
        return before
    return [pid for pid in before if inode in sockets_of(pid)]


def sockets_of(pid):
    """Inodes of the sockets that a process has open."""
    found = set()
    # It may end meanwhile.
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        for entry in os.listdir(f"/proc/{pid}/fd"):
            target = os.readlink(f"/proc/{pid}/fd/{entry}")
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    return found


def listening_inode(pid, port):
    """The inode of the socket with which a process listens on a port of IPv4; None if it does not."""
    for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and int(words[1].split(":")[1], 16) == port and words[9] in sockets_of(pid):
            return words[9]
    return None


def wait_for_companions(masters, count):
    return wait_until(
        lambda: len(found := masters.companions()) == count and (found or True), f"{count} companions", PATIENCE_SECONDS
    )


@pytest.fixture
def serving(start_world):
    """A world of two masters without clients, whose companions are all there."""

    def start(masters=2, **settings):
        world = start_world(masters=masters, clients=0, **settings)
        world.masters.wait_until_connected()
        for each in world.masters.all:
            companion_of(world.masters, each)
        return world

    return start


def held_by_companion(world, primary):
    """The companion that holds the port of this primary."""

    def one():
        found = companion_of(world.masters, primary)
        return found[0] if len(found) == 1 else None

    return wait_until(one, "a companion that holds the port", PATIENCE_SECONDS)


def test_clients_of_a_killed_primary_are_turned_away(serving):
    world = serving()
    primary = world.masters.primary()
    held_by_companion(world, primary)
    primary.kill()
    wait_until(lambda: is_turned_away(primary), "the companion to turn clients away", PATIENCE_SECONDS)
    assert all(is_turned_away(primary) for _ in range(50))
    assert is_refused(primary, primary.peer_port), "the death of a process is noticed by its peer port"
    assert world.wait_for_another(primary) is not primary
    assert is_turned_away(primary)


def run_out_of_memory(master):
    """The kernel kills it: the memory of its cgroup is used up."""
    out_of_memory.kill(master.process)


def abort(master):
    """What a panic of the release build ends in (test_abort.py)."""
    os.kill(master.process.pid, signal.SIGABRT)
    assert master.process.wait(PATIENCE_SECONDS) == -signal.SIGABRT


@pytest.mark.parametrize("end", [run_out_of_memory, abort])
def test_it_outlives_its_master_and_gives_the_port_to_the_next_one(serving, end):
    world = serving()
    old = world.masters.primary()
    companion = held_by_companion(world, old)
    old.wanted = False
    end(old)
    wait_until(lambda: is_turned_away(old), "the companion to turn clients away", PATIENCE_SECONDS)
    assert all(is_turned_away(old) for _ in range(50))
    assert is_refused(old, old.peer_port), "the death of a process is noticed by its peer port"
    assert companion in world.masters.companions()
    new = world.wait_for_another(old)
    old.start()
    wait_until(lambda: "took the port" in last_log(old), "the restarted master to take the port", PATIENCE_SECONDS)
    world.masters.wait_until_connected()
    new.switchover(old.name)
    assert world.masters.wait_until_serving() is old
    assert pings(world, old)
    assert held_by_companion(world, old) == companion


def test_nothing_is_accepted_while_the_process_is_stopped(serving):
    world = serving(masters=1)
    primary = world.masters.primary()
    companion = held_by_companion(world, primary)
    primary.pause()
    try:
        with connect(primary) as waiting:
            assert is_silent(primary)
            # Not when the connection between the two has ended either: the process lives.
            assert companion in world.masters.companions()
            waiting.settimeout(SILENCE_SECONDS)
            with pytest.raises(TimeoutError):
                waiting.recv(1)
    finally:
        primary.resume()


def test_it_has_the_rpc_port_and_nothing_else_of_the_master(serving):
    world = serving(masters=1)
    primary = world.masters.primary()
    companion = held_by_companion(world, primary)
    port = listening_inode(primary.process.pid, primary.rpc_port)
    shared = sockets_of(companion) & sockets_of(primary.process.pid)
    assert shared == {port}
    targets = [os.readlink(f"/proc/{companion}/fd/{each}") for each in os.listdir(f"/proc/{companion}/fd")]
    kinds = {target.split(":")[0] for target in targets}
    # /dev/null, its last words, the sockets, the pidfds, and what a runtime waits with.
    assert kinds <= {"/dev/null", "pipe", "socket", "anon_inode"}, targets
    assert os.getsid(companion) == companion != os.getsid(primary.process.pid)
    environment = pathlib.Path(f"/proc/{companion}/environ").read_bytes().split(b"\0")
    assert {each.split(b"=")[0] for each in environment if each} <= {b"MOONKEEPER_DIES_WITH", b"_RJEM_MALLOC_CONF"}


def memory_of(pid):
    """What the kernel says of the memory of a process, in bytes."""
    found = {}
    for file in ("status", "smaps_rollup"):
        for line in pathlib.Path(f"/proc/{pid}/{file}").read_text().splitlines():
            words = line.split()
            if words[-1] == "kB":
                found[words[0].rstrip(":")] = int(words[1]) * 1024
    return found


def test_it_is_small(serving):
    world = serving(masters=1)
    primary = world.masters.primary()
    companion = held_by_companion(world, primary)
    memory = memory_of(companion)
    # For docs/decisions/007; shown with `pytest -s`.
    for name, each in [("master", memory_of(primary.process.pid)), ("companion", memory)]:
        shown = ("VmRSS", "RssAnon", "RssFile", "Pss", "Private_Clean", "Private_Dirty", "VmPTE")
        print(f"{name:<10}", *(f"{key} {each[key] / 1e6:.2f} MB" for key in shown), sep="  ")
    # What the machine would have back without it: the other pages are of the program and mapped by its master as well.
    cost = memory["Private_Clean"] + memory["Private_Dirty"] + memory["VmPTE"]
    assert cost <= MAX_BYTES, memory
    tasks = os.listdir(f"/proc/{companion}/task")
    assert len(tasks) == 1, tasks


def test_a_restarted_master_takes_the_port_and_serves_on_it(serving):
    world = serving()
    old = world.masters.primary()
    held_by_companion(world, old)
    old.kill()
    new = world.wait_for_another(old)
    old.start()
    # Its clients are turned away without a gap, by itself as soon as it runs.
    wait_until(lambda: "took the port" in last_log(old), "the restarted master to take the port", PATIENCE_SECONDS)
    assert is_turned_away(old)
    world.masters.wait_until_connected()
    new.switchover(old.name)
    assert world.masters.wait_until_serving() is old
    assert pings(world, old)
    # And once more from the beginning.
    held_by_companion(world, old)
    old.kill()
    wait_until(lambda: is_turned_away(old), "the companion to turn clients away", PATIENCE_SECONDS)


def test_a_lone_master_serves_again_on_the_port_that_its_companion_held(serving):
    world = serving(masters=1)
    primary = world.masters.primary()
    held_by_companion(world, primary)
    primary.kill()
    assert wait_until(lambda: is_turned_away(primary), "the companion to turn clients away", PATIENCE_SECONDS)
    primary.start()
    assert world.masters.wait_until_serving() is primary
    assert pings(world, primary)
    wait_for_companions(world.masters, 1)


def test_an_orderly_end_is_that_of_the_companion(serving):
    world = serving(masters=1)
    held_by_companion(world, world.masters.primary())
    world.masters.primary().terminate()
    wait_for_companions(world.masters, 0)
    assert is_refused(world.masters.all[0])
    assert not list(pathlib.Path(world.masters.run_folder).rglob("*.sock"))


def test_without_its_companion_a_master_fails_over_as_before(serving):
    world = serving()
    primary = world.masters.primary()
    companion = held_by_companion(world, primary)
    # Stopped, so that it cannot start another.
    primary.pause()
    os.kill(companion, signal.SIGKILL)
    wait_until(lambda: not sockets_of(companion), "the companion to end", PATIENCE_SECONDS)
    primary.kill()
    assert is_refused(primary)
    assert world.wait_for_another(primary) is not primary


def test_a_companion_that_dies_is_replaced_and_counted(serving):
    world = serving(masters=1)
    primary = world.masters.primary()
    first = held_by_companion(world, primary)
    assert primary.metric("moonkeeper_companion_failures_total") == 0
    os.kill(first, signal.SIGKILL)
    wait_until(
        lambda: primary.metric("moonkeeper_companion_failures_total") == 1 and world.masters.companions() not in ([], [first]),
        "another companion",
        PATIENCE_SECONDS,
    )
    assert held_by_companion(world, primary) != first
    assert pings(world, primary)
    primary.kill()
    wait_until(lambda: is_turned_away(primary), "the other companion to turn clients away", PATIENCE_SECONDS)


def test_it_can_be_turned_off(start_world):
    world = start_world(masters=1, clients=0, companion="false")
    primary = world.masters.primary()
    assert world.masters.companions() == []
    primary.kill()
    assert is_refused(primary)


def test_another_user_is_refused(serving):
    world = serving(masters=1)
    primary = world.masters.primary()
    held_by_companion(world, primary)
    [path] = pathlib.Path(world.masters.run_folder).rglob("*.sock")
    assert path.stat().st_mode & 0o777 == 0o600 and path.parent.stat().st_mode & 0o777 == 0o700
    assert said_to_another_user(path) == "PermissionError"
    # Where files do not keep it out, its user does.
    for each, mode in [(path.parent.parent, 0o755), (path.parent, 0o755), (path, 0o666)]:
        each.chmod(mode)
    assert said_to_another_user(path) == "b''"
    # The same user is heard, and cannot take the place of a master that lives.
    hello = json.dumps({"kind": "hello", "boot_id": "another"}).encode() + b"\n"
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(PATIENCE_SECONDS)
        caller.connect(str(path))
        socket.send_fds(caller, [hello], [os.pidfd_open(os.getpid())])
        assert caller.recv(100) == b'{"kind":"busy"}\n'
    # What it does not know ends a connection.
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(PATIENCE_SECONDS)
        caller.connect(str(path))
        caller.sendall(b'{"kind":"accept"}\n')
        assert caller.recv(100) == b""
    primary.kill()
    wait_until(lambda: is_turned_away(primary), "the companion to turn clients away", PATIENCE_SECONDS)


def said_to_another_user(path):
    """What a process of another user hears there, or why it does not come in."""
    program = (
        "import socket, sys\n"
        "caller = socket.socket(socket.AF_UNIX)\n"
        f"caller.settimeout({PATIENCE_SECONDS})\n"
        "try:\n"
        "    caller.connect(sys.argv[1])\n"
        "    print(caller.recv(100))\n"
        "except OSError as why:\n"
        "    print(type(why).__name__)\n"
    )
    command = ["/usr/bin/python3", "-c", program, str(path)]
    done = subprocess.run(command, user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_up_leaves_none_behind_however_it_ends(tmp_path):
    ports = ["--etcd-port=0", "--rpc-port-base=0", "--http-port-base=0"]
    with tempfile.TemporaryDirectory(prefix="mk-") as folder:
        env = os.environ | {"XDG_RUNTIME_DIR": folder, "TMPDIR": folder}
        up = processes.spawn([os.environ["MOONKEEPER_BIN"], "up", *ports], tmp_path / "up.log", env=env)
        socket_folder = f"{folder}/moonkeeper-{os.geteuid()}/"
        try:
            wait_until(lambda: len(processes.with_argument(socket_folder)) == 3, "three companions", 60)
        finally:
            processes.kill(up)
        wait_until(lambda: not processes.with_argument(socket_folder), "all companions to end", PATIENCE_SECONDS)


def last_log(master):
    return (master.folder / f"{master.name}-{master.starts - 1}.log").read_text()


def pings(world, master):
    """Whether it answers a call on its RPC port."""
    with master.host.inside():
        connection = Connection((master.host.address, master.rpc_port))
    try:
        return connection.call("ExistKey", "a", TENANT) is not None
    finally:
        connection.close()


def test_its_report_shortens_the_hold_of_the_new_primary(serving):
    """R6: without a report the new primary waits for the leader's lease as well, because the old one might live."""
    read_lease_ms = 10_000
    settings = {"leader_lease_ttl": "60s", "default_kv_lease_ttl": f"{read_lease_ms}ms"}

    def hold_after_kill(with_companion):
        world = serving(**settings)
        primary = world.masters.primary()
        companion = held_by_companion(world, primary)
        # The companion is told each second what there is to report; neither says so.
        time.sleep(2)
        if not with_companion:
            os.kill(companion, signal.SIGKILL)
        primary.kill()
        return world.wait_for_another(primary).status()["hold_ms_left"]

    assert 0 < hold_after_kill(with_companion=True) <= read_lease_ms
    assert hold_after_kill(with_companion=False) > read_lease_ms


def test_it_does_not_report_a_process_that_is_stopped(serving):
    """R6: a stopped process has not ended, and may answer reads when it goes on. The hold is that of a primary about which
    nothing is known, although another one leads by now and the companion lives."""
    read_lease_ms = 10_000
    # A busy machine may take this long to ask for the hold before it is as short as with a report.
    world = serving(leader_lease_ttl="10s", default_kv_lease_ttl=f"{read_lease_ms}ms")
    old = world.masters.primary()
    companion = held_by_companion(world, old)
    # The companion is told each second what there is to report.
    time.sleep(2)
    old.pause()
    try:
        new = world.wait_for_another(old).status()
        assert companion in world.masters.companions()
        assert new["promotion"]["reason"] == "the lease ran out"
        assert new["hold_ms_left"] > read_lease_ms
    finally:
        old.resume()
