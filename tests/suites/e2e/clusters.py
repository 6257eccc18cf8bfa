"""A Kubernetes to test on, and what can be done to its machines: the local one, kind, or one that somebody gave us."""

import json
import os
import pathlib
import shutil
import signal
import subprocess

import daemons
import local
import network
import nodes
from hosts import Host
from layout import API_PORT, DNS_ADDRESS, Layout

# Bounds a hang; creating a kind cluster pulls an image.
COMMAND_SECONDS = 600
NODES = 3
# The name of a master's container, whatever else is in its pod.
MASTER = "master"
# The most ports that one rule of iptables takes.
MULTIPORT = 15


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


class LocalCluster(Cluster):
    """Of tests/suites/cluster: nodes are network namespaces on this machine."""

    stable_node = "n1"

    def __init__(self, folder, name):
        self.layout = Layout(name, folder)
        path = f"/run/netns/{self.layout.namespace(1)}"
        host = NodeHost(self.layout.address(1), path, self.layout.resolv_conf)
        super().__init__(self.layout.folder, self.layout.kubeconfig, host)

    @staticmethod
    def missing():
        return local.missing()

    def up(self):
        local.down(self.layout)
        local.up(self.layout, NODES)

    def is_up(self):
        return self.kubeconfig.exists()

    def down(self):
        local.down(self.layout)

    def load(self, archive):
        local.load(self.layout, [archive])

    def find_process(self, node, container):
        process = self.container_process(node, container)
        return lambda which: os.kill(process, which)

    def read_container_file(self, node, container, path):
        return pathlib.Path(f"/proc/{self.container_process(node, container)}/root{path}").read_text()

    def container_process(self, node, container):
        process = nodes.container_process(self.layout, _number(node), container)
        assert process, f"container {container} does not run on {node}"
        return process

    def in_node(self, node, *command):
        return _output(*map(str, self.layout.inside(_number(node), *command)))

    def cut(self, node):
        network.cut(self.layout, _number(node))

    def heal(self, node):
        network.heal(self.layout, _number(node))

    def stop_api(self):
        daemons.hold(self.layout, 1, "kube-apiserver")

    def start_api(self):
        daemons.release(self.layout, 1, "kube-apiserver")

    def keep_logs(self, folder):
        for number in self.layout.nodes():
            log = self.layout.home(number) / "log"
            if log.is_dir():
                shutil.copytree(log, pathlib.Path(folder) / f"n{number}", dirs_exist_ok=True)


def _number(node):
    return int(node.removeprefix("n"))


class KindCluster(Cluster):
    """Of kind: nodes are Docker containers."""

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
        if subprocess.run(["docker", "info"], capture_output=True).returncode:
            return "Docker does not run (`docker info` fails)"
        return "entering a node's network needs root" if os.geteuid() else ""

    def is_up(self):
        return self.name in _output("kind", "get", "clusters").split()

    def up(self):
        self.down()
        self.folder.mkdir(parents=True)
        roles = ["control-plane", *["worker"] * (NODES - 1)]
        config = {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [{"role": each} for each in roles]}
        words = ["--name", self.name, "--kubeconfig", str(self.kubeconfig), "--config", "-", "--wait", "120s"]
        _output("kind", "create", "cluster", *words, input=json.dumps(config))
        self.attach()
        self.kubectl("taint", "nodes", self.stable_node, "node-role.kubernetes.io/control-plane-")

    def attach(self):
        """Finds the network of the first node, and a kubeconfig that works there."""
        self.kubeconfig.write_text(_output("kind", "get", "kubeconfig", "--name", self.name, "--internal"))
        form = "{{.State.Pid}} {{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        process, address = _output("docker", "inspect", "--format", form, self.stable_node).split()
        resolv_conf = self.folder / "resolv.conf"
        resolv_conf.write_text(f"nameserver {DNS_ADDRESS}\nsearch svc.cluster.local cluster.local\noptions ndots:5\n")
        # Names of nodes are in the node's own file; the API server is reached by address instead.
        self.kubeconfig.write_text(self.kubeconfig.read_text().replace(f"//{self.stable_node}:", f"//{address}:"))
        self.host = NodeHost(address, f"/proc/{process}/ns/net", resolv_conf)

    def down(self):
        _output("kind", "delete", "cluster", "--name", self.name)
        shutil.rmtree(self.folder, ignore_errors=True)

    def load(self, archive):
        _output("kind", "load", "image-archive", str(archive), "--name", self.name)

    def find_process(self, node, container):
        process = self.container_process(node, container)
        return lambda which: self.in_node(node, "kill", f"-{int(which)}", process)

    def read_container_file(self, node, container, path):
        return self.in_node(node, "cat", f"/proc/{self.container_process(node, container)}/root{path}")

    def container_process(self, node, container):
        form = ["--output", "go-template", "--template", "{{.info.pid}}"]
        return self.in_node(node, "crictl", "inspect", *form, container).strip()

    @staticmethod
    def in_node(node, *command):
        return _output("docker", "exec", node, *command)

    def cut(self, node):
        self._filter(node, "--insert")

    def heal(self, node):
        self._filter(node, "--delete")

    @staticmethod
    def _filter(node, verb):
        # At both ends of the node's network stack, so that what it forwards for its pods vanishes as well.
        _output("docker", "exec", node, "iptables", "-t", "raw", verb, "PREROUTING", "-i", "eth0", "-j", "DROP")
        _output("docker", "exec", node, "iptables", "-t", "mangle", verb, "POSTROUTING", "-o", "eth0", "-j", "DROP")

    def stop_api(self):
        _output("docker", "exec", self.stable_node, "pkill", "-STOP", "kube-apiserver")

    def start_api(self):
        _output("docker", "exec", self.stable_node, "pkill", "-CONT", "kube-apiserver")

    def keep_logs(self, folder):
        _output("kind", "export", "logs", str(folder), "--name", self.name)


class GivenCluster(Cluster):
    """Of somebody else, by MOONKEEPER_E2E_KUBECONFIG. Pods' addresses must be reachable from here, the images of
    MOONKEEPER_E2E_IMAGES must be there already, and its machines are left alone."""

    has_machines = False
    stable_node = None

    def __init__(self, folder, kubeconfig):
        address = os.environ.get("MOONKEEPER_E2E_ADDRESS", "127.0.0.1")
        super().__init__(folder, kubeconfig, Host(address))

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


def choose(folder, name):
    """The cluster that works here: the one that was given, else kind, else the local one."""
    if given := os.environ.get("MOONKEEPER_E2E_KUBECONFIG"):
        return GivenCluster(folder, given)
    wanted = os.environ.get("MOONKEEPER_E2E_CLUSTER", "")
    reasons = {}
    for kind, word in [(KindCluster, "kind"), (LocalCluster, "local")]:
        if wanted in ("", word):
            reasons[word] = kind.missing()
            if not reasons[word]:
                return kind(folder, name)
    why = "; ".join(f"{word}: {reason}" for word, reason in reasons.items())
    raise RuntimeError(f"no cluster can be had here: {why or 'MOONKEEPER_E2E_CLUSTER is kind or local'}")


def _output(*command, input=None):
    done = subprocess.run(command, input=input, capture_output=True, text=True, timeout=COMMAND_SECONDS)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip()}"
    return done.stdout


KILL, STOP, CONTINUE = signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT
