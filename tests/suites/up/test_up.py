"""`moonkeeper up` with a real client: what it prints works, what it runs survives, and nothing is left when it ends."""

import json
import os
import signal
import subprocess

from running import alive
from waiting import wait_until


def test_the_printed_program_works_and_goes_on_when_the_primary_is_killed(start_up, start_client):
    up = start_up()
    client = start_client(up)
    first = up.wait_for_primary(1)
    os.kill(up.pids()[first], signal.SIGKILL)
    assert up.wait_for_primary(2) != first
    client.put_after_a_failover("later")
    # From the first that is taken, all are.
    assert [client.ask("put", f"later-{number}") for number in range(20)] == ["0"] * 20
    assert client.ask("get", "later") == "b'of later'"
    assert client.ask("get", "key") == "b'value'"
    # The one that was killed comes back as a standby, and says so.
    wait_until(lambda: f"{first} is standby" in up.text(), "the killed master to come back", seconds=60)
    assert f"{first} (pid {up.pids()[first]}) was killed" in up.text()


def test_the_proposed_commands_work(start_up):
    up = start_up()
    first = up.wait_for_primary(1)
    wait_until(lambda: "nothing is wrong" in up.command("status"), "three healthy masters", seconds=60)
    assert f"{first} leads" in up.command("status")
    said = up.command("switchover")
    second = up.wait_for_primary(2)
    assert said.startswith(f"{second} leads now") and second != first
    assert f"{second} leads" in up.command("status")


def test_status_through_etcd(start_up):
    up = start_up("--masters=2")
    first = up.wait_for_primary(1)
    endpoint = up.line("cluster ").rsplit(" ", 1)[1]
    command = [os.environ["MOONKEEPER_BIN"], "status", "--etcd_endpoints", endpoint, "-o", "json"]
    status = json.loads(subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout)
    assert status["leader"] == first and status["cluster_id"] == "mooncake_cluster"
    assert [each["name"] for each in status["members"]] == ["m-0", "m-1"]
    assert all(each["status"] for each in status["members"])


def test_nothing_is_left_when_it_is_stopped(start_up):
    for how in (signal.SIGINT, signal.SIGTERM):
        up = start_up("--masters=2")
        pids = up.pids().values()
        folder = os.path.dirname(up.line("moonkeeper switchover").split()[-1])
        assert all(alive(pid) for pid in pids) and os.path.isdir(folder)
        assert up.stop(how) == 0
        assert not any(alive(pid) for pid in pids)
        assert not os.path.exists(folder)


def test_the_masters_end_with_it_even_when_it_is_killed(start_up):
    up = start_up("--masters=2")
    pids = up.pids().values()
    # Not its group: each master is in one of its own.
    os.kill(up.process.pid, signal.SIGKILL)
    wait_until(lambda: not any(alive(pid) for pid in pids), "the masters to end")


def test_with_a_folder_the_index_is_still_there_after_a_restart(start_up, start_client, tmp_path):
    folder = tmp_path / "data"
    data, often = f"--data-dir={folder}", ("--", "--snapshot_interval=1s")

    def holders():
        """The masters that have a snapshot."""
        return {each.parts[-3] for each in folder.glob("*/snapshots/*.snapshot")}

    up = start_up(data, *often)
    client = start_client(up)
    ports = [f"--etcd-port={up.line('cluster ').rsplit(':', 1)[1]}"]
    assert client.ask("put", "kept") == "0"
    wait_until(lambda: len(holders()) == 2, "both standbys to have a snapshot")
    assert up.stop() == 0
    held = holders()
    up = start_up(data, *ports, *often)

    def from_snapshots():
        """The masters that have started from a snapshot; None while one does not answer."""
        members = json.loads(up.command("status", "-o", "json"))["members"]
        told = {each["name"]: each["status"] and each["status"]["snapshots"] for each in members}
        return {name for name, snapshots in told.items() if snapshots["started_from"]} if all(told.values()) else None

    assert wait_until(from_snapshots, "all masters to answer") == held

    def found():
        answer = client.ask("get", "kept")
        assert answer in ("b''", "b'of kept'"), answer
        return answer == "b'of kept'"

    wait_until(found, "the client to find it again", seconds=100)


def test_the_size_of_the_store_is_shown(start_up, start_client, tmp_path):
    up = start_up(f"--data-dir={tmp_path / 'data'}", "--masters=1")
    client = start_client(up)
    assert [client.ask("put", f"key-{number}") for number in range(20)] == ["0"] * 20
    file = tmp_path / "data" / "coordination" / "store.log"
    least = file.stat().st_size

    def shown():
        etcd = json.loads(up.command("status", "-o", "json"))["etcd"]
        return etcd if etcd and (etcd["db_bytes"] or 0) >= least else None

    etcd = wait_until(shown, "the status to have the size of the file", seconds=60)
    assert least <= etcd["db_bytes"] <= file.stat().st_size and 0 < etcd["in_use_bytes"] <= etcd["db_bytes"]


def test_the_index_survives_kills_while_the_store_rewrites_its_file(start_up, start_client, tmp_path):
    data = f"--data-dir={tmp_path / 'data'}"
    up = start_up(data, "--masters=2")
    client = start_client(up)
    endpoint = up.line("cluster ").rsplit(" ", 1)[1]
    for kill in range(3):
        rewriting = subprocess.Popen(
            ["sh", "-c", "while timeout 10 \"$ETCDCTL_BIN\" defrag >/dev/null; do :; done"],
            env={**os.environ, "ETCDCTL_ENDPOINTS": endpoint}, stderr=subprocess.DEVNULL, start_new_session=True)
        try:
            # Objects can be read before their client has offered its memory again, but not put.
            wait_until(lambda: client.ask("put", f"joined-{kill}") == "0", "the client to join", seconds=100)
            keys = [f"key-{kill}-{number}" for number in range(50)]
            assert [client.ask("put", key) for key in keys] == ["0"] * len(keys)
            pids = up.pids().values()
            os.kill(up.process.pid, signal.SIGKILL)
            wait_until(lambda: not any(alive(pid) for pid in pids), "the masters to end")
        finally:
            os.killpg(rewriting.pid, signal.SIGTERM)
            rewriting.wait(timeout=60)
        up = start_up(data, "--masters=2", f"--etcd-port={endpoint.rsplit(':', 1)[1]}")
        for key in keys:
            wait_until(lambda: client.ask("get", key) == f"b'of {key}'", f"the client to find {key} again", seconds=100)


def test_what_cannot_start_is_said(tmp_path):
    def run(*arguments):
        command = [os.environ["MOONKEEPER_BIN"], "up", "--rpc-port-base=0", "--http-port-base=0", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    hopeless = run("--etcd-port=0", "--masters=1", "--", "--no_such_flag=1")
    assert hopeless.returncode == 1 and "no_such_flag" in hopeless.stderr, hopeless
    for arguments in (["--masters=0"], ["--cluster-id=A/B"], ["--etcd-endpoints=nonsense"], ["--etcd-port=1", "--etcd-endpoints=a:1"]):
        refused = run(*arguments)
        assert refused.returncode == 2 and refused.stderr, (arguments, refused)
