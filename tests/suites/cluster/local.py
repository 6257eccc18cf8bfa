"""A real Kubernetes on this machine without Docker, systemd or a registry: up, down, and what tests do to it between."""

import concurrent.futures
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import time

import control
import daemons
import network
import nodes
import volumes
from layout import DNS_ADDRESS, ClusterError, Layout, program, run

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[3] / "image"))
import archive  # noqa: E402

HERE = pathlib.Path(__file__).parent
# Bounds a hang: all nodes are Ready within twenty seconds on two idle cores.
START_SECONDS = 240
NEEDED = ["containerd", "ctr", "runc", "iptables", "ip", "nsenter", "unshare", "sysctl", "gcc"]


def missing():
    """Why a cluster cannot be made here; empty if it can."""
    if os.geteuid():
        return "making network namespaces needs root"
    if lacking := [each for each in NEEDED if not shutil.which(each)]:
        return f"not found on this machine: {' '.join(lacking)}"
    if not pathlib.Path("/usr/lib/cni/bridge").exists():
        return "/usr/lib/cni/bridge is not there (Debian's containernetworking-plugins)"
    programs = ["kube-apiserver", "kubelet", "kubeadm", "kubectl"]
    if lacking := [each for each in programs if not os.access(program(each), os.X_OK)]:
        return f"not in {os.environ['CLUSTER_BIN']}: {' '.join(lacking)} (`make setup-test` builds them)"
    return ""


