"""The operator as users install it: by the chart, or from plain manifests."""

import json
import os
import pathlib
import shutil

from waiting import wait_until

TREE = pathlib.Path(__file__).resolve().parents[3]
NAMESPACE = "moonkeeper-system"
SELECTOR = "app.kubernetes.io/name=moonkeeper,app.kubernetes.io/component=operator"
LEASE = "moonkeeper-operator"
HOSTNAME = "kubernetes.io/hostname"
# Bounds a hang.
READY_SECONDS = 120


class Operator:
    """The operator of a cluster, and an etcd beside it for trying things out."""

    def __init__(self, cluster):
        self.cluster = cluster

    def install_by_chart(self):
        """As the documentation says; the etcd and the operator stay off nodes that are cut off."""
        node = self.cluster.stable_node
        placed = {"nodeSelector": {HOSTNAME: node}} if node else {}
        self.cluster.run(
            *("helm", "upgrade", "--install", "moonkeeper", TREE / "charts/moonkeeper"),
            *("--namespace", NAMESPACE, "--create-namespace", "--values", "-"),
            input=json.dumps({"etcd": {"enabled": True} | placed} | placed),
        )
        self.wait_until_ready()
        self._rollout("statefulset/moonkeeper-etcd")

    def leader(self):
        """The pod whose operator holds the Lease, once there is one that stays."""

        def found():
            lease = self.cluster.get("lease", LEASE, "-n", NAMESPACE)
            holder, _, _ = ((lease or {}).get("spec", {}).get("holderIdentity") or "").rpartition("_")
            staying = (each for each in self.running() if "deletionTimestamp" not in each["metadata"])
            return next((each for each in staying if each["metadata"]["name"] == holder), None)

        return wait_until(found, "an operator that holds the Lease", READY_SECONDS)

    def uninstall_chart(self, *flags):
        self.cluster.run("helm", "uninstall", "moonkeeper", "--namespace", NAMESPACE, "--wait", *flags)
        self._delete_namespace()

    def refuses_to_go(self):
        """What the operator says when it is to be uninstalled and a cluster needs it."""
        words = ["helm", "uninstall", "moonkeeper", "--namespace", NAMESPACE, "--wait"]
        done = self.cluster.run(*words, check=False)
        assert done.returncode, "it was uninstalled"
        return self.cluster.kubectl("logs", "-n", NAMESPACE, "job/moonkeeper-removal").stdout

    def install_by_manifests(self):
        self.cluster.kubectl("apply", "-f", TREE / "manifests/install.yaml")
        self.wait_until_ready()

    def uninstall_manifests(self):
        self.cluster.kubectl("delete", "-f", TREE / "manifests/install.yaml", "--ignore-not-found")

    def uninstall_manifests_as_documented(self, check=True):
        """Runs the commands at the head of install.yaml, as a user pastes them into a shell."""
        lines = (TREE / "manifests/install.yaml").read_text().splitlines()
        commands = [line.removeprefix("#   ") for line in lines if line.startswith("#   kubectl ")]
        assert len(commands) == 2 and commands[0].endswith("&&"), commands
        return self.cluster.run("sh", "-c", f"cd '{TREE}' && " + " ".join(commands), check=check)

    def _delete_namespace(self):
        self.cluster.kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found")

    def wait_until_ready(self):
        self._rollout("deployment/moonkeeper")

    def _rollout(self, what):
        self.cluster.kubectl("rollout", "status", what, "-n", NAMESPACE, f"--timeout={READY_SECONDS}s")

    def pods(self):
        return self.cluster.list("pods", "-n", NAMESPACE, "-l", SELECTOR)

    def running(self):
        """The pods whose container runs."""
        return [each for each in self.pods() if any(_runs(one) for one in each["status"].get("containerStatuses", []))]

    def replace(self, pods):
        """Deletes pods whose process was killed: a container that is killed again and again would have to wait longer
        and longer for its next start."""
        names = [each["metadata"]["name"] for each in pods]
        self.cluster.kubectl("delete", "pod", "-n", NAMESPACE, "--grace-period=0", "--force", "--wait=false", *names)

    def wait_until_replaced(self, pods):
        old = {each["metadata"]["uid"] for each in pods}

        def replaced():
            now = {each["metadata"]["uid"] for each in self.running()}
            return len(now - old) >= len(old)

        wait_until(replaced, "the operator to be started again", READY_SECONDS)
        self.wait_until_ready()

    def keep_logs(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        for each in self.pods():
            name = each["metadata"]["name"]
            for suffix, options in [("", []), ("-before", ["--previous"])]:
                logs = self.cluster.kubectl("logs", "-n", NAMESPACE, name, "--timestamps", *options, check=False)
                if logs.returncode == 0:
                    (folder / f"{name}{suffix}.log").write_text(logs.stdout)


def _runs(container):
    return "running" in container.get("state", {})


def install_plugin(folder):
    """A folder for PATH in which kubectl finds its plugin."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(os.environ["MOONKEEPER_BIN"], folder / "kubectl-moonkeeper")
    return folder
