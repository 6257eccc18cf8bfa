"""An etcd for masters, in a process of its own, that can be stopped and started again."""

import json
import os
import subprocess

import processes
from hosts import Host
from ports import free_port
from waiting import wait_until


class Etcd:
    """One member, with its data in `folder`. With files for TLS (`ca`, `cert`, `key`) it asks its clients for a certificate of
    the same authority."""

    def __init__(self, folder, name="m", host=None, flags=(), tls=None):
        self.folder, self._name, self.host, self.tls = folder, name, host or Host(), tls
        self._login, self._flags = [], flags
        self.port, self._peer_port = free_port(), free_port()
        self.endpoint = f"{'https' if tls else 'http'}://{self.host.at(self.port)}"
        self._starts = 0
        self.start()

    def start(self):
        peer = f"http://{self.host.at(self._peer_port)}"
        command = [os.environ["ETCD_BIN"], "--name", self._name, "--data-dir", str(self.folder / "etcd")]
        command += ["--listen-client-urls", self.endpoint, "--advertise-client-urls", self.endpoint]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"{self._name}={peer}", "--unsafe-no-fsync", "--log-level", "warn"]
        command += self._flags
        if self.tls:
            command += ["--client-cert-auth", "--trusted-ca-file", str(self.tls.ca)]
            command += ["--cert-file", str(self.tls.cert), "--key-file", str(self.tls.key)]
        self._process = processes.spawn(self.host.wrap(command), self.folder / f"etcd-{self._starts}.log")
        self._starts += 1
        wait_until(lambda: self._run("endpoint", "health", check=False).returncode == 0, "etcd to be healthy")

    def stop(self):
        processes.kill(self._process)

    end = stop

    def require_login(self, password):
        """From here on etcd asks who calls, and knows root alone."""
        self._run("user", "add", f"root:{password}")
        self._run("user", "grant-role", "root", "root")
        self._run("auth", "enable")
        self.password = self.folder / "etcd-password"
        self._log_in_with(password)

    def change_password(self, password):
        """Masters find the new one in their file before etcd knows it, as a kubelet brings it to them."""
        self.password.write_text(password)
        self._run("user", "passwd", "root", "--interactive=false", input=f"{password}\n")
        self._log_in_with(password)

    def _log_in_with(self, password):
        self._login = [f"--user=root:{password}"]
        self.password.write_text(password)

    def master_flags(self):
        """How masters find it and log in."""
        login = {"etcd_user": "root", "etcd_password_file": self.password} if self._login else {}
        if self.tls:
            login |= {"etcd_cacert": self.tls.ca, "etcd_cert": self.tls.cert, "etcd_key": self.tls.key}
        return {"etcd_endpoints": self.endpoint} | login

    def keys(self, prefix="mooncake-store/"):
        """All keys that start with `prefix`."""
        return self._run("get", "--prefix", "--keys-only", prefix).stdout.split()

    def get(self, key):
        return self._run("get", "--print-value-only", key).stdout.strip()

    def put(self, key, value):
        self._run("put", key, value)

    def status(self):
        """What its member reports about itself."""
        [found] = json.loads(self._run("endpoint", "status", "-w", "json").stdout)
        return found["Status"]

    def fill_up(self, until=None):
        """Writes until its file has so many bytes, or if none are named, until nothing more is taken."""
        value = self.folder / "value"
        # Small enough that there is a moment with little space left, and still too large for a command line.
        value.write_bytes(os.urandom(64 << 10).hex().encode())
        for number in range(1000):
            if until and self.status()["dbSize"] >= until:
                return
            with value.open() as text:
                if self._run("put", f"junk/{number}", check=False, stdin=text).returncode:
                    assert until is None, f"etcd takes no more, and its file has not {until} bytes yet"
                    return
        raise AssertionError("etcd takes more than its quota")

    def reclaim(self):
        """Deletes what `fill_up` wrote, compacts, defragments and disarms, as an administrator does after NOSPACE."""
        self._run("del", "--prefix", "junk/")
        self._run("compaction", "--physical", str(self.status()["header"]["revision"]))
        self._run("defrag")
        self._run("alarm", "disarm")

    def _run(self, *words, check=True, **stdin):
        command = [os.environ["ETCDCTL_BIN"], f"--endpoints={self.endpoint}", *self._login, *words]
        if self.tls:
            command += [f"--cacert={self.tls.ca}", f"--cert={self.tls.cert}", f"--key={self.tls.key}"]
        return subprocess.run(self.host.wrap(command), capture_output=True, text=True, timeout=30, check=check, **stdin)
