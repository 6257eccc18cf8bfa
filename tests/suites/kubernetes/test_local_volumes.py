"""The local cluster's volumes: each claim of its StorageClass gets a folder, which goes with the claim."""

import json
import os
import subprocess
import sys

import pytest

import processes
import volumes
from apiserver import program
from waiting import wait_until

SECONDS = 60


@pytest.fixture
def folder(server, tmp_path):
    """The provisioner at work."""
    server.kubectl("apply", "-f", "-", input=json.dumps(volumes.STORAGE_CLASS))
    command = [sys.executable, volumes.__file__, program("kubectl"), server.kubeconfig, tmp_path / "volumes"]
    process = processes.spawn(list(map(str, command)), tmp_path / "volumes.log", env=os.environ)
    yield tmp_path / "volumes"
    processes.kill(process)


def claim(server, namespace, name):
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec}
    server.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(made))
    status = ["--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Pending"}}']
    server.kubectl("patch", "pvc", name, "-n", namespace, *status)
    return server.get("pvc", name, "-n", namespace)


def test_a_claim_gets_a_folder_that_goes_with_it(server, namespace, folder):
    made = claim(server, namespace, "data-a-0")
    # The default class is filled in.
    assert made["spec"]["storageClassName"] == volumes.CLASS
    uid = made["metadata"]["uid"]
    volume = wait_until(lambda: server.get("pv", f"local-{uid}"), "a volume", SECONDS)
    assert volume["spec"]["claimRef"]["uid"] == uid and volume["spec"]["hostPath"]["path"] == str(folder / uid)
    assert (folder / uid).stat().st_mode & 0o777 == 0o777
    (folder / uid / "file").write_text("kept")
    # What Kubernetes says when the claim is gone.
    released = ["--subresource=status", "--type=merge", "-p", '{"status": {"phase": "Released"}}']
    server.kubectl("patch", "pv", f"local-{uid}", *released)
    wait_until(lambda: not (folder / uid).exists(), "the folder to go", SECONDS)

    def deleted():
        found = server.get("pv", f"local-{uid}")
        return found is None or "deletionTimestamp" in found["metadata"]

    wait_until(deleted, "the volume to be deleted", SECONDS)


def test_claims_of_other_classes_are_left_alone(server, namespace, folder):
    other = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "x"}
    made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "other"}, "spec": other}
    server.kubectl("create", "-n", namespace, "-f", "-", input=json.dumps(made))
    uid = claim(server, namespace, "data-b-0")["metadata"]["uid"]
    wait_until(lambda: server.get("pv", f"local-{uid}"), "the volume of the claim after it", SECONDS)
    names = subprocess.run(["ls", folder], capture_output=True, text=True, check=True).stdout.split()
    assert names == [uid]
