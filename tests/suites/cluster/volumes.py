#!/usr/bin/env python3
"""Volumes of a local cluster: a folder of this machine for each claim of the StorageClass `local`, which is the default one.
A volume follows its pod to every node, as one on the network does. It is removed with its claim.

usage: volumes.py KUBECTL KUBECONFIG FOLDER

Runs for ever as a daemon of n1; ends when the API server does, and is started again then."""

import json
import pathlib
import shutil
import subprocess
import sys
import threading

CLASS = "local"
PROVISIONER = "moonkeeper.dev/local"

STORAGE_CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": CLASS, "annotations": {"storageclass.kubernetes.io/is-default-class": "true"}},
    "provisioner": PROVISIONER,
    "reclaimPolicy": "Delete",
    "volumeBindingMode": "Immediate",
}


def volume_of(claim, folder):
    """The volume for a claim, bound to it."""
    metadata, spec = claim["metadata"], claim["spec"]
    reference = {"kind": "PersistentVolumeClaim", "apiVersion": "v1"}
    reference |= {name: metadata[name] for name in ("namespace", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"local-{metadata['uid']}"},
        "spec": {
            "accessModes": spec["accessModes"],
            "capacity": {"storage": spec["resources"]["requests"]["storage"]},
            "storageClassName": CLASS,
            # This program removes it: Kubernetes knows no way to.
            "persistentVolumeReclaimPolicy": "Retain",
            "claimRef": reference,
            "hostPath": {"path": str(folder / metadata["uid"]), "type": "Directory"},
        },
    }


class Volumes:
    def __init__(self, kubectl, kubeconfig, folder):
        self._kubectl, self._folder = [kubectl, f"--kubeconfig={kubeconfig}"], pathlib.Path(folder)

    def run(self, *words, **options):
        command = [*self._kubectl, *words]
        return subprocess.run(command, text=True, timeout=60, check=True, stdout=subprocess.PIPE, **options).stdout

    def watch(self, kind):
        """Every object of a kind, and again whenever it changes; ends when the API server goes."""
        command = [*self._kubectl, "get", kind, "--all-namespaces", "--watch", "-o", "json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            decoder, text = json.JSONDecoder(), ""
            for line in process.stdout:
                text += line
                # An object ends with a brace in the first column.
                if line.rstrip() == "}":
                    yield decoder.decode(text)
                    text = ""

    def provide(self):
        """Makes a volume for every claim that waits for one of this class."""
        for claim in self.watch("persistentvolumeclaims"):
            metadata = claim["metadata"]
            pending = claim.get("status", {}).get("phase") == "Pending" and "deletionTimestamp" not in metadata
            if not pending or claim["spec"].get("storageClassName") != CLASS:
                continue
            # A claim is seen as Pending more than once.
            if self.run("get", "persistentvolume", f"local-{metadata['uid']}", "--ignore-not-found"):
                continue
            folder = self._folder / metadata["uid"]
            folder.mkdir(parents=True, exist_ok=True)
            # The owner of files in there is the user of a container; kubelets give no group to folders of the machine.
            folder.chmod(0o777)
            self.run("create", "-f", "-", input=json.dumps(volume_of(claim, self._folder)))

    def reclaim(self):
        """Removes every volume whose claim is gone."""
        for volume in self.watch("persistentvolumes"):
            name = volume["metadata"]["name"]
            if volume.get("status", {}).get("phase") == "Released" and "deletionTimestamp" not in volume["metadata"]:
                shutil.rmtree(self._folder / name.removeprefix("local-"), ignore_errors=True)
                self.run("delete", "persistentvolume", name, "--ignore-not-found", "--wait=false")


def main(kubectl, kubeconfig, folder):
    volumes = Volumes(kubectl, kubeconfig, folder)
    # Either one ends the program, and with it the other.
    ended = threading.Event()

    def work(what):
        try:
            what()
        finally:
            ended.set()

    for what in (volumes.provide, volumes.reclaim):
        threading.Thread(target=work, args=[what], daemon=True).start()
    ended.wait()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
