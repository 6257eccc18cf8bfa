"""One node of a local cluster: containerd, kubelet, kube-proxy, each with its own settings and folders."""

import json

import daemons
from layout import DNS_ADDRESS, PODS, program, run

SANDBOX_IMAGE = "localhost/pause:1"


def prepare(layout, number):
    """Folders and settings."""
    home = layout.home(number)
    for each in ("cni", "pods", "pki", "plugins"):
        (home / each).mkdir(parents=True)
    (home / "resolv.conf").touch()
    (home / "containerd.toml").write_text(_containerd(layout, number))
    (home / "cni" / "10-pods.conflist").write_text(json.dumps(_cni(layout, number)))
    (home / "kubelet.yaml").write_text(json.dumps(_kubelet(layout, number)))
    (home / "kube-proxy.yaml").write_text(json.dumps(_kube_proxy(layout, number)))


def start_runtime(layout, number):
    daemons.start(layout, number, "containerd", "containerd", "--config", layout.home(number) / "containerd.toml")


def start_kubelet(layout, number):
    home = layout.home(number)
    daemons.start(
        *(layout, number, "kubelet", program("kubelet"), f"--config={home / 'kubelet.yaml'}"),
        *(f"--kubeconfig={home / 'kubelet.conf'}", f"--hostname-override=n{number}"),
        *(f"--node-ip={layout.address(number)}", f"--root-dir={home / 'kubelet'}", f"--cert-dir={home / 'pki'}"),
        # With the default of 1 the log of a container that ended is lost, if the kubelet clears up between making the
        # container after it and starting that one: it counts both.
        "--maximum-dead-containers-per-container=2",
    )
    daemons.start(layout, number, "kube-proxy", program("kube-proxy"), f"--config={home / 'kube-proxy.yaml'}")


def runtime_answers(layout, number):
    return _ctr(layout, number, "version", check=False).returncode == 0


def load(layout, number, archive):
    """Puts an image on the node. Pods that use it must not pull: `imagePullPolicy` IfNotPresent or Never."""
    _ctr(layout, number, "images", "import", archive)


def container_process(layout, number, container):
    """The process id, on this machine, of a container's first process; None when it does not run."""
    listed = _ctr(layout, number, "task", "list").stdout.splitlines()[1:]
    return next((int(line.split()[1]) for line in listed if line.split()[0] == container), None)


def _ctr(layout, number, *words, **options):
    return run(["ctr", "--address", layout.socket(number), "--namespace", "k8s.io", *words], **options)


def _containerd(layout, number):
    home = layout.home(number)
    return f"""version = 2
root = "{home}/containerd"
state = "{home}/containerd-state"
[grpc]
address = "{layout.socket(number)}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{SANDBOX_IMAGE}"
netns_mounts_under_state_dir = true
# Root does not have the right to lower its score everywhere, and then no container starts.
restrict_oom_score_adj = true
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
Root = "{home}/runc"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{home}/cni"
"""


def _cni(layout, number):
    addresses = {
        "type": "host-local",
        "ranges": [[{"subnet": layout.pods(number)}]],
        "dataDir": str(layout.home(number) / "addresses"),
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    # A pod may reach itself through a Service: hence the hairpin.
    bridge = {"type": "bridge", "bridge": "pods", "isGateway": True, "hairpinMode": True, "ipam": addresses}
    return {"cniVersion": "0.4.0", "name": "pods", "plugins": [bridge]}


def _kubelet(layout, number):
    home = layout.home(number)
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(layout.pki / "ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "address": layout.address(number),
        "healthzBindAddress": "127.0.0.1",
        "containerRuntimeEndpoint": f"unix://{layout.socket(number)}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{layout.group}/n{number}",
        "failCgroupV1": False,
        "failSwapOn": False,
        "clusterDNS": [DNS_ADDRESS],
        "clusterDomain": "cluster.local",
        "resolvConf": str(home / "resolv.conf"),
        "podLogsDir": str(home / "pods"),
        "volumePluginDir": str(home / "plugins"),
        "nodeStatusUpdateFrequency": "4s",
        # The disk is the machine's: that it is nearly full is no reason to throw out test pods.
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
        # Images cannot be pulled again.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
    }


def _kube_proxy(layout, number):
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "mode": "iptables",
        "clientConnection": {"kubeconfig": str(layout.kubeconfig)},
        "clusterCIDR": PODS,
        "hostnameOverride": f"n{number}",
        "bindAddress": layout.address(number),
        # These are the machine's, and not ours to change.
        "conntrack": {"maxPerCore": 0, "min": 0},
        # Of each change at once: the time until a Service follows its pods is measured.
        "iptables": {"minSyncPeriod": "100ms"},
    }
