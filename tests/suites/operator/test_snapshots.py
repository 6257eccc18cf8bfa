"""Snapshots: those that masters hold are in the status, a request by annotation or by the plugin is carried out, and a
settled cluster is left alone."""

import json
import os
import shutil
import subprocess

import pytest

pytestmark = pytest.mark.timeout(300)

ANNOTATION = "moonkeeper.dev/snapshot-requested"


def ask(space, request_id):
    space.kubectl("annotate", "mcl", "demo", f"{ANNOTATION}={request_id}", "--overwrite")


def ended(request_id):
    def is_ended(status):
        found = status.get("lastSnapshot", {})
        return found.get("requestId") == request_id and found["result"] != "Pending"

    return is_ended


def newest(space):
    return space.status()["snapshots"][0]["sequenceId"]


def said(space):
    """The conditions whose messages have no numbers that change all the time."""
    found = [each for each in space.status()["conditions"] if each["type"] != "EtcdHealthy"]
    return [" ".join(each[field] for field in ("type", "status", "reason", "message")) for each in found]


def test_snapshots_are_in_the_status(operator, start_operator, keeping):
    space = keeping
    space.settle()
    primary = space.wait_labelled()
    # Each standby takes one as soon as it has caught up.
    standbys = {pod for pod in space.roles() if pod != primary}
    held = lambda status: {pod for each in status.get("snapshots", []) for pod in each["holders"]}  # noqa: E731
    space.wait_status(lambda status: standbys <= held(status), "a snapshot of each standby")
    space.wait(lambda: space.condition("SnapshotFresh").get("status") == "True", "SnapshotFresh")
    for each in space.status()["snapshots"]:
        assert each["id"] == f"s-{each['sequenceId']}" and each["bytes"] > 0 and each["at"], each
    # INV-9.
    space.wait(lambda: operator.is_still(), "the operator to have nothing left to write")
    before = said(space)
    operator.kill()
    again = start_operator()
    space.wait(lambda: again.passes() and again.is_still(), "passes to end")
    assert said(space) == before
    assert again.writes() == {}, again.writes()


def test_masters_without_a_directory_are_named(operator, space):
    space.settle()
    space.wait(lambda: space.condition("SnapshotFresh").get("reason") == "NoDirectory", "the condition")
    ask(space, "one")
    space.wait_status(ended("one"), "an end", seconds=120)
    report = space.status()["lastSnapshot"]
    assert report["result"] == "Failed" and "no --data_dir" in report["message"], report
    assert "SnapshotFailed" in space.events()


def test_a_snapshot_on_request(operator, keeping):
    space = keeping
    space.settle()
    primary = space.wait_labelled()
    space.wait_status(lambda status: status.get("snapshots"), "the first snapshots")
    before = newest(space)
    # Something new to save: a change of the primary is a record.
    space.patch({"switchover": {"requestId": "s"}})
    switched = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    ask(space, "one")
    space.wait_status(switched, "the switchover")
    space.wait_status(ended("one"), "the snapshot", seconds=120)
    report = space.status()["lastSnapshot"]
    assert report["result"] == "Succeeded" and report["member"] in space.roles(), report
    space.wait(lambda: newest(space) >= report["sequenceId"], "it in the list")
    assert report["sequenceId"] >= before and primary
    assert {"SnapshotAsked", "SnapshotTaken"} <= set(space.events())


def test_the_plugin(operator, keeping):
    space = keeping
    space.settle()
    plugin = space.folder / "kubectl-moonkeeper"
    shutil.copy(os.environ["MOONKEEPER_BIN"], plugin)

    def kubectl(*words):
        environment = os.environ | {
            "PATH": f"{space.folder}:{os.environ['CLUSTER_BIN']}:{os.environ['PATH']}",
            "KUBECONFIG": str(space.server.kubeconfig),
        }
        command = ["kubectl", "moonkeeper", *words, "-n", space.name]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)

    done = kubectl("snapshot", "demo", "-o", "json")
    report = json.loads(done.stdout)
    assert (done.returncode, report["result"]) == (0, "Succeeded"), done
    assert report["requestId"].startswith("kubectl-")
    fields = json.loads(space.kubectl("get", "mcl", "demo", "-o", "json", "--show-managed-fields").stdout)["metadata"]
    owners = [each["manager"] for each in fields["managedFields"] if f"f:{ANNOTATION}" in json.dumps(each)]
    assert owners == ["moonkeeper-plugin"], owners
    # The key of a member is a little later than its answer.
    space.wait_status(lambda status: status.get("snapshots"), "it in the list")
    assert "snapshots: " in kubectl("status", "demo").stdout
    space.patch({"suspend": True})
    refused = kubectl("snapshot", "demo")
    assert refused.returncode == 1 and "suspended" in refused.stderr, refused