def up(layout, count):
    """Starts a cluster of `count` nodes and waits until all are Ready and names resolve."""
    if why := missing():
        raise ClusterError(why)
    if layout.folder.exists():
        raise ClusterError(f"{layout.folder} is there already: `cluster down` first")
    layout.folder.mkdir(parents=True)
    numbers = range(1, count + 1)
    daemons.make_groups(layout, count)
    network.make(layout, count)
    for number in numbers:
        nodes.prepare(layout, number)
    _write_resolv_conf(layout)
    control.make_certificates(layout, count)
    control.start(layout)
    for number in numbers:
        nodes.start_runtime(layout, number)
    images = [_pause_image(layout), _image(layout, "coredns", program("coredns"))]

    def fill(number):
        _await(lambda: nodes.runtime_answers(layout, number), f"containerd of n{number}", layout)
        for each in images:
            nodes.load(layout, number, each)
        nodes.start_kubelet(layout, number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        list(pool.map(fill, numbers))
    ready = ["get", "--raw", "/readyz"]
    _await(lambda: layout.kubectl(*ready, check=False).returncode == 0, "the API server", layout)
    control.allow_exec_and_logs(layout)
    layout.kubectl("apply", "-f", HERE / "dns.yaml")
    layout.kubectl("apply", "-f", "-", input=json.dumps(volumes.STORAGE_CLASS))
    provisioner = [sys.executable, HERE / "volumes.py", program("kubectl"), layout.kubeconfig]
    daemons.start(layout, 1, "volumes", *provisioner, layout.folder / "volumes")
    for number in numbers:
        _await(lambda: _is_there(layout, f"node/n{number}"), f"node n{number}", layout)
    layout.kubectl("wait", "--for=condition=Ready", "node", "--all", "--timeout=100s")
    layout.kubectl("rollout", "status", "deployment/coredns", "-n", "kube-system", "--timeout=100s")
    # Made by a controller; pods are refused before it is there.
    _await(lambda: _is_there(layout, "serviceaccount/default"), "the default service account", layout)


def load(layout, images):
    """Puts image archives on every node."""
    numbers = layout.nodes()
    with concurrent.futures.ThreadPoolExecutor(len(numbers)) as pool:
        for each in images:
            list(pool.map(lambda number: nodes.load(layout, number, each), numbers))


def kill_container(layout, node, container):
    """SIGKILL of a container's first process, as the kernel does it when memory runs out."""
    process = nodes.container_process(layout, int(node.removeprefix("n")), container)
    if process is None:
        raise ClusterError(f"container {container} does not run on {node}")
    os.kill(process, 9)


def down(layout):
    """Ends everything and removes it; does nothing if there is nothing."""
    daemons.kill_all(layout)
    _unmount(layout)
    _remove_strays(layout)
    network.remove(layout)
    daemons.remove_groups(layout)
    if layout.folder.exists():
        shutil.rmtree(layout.folder)
    if left := leftovers(layout):
        raise ClusterError(f"still there: {', '.join(left)}")


def leftovers(layout):
    """What there is of a cluster on this machine; nothing, when it has ended."""
    namespaces = (line.split()[0] for line in run(["ip", "netns", "list"]).stdout.splitlines() if line)
    return [
        *(f"namespace {each}" for each in namespaces if each.startswith(f"{layout.name}-n")),
        *(f"mount {each}" for each in _mounts(layout)),
        *(f"control group {each}" for each in daemons.groups(layout)),
        *(str(each) for each in [layout.folder] if each.exists()),
    ]


def keep_logs(layout):
    """Copies the logs of a cluster that is about to be removed, and returns where they are."""
    kept = layout.folder.with_name(f"{layout.name}-logs")
    shutil.rmtree(kept, ignore_errors=True)
    for number in layout.nodes():
        if (layout.home(number) / "log").is_dir():
            shutil.copytree(layout.home(number) / "log", kept / f"n{number}")
    return kept


def _unmount(layout):
    """All that containers and kubelets mounted, the innermost first."""
    for each in sorted(_mounts(layout), reverse=True):
        run(["umount", "--lazy", each])


def _mounts(layout):
    mounts = (line.split()[1] for line in pathlib.Path("/proc/mounts").read_text().splitlines())
    return [each for each in mounts if each.startswith(f"{layout.folder}/")]


def _remove_strays(layout):
    """The few files that containerd and the kubelet keep in places that cannot be chosen."""
    for bundle in layout.folder.glob("n*/containerd-state/io.containerd.runtime.v2.task/k8s.io/*"):
        address = bundle / "address"
        if address.exists():
            pathlib.Path(address.read_text().removeprefix("unix://")).unlink(missing_ok=True)
        for each in pathlib.Path("/var/lib/cni/results").glob(f"*-{bundle.name}-*"):
            each.unlink(missing_ok=True)
    for each in pathlib.Path("/var/log/containers").glob("*"):
        if each.is_symlink() and os.readlink(each).startswith(f"{layout.folder}/"):
            each.unlink(missing_ok=True)
    plugins = pathlib.Path("/var/lib/kubelet/device-plugins")
    if not _listens(plugins / "kubelet.sock"):
        (plugins / "kubelet.sock").unlink(missing_ok=True)
    for each in (plugins, plugins.parent):
        if each.is_dir() and not any(each.iterdir()):
            each.rmdir()


def _listens(path):
    """Whether somebody is behind a socket: the kubelet of another cluster, in this case."""
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return False
        return True


def _await(condition, what, layout):
    end = time.monotonic() + START_SECONDS
    while not condition():
        if time.monotonic() > end:
            raise ClusterError(f"{what} did not come up in {START_SECONDS} s; see the logs in {layout.folder}/n*/log")
        time.sleep(0.2)


def _is_there(layout, what):
    return layout.kubectl("get", what, check=False).returncode == 0


def _write_resolv_conf(layout):
    search = "default.svc.cluster.local svc.cluster.local cluster.local"
    layout.resolv_conf.write_text(f"nameserver {DNS_ADDRESS}\nsearch {search}\noptions ndots:5 timeout:1\n")


def _image(layout, name, path):
    out = layout.folder / f"{name}.tar"
    archive.write(f"localhost/{name}:1", out, {f"/{name}": pathlib.Path(path).read_bytes()}, entrypoint=[f"/{name}"])
    return out


def _pause_image(layout):
    compiled = layout.folder / "pause"
    run(["gcc", "-Os", "-static", "-o", compiled, HERE / "pause.c"])
    return _image(layout, "pause", compiled)


def execute(layout, command):
    """Runs a command in n1's network with KUBECONFIG set, on this terminal; returns its exit code."""
    environment = os.environ | {"KUBECONFIG": str(layout.kubeconfig), "PATH": _path()}
    return subprocess.run(layout.wrap(command), env=environment).returncode


def _path():
    return os.pathsep.join([os.environ["CLUSTER_BIN"], os.environ.get("PATH", os.defpath)])


def open_cluster(name=None, folder=None):
    """The cluster that the environment names: CLUSTER_NAME (`mk`) and CLUSTER_DIR (a folder of that name in the cache)."""
    name = name or os.environ.get("CLUSTER_NAME", "mk")
    home = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "moonkeeper"
    cache = pathlib.Path(os.environ.get("MOONKEEPER_CACHE") or home)
    return Layout(name, folder or os.environ.get("CLUSTER_DIR") or cache / "clusters" / name)
