"""A cluster of kind: nodes are Docker containers on this machine.

    MOONKEEPER_E2E_KIND_IMAGE   the image of its nodes (else the one that kind pulls by default)
"""

import json
import os
import pathlib
import shutil
import subprocess

import clusters
import container_processes
from clusters import output
from layout import DNS_ADDRESS

IMAGE = os.environ.get("MOONKEEPER_E2E_KIND_IMAGE", "")
# Bounds a hang: kind itself waits for the control plane only.
NODES_SECONDS = 300
# `docker info` asks a socket behind which nothing may answer.
DOCKER_SECONDS = 30
# As in the local cluster. With an election the two would end when the API server is away for a while, and a node that is cut
# off would be called NotReady after 40 s.
ALONE = {"leader-elect": "false"}
KUBEADM = {
    "kind": "ClusterConfiguration",
    "controllerManager": {"extraArgs": ALONE | {"node-monitor-grace-period": "20s"}},
    "scheduler": {"extraArgs": ALONE},
}
# From Kubernetes 1.35 on a kubelet refuses control groups of version 1 unless it is told not to.
KUBELET = {"kind": "KubeletConfiguration", "failCgroupV1": False}


def _docker(*arguments):
    """Whether a docker command succeeds."""
    try:
        return subprocess.run(["docker", *arguments], capture_output=True, timeout=DOCKER_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


class KindCluster(clusters.Cluster):
    # kindnetd does from kind 0.24 on, and so does the network of scripts/kind.
    enforces_policies = True

    def __init__(self, folder, name):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder, folder / "kubeconfig", None)
        self.name, self.stable_node = name, f"{name}-control-plane"
        if self.is_up():
            self.attach()

    @staticmethod
    def missing():
        for each in ("docker", "kind", "nsenter"):
            if not shutil.which(each):
                return f"{each} is not on this machine"
        if not _docker("info"):
            return "Docker does not run (`docker info` fails)"
        if IMAGE and not _docker("image", "inspect", IMAGE) and not _docker("pull", IMAGE):
            return f"Docker has no image {IMAGE} and cannot pull it"
        return "entering a node's network needs root" if os.geteuid() else ""

    def is_up(self):
        return self.name in output("kind", "get", "clusters").split()

    def up(self):
        self.down()
        self.folder.mkdir(parents=True)
        roles = ["control-plane", *["worker"] * (clusters.NODES - 1)]
        version_1 = not pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()
        config = {
            "kind": "Cluster",
            "apiVersion": "kind.x-k8s.io/v1alpha4",
            "nodes": [{"role": each} for each in roles],
            "kubeadmConfigPatches": [json.dumps(each) for each in ([KUBEADM, KUBELET] if version_1 else [KUBEADM])],
        }
        words = ["--name", self.name, "--kubeconfig", str(self.kubeconfig), "--config", "-"]
        try:
            output("kind", "create", "cluster", *words, *(["--image", IMAGE] if IMAGE else []), input=json.dumps(config))
        except AssertionError as error:
            if "failed to pull image" not in str(error):
                raise
            hint = "name an image that Docker has by MOONKEEPER_E2E_KIND_IMAGE, or set MOONKEEPER_E2E_CLUSTER=local"
            raise AssertionError(f"kind cannot pull its node image; {hint}\n{error}") from None
        self.attach()
        self.kubectl("wait", "--for=condition=Ready", "nodes", "--all", f"--timeout={NODES_SECONDS}s")
        self.kubectl("taint", "nodes", self.stable_node, "node-role.kubernetes.io/control-plane-")

    def attach(self):
        """Finds the network of the first node, and a kubeconfig that works there."""
        self.kubeconfig.write_text(output("kind", "get", "kubeconfig", "--name", self.name, "--internal"))
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        address = output("docker", "inspect", "--format", form, self.stable_node).strip()
        resolv_conf = self.folder / "resolv.conf"
        resolv_conf.write_text(f"nameserver {DNS_ADDRESS}\nsearch svc.cluster.local cluster.local\noptions ndots:5\n")
        # Names of nodes are in the node's own file; the API server is reached by address instead.
        self.kubeconfig.write_text(self.kubeconfig.read_text().replace(f"//{self.stable_node}:", f"//{address}:"))
        self.host = clusters.NodeHost(address, f"/proc/{_first_process(self.stable_node)}/ns/net", resolv_conf)

    def down(self):
        output("kind", "delete", "cluster", "--name", self.name, "--kubeconfig", str(self.kubeconfig))
        shutil.rmtree(self.folder, ignore_errors=True)

    def load(self, archive):
        output("kind", "load", "image-archive", str(archive), "--name", self.name)

    def find_process(self, node, container):
        inside = self.container_process(node, container)
        here = container_processes.on_this_machine(_first_process(node), int(inside))
        if here is None:
            # Docker runs elsewhere. This takes half a second.
            return lambda which: self.in_node(node, "kill", f"-{int(which)}", inside)
        return lambda which: os.kill(here, which)

    def read_container_file(self, node, container, path):
        return self.in_node(node, "cat", f"/proc/{self.container_process(node, container)}/root{path}")

    def container_process(self, node, container):
        form = ["--output", "go-template", "--template", "{{.info.pid}}"]
        return self.in_node(node, "crictl", "inspect", *form, container).strip()

    @staticmethod
    def in_node(node, *command):
        return output("docker", "exec", node, *command)

    def cut(self, node):
        self._filter(node, "--insert")

    def heal(self, node):
        self._filter(node, "--delete")

    def _filter(self, node, verb):
        # kind's network has IPv6 too, and a kubelet may reach the API server by it.
        for each in ("iptables", "ip6tables"):
            # At both ends of the node's network stack, so that what it forwards for its pods vanishes as well.
            self.in_node(node, each, "-w", "-t", "raw", verb, "PREROUTING", "-i", "eth0", "-j", "DROP")
            self.in_node(node, each, "-w", "-t", "mangle", verb, "POSTROUTING", "-o", "eth0", "-j", "DROP")

    def stop_api(self):
        self.in_node(self.stable_node, "pkill", "-STOP", "kube-apiserver")

    def start_api(self):
        self.in_node(self.stable_node, "pkill", "-CONT", "kube-apiserver")

    def keep_logs(self, folder):
        output("kind", "export", "logs", str(folder), "--name", self.name)


def _first_process(node):
    """The number on this machine of a node's first process."""
    return int(output("docker", "inspect", "--format", "{{.State.Pid}}", node))
