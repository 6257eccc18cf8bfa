"""A real API server on loopback, with an etcd behind it and nothing else: no node, no controller, no scheduler.

It validates, defaults, authorises and stores as every Kubernetes does. Nothing acts on what is stored, so a namespace
that is deleted stays "terminating", owned objects are not collected, roles that are put together from others (`view`,
`edit`, `admin`) stay empty, and no StatefulSet makes pods: a test that wants pods creates them, and their status, itself.
A real cluster is in tests/suites/cluster.

    with ApiServer(folder) as server:
        server.kubectl("apply", "-f", "-", input=manifest)
        subprocess.run([...], env=os.environ | {"KUBECONFIG": str(server.kubeconfig)})

Programs come from CLUSTER_BIN and ETCD_BIN (see scripts/env).
"""

import json
import os
import pathlib
import secrets
import subprocess
import sys
import threading

import processes
from hosts import Host
from ports import free_port
from waiting import wait_until

# Bounds of a hang. The server is up in about four seconds on an idle machine.
START_SECONDS = 120
CALL_SECONDS = 60

# kubeadm refuses loopback as the address of a control plane. This one is reserved for documentation: nobody has it, and
# nobody is told it.
NOBODYS_ADDRESS = "192.0.2.1"


def program(name):
    """The path of a Kubernetes program."""
    return str(pathlib.Path(os.environ["CLUSTER_BIN"]) / name)


