"""A Kubernetes to test on, and what can be done to its machines: what all kinds of clusters have, and a cluster that was made
elsewhere. `cluster_choice.py` chooses one."""

import json
import os
import pathlib
import signal
import subprocess

from hosts import Host
from layout import API_PORT

# Bounds a hang; creating a kind cluster pulls an image.
COMMAND_SECONDS = 600
NODES = 3
# The name of a master's container, whatever else is in its pod.
MASTER = "master"
# A policy may let packets vanish.
CONNECT_SECONDS = 2
# The most ports that one rule of iptables takes.
MULTIPORT = 15
KILL, STOP, CONTINUE = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT


class NodeHost(Host):
    """A node's network: what is run there reaches pods and Services, and resolves their names."""

    def __init__(self, address, path, resolv_conf):
        super().__init__(address)
        self._path, self._resolv_conf = path, resolv_conf

    @property
    def network(self):
        return self._path

    def wrap(self, command):
        bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        inside = ["nsenter", f"--net={self._path}", "unshare", "--mount", "sh", "-c", bind, str(self._resolv_conf)]
        return [*inside, *map(str, command)]


class Cluster:
    """What all of them have: kubectl, and a host inside the cluster's network for clients to run on."""

    # Whether processes in pods can be killed, nodes cut off, the API server stopped.
    has_machines = True
    # Whether the network enforces NetworkPolicy.
    enforces_policies = False

    def __init__(self, folder, kubeconfig, host):
        self.folder, self.kubeconfig, self.host = pathlib.Path(folder), pathlib.Path(kubeconfig), host
        # Folders in which commands are found before all others.
        self.path = [os.environ["CLUSTER_BIN"]]

    @property
    def environment(self):
        path = os.pathsep.join([*map(str, self.path), os.environ.get("PATH", os.defpath)])
        # Caches of kubectl and helm stay out of the home folder.
        caches = {"KUBECACHEDIR": self.folder / "kubectl-cache", "HELM_CACHE_HOME": self.folder / "helm-cache"}
        return os.environ | {"KUBECONFIG": str(self.kubeconfig), "PATH": path} | {k: str(v) for k, v in caches.items()}

    def run(self, *command, input=None, check=True, seconds=COMMAND_SECONDS):
        """Runs a command inside the cluster's network; returns it with its output as text."""
        words = self.host.wrap([str(each) for each in command])
        done = subprocess.run(
            words, input=input, env=self.environment, capture_output=True, text=True, timeout=seconds
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(map(str, command))}: {done.stderr.strip() or done.stdout.strip()}")
        return done

    def kubectl(self, *arguments, **options):
        return self.run("kubectl", *arguments, **options)

    def get(self, *arguments):
        """`kubectl get ... -o json`, read; None when there is no such object."""
        done = self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def list(self, *arguments):
        """The objects that `kubectl get` finds."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json").stdout)["items"]

    def version(self):
        """Of the API server."""
        return json.loads(self.kubectl("version", "-o", "json").stdout)["serverVersion"]["gitVersion"]

    def node_names(self):
        return sorted(each["metadata"]["name"] for each in self.list("nodes"))

    def process(self, pod):
        """The first process of a pod's main container, as a function that sends it a signal: at once, since finding
        it takes longer than what is measured."""
        return self.find_process(pod["spec"]["nodeName"], _main_container(pod))

    def read_file(self, pod, path):
        """A file as a pod's main container has it; images without a shell have nothing to read it with."""
        return self.read_container_file(pod["spec"]["nodeName"], _main_container(pod), path)

    def silence_api(self, pod):
        """Lets packets vanish, in both directions, of the connections that a pod has with the API server now. None of
        the two is told; new connections work. Returns how many they are, and a function that undoes it."""
        address, node = pod["status"]["podIP"], self.stable_node
        listed = self.in_node(node, "ss", "-Htn", "state", "established", "sport", "=", f":{API_PORT}", "dst", address)
        ports = [line.split()[-1].rpartition(":")[2] for line in listed.splitlines() if line.strip()]
        rules = []
        for start in range(0, len(ports), MULTIPORT):
            some = ",".join(ports[start : start + MULTIPORT])
            there = ["-s", address, "-p", "tcp", "-m", "multiport", "--sports", some, "-j", "DROP"]
            back = ["-d", address, "-p", "tcp", "-m", "multiport", "--dports", some, "-j", "DROP"]
            rules += [["PREROUTING", *there], ["OUTPUT", *back]]

        def change(verb):
            for each in rules:
                self.in_node(node, "iptables", "-w", "-t", "raw", verb, *each)

        change("--insert")
        return len(ports), lambda: change("--delete")


    def reached(self, pod, targets):
        """Those of the targets, as address and port, that accept a TCP connection from a pod. A shell of the node's tries it in
        the pod's network: images without one have nothing to try it with."""
        node = pod["spec"]["nodeName"]
        process = self.container_process(node, _main_container(pod))
        attempts = "".join(
            f'(timeout {CONNECT_SECONDS} bash -c "</dev/tcp/{address}/{port}" 2>/dev/null && echo {address} {port}) & '
            for address, port in targets
        )
        lines = self.in_node(node, "nsenter", "-t", str(process), "-n", "bash", "-c", f"{attempts} wait").splitlines()
        return {(address, int(port)) for address, port in map(str.split, lines)}

    def refuse(self, pod, port):
        """Lets connections of a pod to a port be refused, wherever they go; returns a function that undoes it."""
        node, process = pod["spec"]["nodeName"], self.container_process(pod["spec"]["nodeName"], _main_container(pod))
        rule = ["OUTPUT", "-p", "tcp", "--dport", str(port), "-j", "REJECT", "--reject-with", "tcp-reset"]

        def change(verb):
            self.in_node(node, "nsenter", "-t", str(process), "-n", "iptables", "-w", verb, *rule)

        change("--insert")
        return lambda: change("--delete")


def _main_container(pod):
    """The id of the container that the pod is there for: the master, or the only one."""
    names = [each["name"] for each in pod["spec"]["containers"]]
    main = MASTER if MASTER in names else names[0]
    [status] = [each for each in pod["status"]["containerStatuses"] if each["name"] == main]
    return status["containerID"].partition("://")[2]


class GivenCluster(Cluster):
    """Made elsewhere, named by MOONKEEPER_E2E_KUBECONFIG. Pods' addresses must be reachable from here, the images of
    MOONKEEPER_E2E_IMAGES must be there already, and its machines are left alone."""

    has_machines = False
    stable_node = None

    def __init__(self, folder, name):
        address = os.environ.get("MOONKEEPER_E2E_ADDRESS", "127.0.0.1")
        super().__init__(folder, os.environ["MOONKEEPER_E2E_KUBECONFIG"], Host(address))

    def up(self):
        self.kubectl("get", "nodes")

    def is_up(self):
        return True

    def down(self):
        pass

    def load(self, archive):
        pass

    def keep_logs(self, folder):
        pass


def output(*command, input=None):
    """What a command of this machine prints; fails with what it says when it fails."""
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout
