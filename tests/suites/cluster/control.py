"""The control plane of a local cluster, all of it on n1: certificates, etcd, API server, controllers, scheduler."""

import json
import os

import daemons
from layout import API_PORT, PODS, SERVICES, program, run


def make_certificates(layout, count):
    """By kubeadm: authorities, certificates, and a kubeconfig for each who needs one."""
    settings = layout.folder / "kubeadm.yaml"
    cluster = {
        "apiVersion": "kubeadm.k8s.io/v1beta4",
        "kind": "ClusterConfiguration",
        # Named, or kubeadm asks the internet which one is current.
        "kubernetesVersion": run([program("kubeadm"), "version", "-o", "short"]).stdout.strip(),
        "certificatesDir": str(layout.pki),
        "controlPlaneEndpoint": f"{layout.address(1)}:{API_PORT}",
        "networking": {"serviceSubnet": SERVICES, "podSubnet": PODS},
    }

    def phase(node, *words):
        own = {
            "apiVersion": "kubeadm.k8s.io/v1beta4",
            "kind": "InitConfiguration",
            "localAPIEndpoint": {"advertiseAddress": layout.address(1), "bindPort": API_PORT},
            "nodeRegistration": {"name": node, "criSocket": f"unix://{layout.socket(1)}"},
        }
        settings.write_text(f"{json.dumps(own)}\n---\n{json.dumps(cluster)}\n")
        run(layout.inside(1, program("kubeadm"), "init", "phase", *words, "--config", settings))

    for part in ["ca", "apiserver", "apiserver-kubelet-client", "front-proxy-ca", "front-proxy-client"]:
        phase("n1", "certs", part)
    run([program("kubeadm"), "init", "phase", "certs", "sa", "--cert-dir", layout.pki])
    for part in ["super-admin", "controller-manager", "scheduler"]:
        phase("n1", "kubeconfig", part, "--kubeconfig-dir", layout.kubeconfig.parent)
    for number in range(1, count + 1):
        phase(f"n{number}", "kubeconfig", "kubelet", "--kubeconfig-dir", layout.home(number))


def start(layout):
    """Starts everything but the nodes; does not wait."""
    pki, at = layout.pki, layout.address(1)
    peer = "http://127.0.0.1:2380"
    etcd = [os.environ["ETCD_BIN"], "--name=n1", f"--data-dir={layout.home(1) / 'etcd'}", "--log-level=warn"]
    # Plain and unsynced: nobody but n1 reaches it, and its data does not outlive the processes.
    etcd += ["--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379"]
    etcd += [f"--listen-peer-urls={peer}", f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=n1={peer}"]
    daemons.start(layout, 1, "etcd", *etcd, "--unsafe-no-fsync")

    daemons.start(
        *(layout, 1, "kube-apiserver", program("kube-apiserver")),
        *(f"--advertise-address={at}", f"--secure-port={API_PORT}", f"--service-cluster-ip-range={SERVICES}"),
        *("--etcd-servers=http://127.0.0.1:2379", "--allow-privileged=true"),
        *("--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction"),
        *(f"--client-ca-file={pki}/ca.crt", f"--tls-cert-file={pki}/apiserver.crt"),
        f"--tls-private-key-file={pki}/apiserver.key",
        f"--kubelet-client-certificate={pki}/apiserver-kubelet-client.crt",
        *(f"--kubelet-client-key={pki}/apiserver-kubelet-client.key", "--kubelet-preferred-address-types=InternalIP"),
        *("--service-account-issuer=https://kubernetes.default.svc.cluster.local",),
        *(f"--service-account-key-file={pki}/sa.pub", f"--service-account-signing-key-file={pki}/sa.key"),
        *(f"--requestheader-client-ca-file={pki}/front-proxy-ca.crt",),
        *(f"--proxy-client-cert-file={pki}/front-proxy-client.crt",),
        *(f"--proxy-client-key-file={pki}/front-proxy-client.key",),
        *("--requestheader-allowed-names=front-proxy-client", "--requestheader-username-headers=X-Remote-User"),
        *("--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-"),
    )
    _start_controller(
        *(layout, "controller-manager"),
        *(f"--cluster-signing-cert-file={pki}/ca.crt", f"--cluster-signing-key-file={pki}/ca.key"),
        *(f"--root-ca-file={pki}/ca.crt", f"--service-account-private-key-file={pki}/sa.key"),
        *("--use-service-account-credentials=true", f"--service-cluster-ip-range={SERVICES}"),
        *("--allocate-node-cidrs=false", f"--cluster-cidr={PODS}"),
        f"--flex-volume-plugin-dir={layout.home(1) / 'plugins'}",
        # Less than the usual 40 s: tests wait for it.
        "--node-monitor-grace-period=20s",
    )
    _start_controller(layout, "scheduler")


def _start_controller(layout, name, *flags):
    config = layout.folder / "kubeconfig" / f"{name}.conf"
    access = [f"--{purpose}kubeconfig={config}" for purpose in ("", "authentication-", "authorization-")]
    # There is one of each: with an election they would end whenever the API server is away for a while.
    alone = ["--leader-elect=false", "--bind-address=127.0.0.1"]
    daemons.start(layout, 1, f"kube-{name}", program(f"kube-{name}"), *alone, *access, *flags)


def allow_exec_and_logs(layout):
    """The API server is nobody special to a kubelet: without this it may neither fetch logs nor run commands."""
    who = ["--clusterrole=system:kubelet-api-admin", "--user=kube-apiserver-kubelet-client"]
    layout.kubectl("create", "clusterrolebinding", "kubelet-api", *who)