class ApiServer:
    """etcd and kube-apiserver with their data in `folder`; both end with `end`, or with the test run."""

    def __init__(self, folder, flags=(), host=None):
        """`flags` are added to those of kube-apiserver; `host` is the machine that both run on."""
        self.host = host or Host()
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port, self.etcd_port, self._peer_port = free_port(), free_port(), free_port()
        self.url = f"https://{self.host.at(self.port)}"
        self.kubeconfig = self.folder / "admin.kubeconfig"
        self.etcd_endpoint = self.host.at(self.etcd_port)
        self._pki = self.folder / "pki"
        self._flags = list(flags)
        self._etcd = self._server = None
        self._starts = 0
        try:
            self._make_certificates()
            self._start_etcd()
            self.start()
        except BaseException:
            self.end()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.end()

    # --- the two programs

    def _make_certificates(self):
        settings = self.folder / "kubeadm.yaml"
        settings.write_text(
            json.dumps(
                {
                    "apiVersion": "kubeadm.k8s.io/v1beta4",
                    "kind": "InitConfiguration",
                    "localAPIEndpoint": {"advertiseAddress": NOBODYS_ADDRESS, "bindPort": self.port},
                    # Named, or kubeadm looks for a container runtime and the machine's host name.
                    "nodeRegistration": {"name": "nobody", "criSocket": "unix:///nowhere"},
                }
            )
            + "\n---\n"
            + json.dumps(
                {
                    "apiVersion": "kubeadm.k8s.io/v1beta4",
                    "kind": "ClusterConfiguration",
                    # Named, or kubeadm asks the internet which one is current.
                    "kubernetesVersion": _output([program("kubeadm"), "version", "-o", "short"]).strip(),
                    "certificatesDir": str(self._pki),
                    "apiServer": {"certSANs": ["127.0.0.1", "::1", "localhost"]},
                }
            )
        )
        for part in ("ca", "apiserver", "sa"):
            command = [program("kubeadm"), "init", "phase", "certs", part]
            # `sa` takes the folder only.
            place = ["--cert-dir", str(self._pki)] if part == "sa" else ["--config", str(settings)]
            _output([*command, *place])
        token = secrets.token_hex(16)
        tokens = self.folder / "tokens.csv"
        tokens.write_text(f'{token},admin,admin,"system:masters"\n')
        tokens.chmod(0o600)
        self._write_kubeconfig(self.kubeconfig, token)

    def _start_etcd(self):
        client, peer = f"http://{self.etcd_endpoint}", f"http://{self.host.at(self._peer_port)}"
        command = [os.environ["ETCD_BIN"], "--name", "api", "--data-dir", str(self.folder / "etcd")]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        # The data lives as long as the test: no power cut can lose it.
        command += ["--initial-cluster", f"api={peer}", "--unsafe-no-fsync", "--log-level", "warn"]
        self._etcd = processes.spawn(self.host.wrap(command), self.folder / "etcd.log")

    def start(self):
        """Starts kube-apiserver on what etcd has, and waits until it is ready."""
        pki = self._pki
        command = [
            program("kube-apiserver"),
            f"--bind-address={self.host.address}",
            f"--advertise-address={self.host.address}",
            f"--secure-port={self.port}",
            # Nobody shall be sent to a loopback address by the `kubernetes` Service.
            "--endpoint-reconciler-type=none",
            f"--etcd-servers=http://{self.etcd_endpoint}",
            f"--service-cluster-ip-range={'fd00:10:96::/112' if ':' in self.host.address else '10.96.0.0/16'}",
            "--authorization-mode=RBAC",
            # It wants an account in each namespace that only a controller makes.
            "--disable-admission-plugins=ServiceAccount",
            f"--token-auth-file={self.folder / 'tokens.csv'}",
            f"--client-ca-file={pki / 'ca.crt'}",
            f"--tls-cert-file={pki / 'apiserver.crt'}",
            f"--tls-private-key-file={pki / 'apiserver.key'}",
            "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
            f"--service-account-key-file={pki / 'sa.pub'}",
            f"--service-account-signing-key-file={pki / 'sa.key'}",
            *self._flags,
        ]
        self._server = processes.spawn(self.host.wrap(command), self.folder / f"kube-apiserver-{self._starts}.log")
        self._starts += 1
        wait_until(self._ready, f"kube-apiserver to be ready (logs in {self.folder})", START_SECONDS)

    def _ready(self):
        for process in (self._etcd, self._server):
            assert process.poll() is None, f"{process.args[0]} ended with {process.returncode} (logs in {self.folder})"
        return self.kubectl("get", "--raw", "/readyz", check=False).returncode == 0

    def stop(self):
        """Kills kube-apiserver and leaves etcd; `start` brings it back with all its objects."""
        if self._server:
            processes.kill(self._server)

    def end(self):
        """Ends both; nothing of them is left but their files."""
        self.stop()
        if self._etcd:
            processes.kill(self._etcd)

    # --- using it

    def kubectl(self, *arguments, input=None, check=True, kubeconfig=None):
        """Runs kubectl as admin, or with another kubeconfig; returns the finished process with its output as text.
        With `check`, a failure raises with what kubectl said."""
        command = [program("kubectl"), f"--kubeconfig={kubeconfig or self.kubeconfig}", *map(str, arguments)]
        # kubectl keeps what it learns of a server in the home folder otherwise.
        environment = os.environ | {"KUBECACHEDIR": str(self.folder / "kubectl-cache")}
        done = subprocess.run(
            self.host.wrap(command), input=input, env=environment, capture_output=True, text=True, timeout=CALL_SECONDS
        )
        if check and done.returncode:
            raise AssertionError(f"kubectl {' '.join(map(str, arguments))}: {done.stderr.strip()}")
        return done

    def get(self, *arguments):
        """`kubectl get ... -o json`, read; None when there is no such object."""
        done = self.kubectl("get", *arguments, "-o", "json", "--ignore-not-found")
        return json.loads(done.stdout) if done.stdout.strip() else None

    def create_namespace(self, name):
        """A namespace of that name, and the name."""
        self.kubectl("create", "namespace", name)
        return name

    def account_kubeconfig(self, namespace, name):
        """The path of a kubeconfig that acts as the service account, which must exist: for tests of roles."""
        token = self.kubectl("create", "token", name, "--namespace", namespace, "--duration=4h").stdout.strip()
        return self._write_kubeconfig(self.folder / f"{namespace}-{name}.kubeconfig", token, namespace)

    def _write_kubeconfig(self, path, token, namespace="default"):
        # JSON is YAML, and needs no library to be written.
        settings = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "test", "cluster": {"server": self.url, "certificate-authority": str(self._pki / "ca.crt")}}
            ],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test", "namespace": namespace}}],
            "current-context": "test",
        }
        path.write_text(json.dumps(settings, indent=2) + "\n")
        path.chmod(0o600)
        return path


def _output(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=CALL_SECONDS)
    assert done.returncode == 0, f"{command}: {done.stderr.strip()}"
    return done.stdout


def main():
    """usage: apiserver.py FOLDER      keeps one running until it is interrupted"""
    if len(sys.argv) != 2:
        sys.exit(main.__doc__)
    with ApiServer(sys.argv[1]) as server:
        print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
        try:
            threading.Event().wait()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
