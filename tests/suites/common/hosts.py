"""Where processes run: on the loopback, or in network namespaces that the test makes and takes away again.

The namespaces stand for machines. In the middle is a hub with two bridges, one for each network: etcd is reached
through the first, masters and clients through the second. So a master can be cut off from etcd while its clients still
reach it, which is the cut that a lease alone does not survive. All addresses exist inside the namespaces only.
"""

import contextlib
import ctypes
import os
import subprocess
import uuid

CLONE_NEWNET = 0x40000000
PREFIX = "moonkeeper-"
_libc = ctypes.CDLL(None, use_errno=True)


class Host:
    """A machine: an address, and how to start and reach things there."""

    def __init__(self, address="127.0.0.1", namespace=None):
        self.address, self.namespace = address, namespace

    def at(self, port):
        """Address and port as one text, IPv6 addresses in brackets."""
        return f"[{self.address}]:{port}" if ":" in self.address else f"{self.address}:{port}"

    @property
    def network(self):
        """The file that stands for its network; None for this machine's own."""
        return f"/run/netns/{self.namespace}" if self.namespace else None

    def wrap(self, command):
        """The command, run on this host. `ip` replaces itself with it, so that signals reach it."""
        return ["ip", "netns", "exec", self.namespace, *command] if self.namespace else command

    @contextlib.contextmanager
    def inside(self):
        """Sockets that the calling thread opens meanwhile belong to this host."""
        if not self.network:
            yield
            return
        with open("/proc/thread-self/ns/net") as home, open(self.network) as there:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)


def _enter(namespace):
    if _libc.setns(namespace.fileno(), CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def _ip(*words):
    done = subprocess.run(["ip", *words], capture_output=True, text=True)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


def _remove_orphans():
    """A namespace outlives a test run that was killed; its name says whose it was."""
    for name in os.listdir("/run/netns") if os.path.isdir("/run/netns") else []:
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{name[len(PREFIX) :].split('-')[0]}"):
            _ip("netns", "delete", name)


@contextlib.contextmanager
def ipv6_only():
    """A machine without any IPv4 address, not even that of the loopback. Needs root."""
    _remove_orphans()
    name = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:4]}-v6"
    _ip("netns", "add", name)
    try:
        _ip("-n", name, "link", "set", "lo", "up")
        _ip("-n", name, "address", "delete", "127.0.0.1/8", "dev", "lo")
        yield Host("::1", name)
    finally:
        _ip("netns", "delete", name)


class Network:
    """A hub and `count` machines for masters. Needs root."""

    ETCD, CLIENTS = "10.77.1", "10.77.2"

    def __init__(self, count):
        _remove_orphans()
        self._tag = f"{PREFIX}{os.getpid()}-{uuid.uuid4().hex[:4]}"
        self._names = []
        self.hub = self._namespace("hub", self.CLIENTS + ".1")
        # etcd lives on the hub under another address than the clients.
        self.etcd_host = Host(self.ETCD + ".1", self.hub.namespace)
        for bridge, network in [("etcd", self.ETCD), ("clients", self.CLIENTS)]:
            _ip("-n", self.hub.namespace, "link", "add", bridge, "type", "bridge")
            _ip("-n", self.hub.namespace, "address", "add", f"{network}.1/24", "dev", bridge)
            _ip("-n", self.hub.namespace, "link", "set", bridge, "up")
        self.machines = [self._machine(number) for number in range(count)]

    def _namespace(self, name, address):
        full = f"{self._tag}-{name}"
        _ip("netns", "add", full)
        self._names.append(full)
        _ip("-n", full, "link", "set", "lo", "up")
        return Host(address, full)

    def _machine(self, number):
        machine = self._namespace(f"m{number}", f"{self.CLIENTS}.{10 + number}")
        for bridge, network in [("etcd", self.ETCD), ("clients", self.CLIENTS)]:
            port = f"{bridge}{number}"
            _ip(
                *("-n", machine.namespace, "link", "add", bridge, "type", "veth"),
                *("peer", "name", port, "netns", self.hub.namespace),
            )
            _ip("-n", machine.namespace, "address", "add", f"{network}.{10 + number}/24", "dev", bridge)
            _ip("-n", machine.namespace, "link", "set", bridge, "up")
            _ip("-n", self.hub.namespace, "link", "set", port, "master", bridge)
            _ip("-n", self.hub.namespace, "link", "set", port, "up")
        return machine

    def cut(self, number):
        """Machine `number` loses etcd: packets vanish in both directions, nothing is refused."""
        _ip("-n", self.hub.namespace, "link", "set", f"etcd{number}", "down")

    def mend(self, number):
        _ip("-n", self.hub.namespace, "link", "set", f"etcd{number}", "up")

    def remove(self):
        """Takes everything away. The processes in it must have ended."""
        for name in self._names:
            _ip("netns", "delete", name)
