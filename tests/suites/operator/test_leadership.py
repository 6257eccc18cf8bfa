"""Labels, status and records follow the primaries of real masters."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from messages import MIB, segment
from rpc import Connection
from struct_pack import Ok

pytestmark = pytest.mark.timeout(300)


def test_from_nothing_to_serving(operator, keeping):
    space = keeping
    space.make()
    space.wait_phase("Starting")
    assert space.status()["observedGeneration"] == 1
    assert space.condition("Available")["reason"] == "NoPrimary"
    space.make_pods()
    space.wait_status(lambda status: status.get("replicas") == 3, "three pods")
    assert set(space.roles().values()) <= {"unknown"}
    space.start_masters()
    space.wait_phase("Serving")
    primary = space.wait_labelled()
    space.wait(lambda: space.condition("SnapshotFresh").get("status") == "True", "SnapshotFresh")
    status = space.status()
    assert status["leader"]["name"] == primary
    assert (status["caughtUpReplicas"], status["readyReplicas"], status["lag"]) == (2, 3, 0)
    assert sorted(space.roles().values()) == ["primary", "standby", "standby"]
    conditions = {each["type"]: each["status"] for each in status["conditions"]}
    assert conditions == {
        "Ready": "True",
        "Available": "True",
        "Redundant": "True",
        "Progressing": "False",
        "Stalled": "False",
        "EtcdHealthy": "True",
        "SnapshotFresh": "True",
        "UpToDate": "True",
    }
    assert {"Created", "PrimaryElected", "StandbyReady"} <= set(space.events())
    assert "lastFailover" not in status


def mount(master):
    """Mounts a segment of a client that falls silent afterwards."""
    connection = Connection(("127.0.0.1", master.rpc))
    try:
        memory = segment((1, 1), "memory", 1 << 32, 64 * MIB, "127.0.0.1:10001")
        assert isinstance(connection.call("MountSegment", memory, (1, 1)), Ok)
    finally:
        connection.close()


def test_failover_is_recorded(operator, space):
    # So long that it cannot have run out: only the noticed death of the process explains another primary.
    space.settle(failover={"leaseTTL": "60s"})
    old = space.wait_labelled()
    mount(space.masters[old])
    term = space.status()["term"]
    began = time.monotonic()
    space.masters[old].kill()
    space.wait(lambda: space.primary() not in (None, old), "another primary")
    elapsed_ms = (time.monotonic() - began) * 1000
    new = space.wait_labelled()
    told = lambda status: status.get("lastFailover", {}).get("reason") not in (None, "Unknown")  # noqa: E731
    space.wait_status(told, "the record of the failover")
    status = space.status()
    assert status["term"] > term and status["leader"]["name"] == new
    record = status["lastFailover"]
    assert (record["from"], record["to"]) == (old, new)
    assert record["reason"] == "ProcessDied"
    # Within what the test saw, a second's rounding aside. Nothing is said about removed objects: they are removed later.
    assert 0 <= record["durationMilliseconds"] <= elapsed_ms + 1000
    assert record["cleaned"] == {"clients": 1}
    # Its key goes with its lease, and then nothing is known of it any more.
    space.wait(lambda: space.roles()[old] == "unknown", "the label of the one that is gone", 60)
    assert space.status()["phase"] == "Degraded"
    space.start_master(old)
    space.wait_phase("Serving")
    assert space.roles()[old] == "standby"
    assert {"PrimaryElected", "FailedOver"} <= set(space.events())
    [note] = space.notes("FailedOver")
    assert note.endswith("; 1 clients have to report their memory again"), note
    assert operator.metrics()["moonkeeper_operator_relabel_seconds_count"] >= 1


def test_labels_that_somebody_edits_are_put_right(operator, space):
    space.settle()
    primary = space.wait_labelled()
    other = next(pod for pod in space.roles() if pod != primary)
    space.kubectl("label", "pod", other, "moonkeeper.dev/role=primary", "--overwrite")
    space.kubectl("label", "pod", primary, "moonkeeper.dev/role-")
    space.wait(lambda: space.roles()[other] == "standby" and space.roles()[primary] == "primary", "the labels")


def test_labels_stay_while_etcd_is_away(operator, space):
    space.settle()
    roles = space.roles()
    space.etcd.stop()
    space.wait_status(
        lambda status: any(
            each["type"] == "EtcdHealthy" and each["status"] == "False" for each in status["conditions"]
        ),
        "the condition",
    )
    status = space.status()
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "Unknown" and space.roles() == roles
    assert "caughtUpReplicas" not in status
    space.etcd.start()
    space.wait_phase("Serving")
    space.wait_labelled()


def test_switchover_by_spec(operator, space):
    space.settle()
    old = space.wait_labelled()
    target = next(pod for pod in sorted(space.roles(), reverse=True) if pod != old)
    began = time.monotonic()
    space.patch({"switchover": {"requestId": "one", "target": target}})
    done = lambda status: status.get("lastSwitchover", {}).get("result") not in (None, "Pending")  # noqa: E731
    space.wait_status(done, "the switchover")
    elapsed_ms = (time.monotonic() - began) * 1000
    record = space.status()["lastSwitchover"]
    assert (record["requestId"], record["result"]) == ("one", "Succeeded")
    assert (record["from"], record["to"]) == (old, target)
    assert 0 < record["durationMilliseconds"] <= elapsed_ms
    assert space.wait_labelled() == target
    # It is no failover, and it is not done again.
    space.wait_phase("Serving")
    assert "lastFailover" not in space.status()
    space.kubectl("annotate", "mcl", "demo", "touched=yes")
    space.wait(lambda: space.primary() == target, "it to stay")
    assert {"SwitchoverAsked", "SwitchoverSucceeded"} <= set(space.events())
    # A warning is for what was not asked for.
    assert "PrimaryLost" not in space.events()
    # Nobody of that name.
    space.patch({"switchover": {"requestId": "two", "target": "demo-5"}})
    failed = lambda status: status["lastSwitchover"]["requestId"] == "two" and done(status)  # noqa: E731
    space.wait_status(failed, "the refusal")
    record = space.status()["lastSwitchover"]
    assert record["result"] == "Failed" and "demo-5" in record["message"]
    assert space.primary() == target


def test_failovers_after_a_switchover_are_recorded(operator, space):
    """Two masters: every other failover goes the way that the switchover went."""
    space.make(replicas=2)
    space.make_pods()
    space.start_masters(count=2)
    space.wait_phase("Serving")
    first = space.wait_labelled()
    second = next(pod for pod in space.roles() if pod != first)
    space.patch({"switchover": {"requestId": "one", "target": second}})
    done = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    space.wait_status(done, "the switchover")
    assert space.status()["lastSwitchover"]["term"] == space.status()["term"]
    for old, new in [(second, first), (first, second)]:
        space.wait_phase("Serving")
        space.masters[old].kill()
        recorded = lambda status, new=new: status.get("lastFailover", {}).get("to") == new  # noqa: E731
        space.wait_status(recorded, f"the record of {new}")
        assert space.status()["lastFailover"]["from"] == old
        space.start_master(old)


def test_a_switchover_that_is_reset_ends(operator, space):
    """As a GitOps tool does that finds a field which Git does not have."""
    space.settle()
    old = space.wait_labelled()
    # Masters do not have the token that is made now, so they refuse every request.
    space.kubectl("delete", "secret", "demo-admin")
    space.patch({"switchover": {"requestId": "one"}})
    space.wait(lambda: space.get("secret", "demo-admin"), "the Secret to be made again")
    space.wait_phase("SwitchingOver")
    space.patch({"switchover": None})
    space.wait(lambda: space.get("mcl", "demo")["spec"]["switchover"]["requestId"] == "", "the reset")
    ended = lambda status: status.get("lastSwitchover", {}).get("result") not in (None, "Pending")  # noqa: E731
    space.wait_status(ended, "an end")
    record = space.status()["lastSwitchover"]
    assert record["result"] == "Failed" and record["message"].startswith("withdrawn"), record
    space.wait_phase("Serving")
    assert space.wait_labelled() == old


def test_a_switchover_with_new_credentials(operator, space):
    space.settle()
    old = space.wait_labelled()
    before = space.get("secret", "demo-admin")["data"]
    space.kubectl("delete", "secret", "demo-admin")
    space.patch({"switchover": {"requestId": "one"}})
    made = space.wait(lambda: space.get("secret", "demo-admin"), "the Secret to be made again")["data"]
    assert not set(before.values()) & set(made.values())
    # Masters do not take the new ones before they have them.
    assert space.primary() == old
    space.mount_secret()
    done = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    space.wait_status(done, "the switchover")
    assert space.wait_labelled() != old


def test_phases_between_two_primaries(operator, space):
    space.settle()
    old = space.wait_labelled()
    # It cannot answer, and keeps its lease for a while.
    space.masters[old].process.send_signal(signal.SIGSTOP)
    try:
        space.patch({"switchover": {"requestId": "one"}})
        space.wait_phase("SwitchingOver")
    finally:
        space.masters[old].process.send_signal(signal.SIGCONT)
    done = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    space.wait_status(done, "the switchover")
    space.wait_phase("Serving")
    for each in space.masters.values():
        each.kill()
    space.wait_phase("NoPrimary")
    assert space.condition("Available")["status"] == "False"
    assert "primary" not in space.roles().values()


def test_one_that_is_made_again_between_two_passes_inherits_nothing(operator, space):
    """Neither the status nor what has been asked of a master: the request of the same name is another one."""
    space.settle()
    first = space.wait_labelled()
    space.patch({"switchover": {"requestId": "one"}})
    done = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    space.wait_status(done, "the switchover")
    second = space.wait_labelled()
    assert second != first
    before = space.get("mcl", "demo")["metadata"]["uid"]
    operator.process.send_signal(signal.SIGSTOP)
    try:
        space.kubectl("delete", "mcl", "demo")
        # What it owned, which nothing collects here.
        kinds = "sts,services,configmaps,secrets,serviceaccounts,poddisruptionbudgets,networkpolicies"
        space.kubectl("delete", kinds, "-l", "moonkeeper.dev/cluster=demo")
        space.make(switchover={"requestId": "one"})
    finally:
        operator.process.send_signal(signal.SIGCONT)
    assert space.get("mcl", "demo")["metadata"]["uid"] != before
    space.mount_secret()
    space.wait_status(done, "the switchover of the second one")
    assert space.status()["lastSwitchover"]["from"] == second
    assert space.wait_labelled() != second


def test_a_switchover_survives_the_operator(start_operator, space):
    operator = start_operator()
    space.settle()
    old = space.wait_labelled()
    operator.kill()
    space.patch({"switchover": {"requestId": "later"}})
    start_operator()
    done = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    space.wait_status(done, "the switchover")
    assert space.wait_labelled() != old


def test_the_plugin(operator, keeping):
    space = keeping
    space.settle()
    space.wait(lambda: space.condition("SnapshotFresh").get("status") == "True", "SnapshotFresh")
    old = space.wait_labelled()
    plugin = space.folder / "kubectl-moonkeeper"
    shutil.copy(os.environ["MOONKEEPER_BIN"], plugin)

    def kubectl(*words):
        environment = os.environ | {
            "PATH": f"{space.folder}:{os.environ['CLUSTER_BIN']}:{os.environ['PATH']}",
            "KUBECONFIG": str(space.server.kubeconfig),
        }
        command = ["kubectl", "moonkeeper", *words, "-n", space.name]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    shown = kubectl("status", "demo").stdout
    assert f"{old} leads" in shown and "nothing is wrong" in shown, shown
    assert all(pod in shown for pod in space.roles())
    done = kubectl("switchover", "demo", "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["from"], report["result"]) == (0, old, "Succeeded"), done
    assert space.wait_labelled() == report["to"]
    # Flux takes back what managers have written whose names begin with "kubectl".
    fields = json.loads(space.kubectl("get", "mcl", "demo", "-o", "json", "--show-managed-fields").stdout)["metadata"]
    owners = [each["manager"] for each in fields["managedFields"] if "f:requestId" in json.dumps(each)]
    assert "moonkeeper-plugin" in owners and not [each for each in owners if each.startswith("kubectl-m")], owners
    refused = kubectl("switchover", "demo", "--to", "demo-5")
    assert refused.returncode == 1 and "demo-5" in refused.stderr
    assert kubectl("status", "nothing").returncode == 1


def test_stale_keys_are_removed(operator, space):
    space.settle()
    base = f"mooncake-store/{space.name}-demo"
    space.etcd.put(f"{base}/members/demo-6", json.dumps({"name": "demo-6", "role": "standby"}))
    space.wait(lambda: f"{base}/members/demo-6" not in space.etcd.keys(), "the key of nobody to go")
    assert len([key for key in space.etcd.keys() if f"{base}/members/" in key]) == 3
