"""Names, addresses and folders of a local cluster: everything that more than one part of it must agree on."""

import os
import pathlib
import re
import subprocess

PODS = "10.244.0.0/16"
SERVICES = "10.96.0.0/16"
DNS_ADDRESS = "10.96.0.10"
API_PORT = 6443
# Bounds a command that hangs; all that are run through `run` take a second or two.
COMMAND_SECONDS = 120


class ClusterError(Exception):
    """The cluster cannot be made, or does not come up; the text says why."""


class Layout:
    """One cluster on this machine, by name; several can be there at once.

    All of it is in `folder` (logs in nN/log), in the network namespaces NAME-nN, and in the control group
    moonkeeper-NAME.
    """

    def __init__(self, name, folder):
        if not re.fullmatch(r"[a-z][a-z0-9]{0,7}", name):
            raise ClusterError(f"{name}: a cluster's name is one to eight letters and digits")
        self.name, self.folder = name, pathlib.Path(folder).absolute()
        # The kernel takes 107 characters for the path of a socket; containerd's is the longest of ours.
        if len(str(self.socket(99))) > 107:
            raise ClusterError(f"{self.folder}: the path is too long for sockets in it; set CLUSTER_DIR to a shorter one")
        self.group = f"moonkeeper-{name}"
        self.pki = self.folder / "pki"
        self.kubeconfig = self.folder / "kubeconfig" / "super-admin.conf"
        self.resolv_conf = self.folder / "resolv.conf"

    def nodes(self):
        """The numbers of the nodes that were made."""
        found = (re.fullmatch(r"n(\d+)", each.name) for each in self.folder.glob("n*"))
        return sorted(int(each[1]) for each in found if each)

    def home(self, number):
        return self.folder / f"n{number}"

    def socket(self, number):
        """containerd's."""
        return self.home(number) / "containerd.sock"

    def namespace(self, number):
        return f"{self.name}-n{number}"

    @staticmethod
    def address(number):
        return f"10.99.0.{number}"

    @staticmethod
    def pods(number):
        """The pods of one node."""
        return f"10.244.{number}.0/24"

    def inside(self, number, *command):
        """The command, run in a node's network. Not with `ip netns exec`, which hides the control groups."""
        return ["nsenter", f"--net=/run/netns/{self.namespace(number)}", *map(str, command)]

    def wrap(self, command):
        """The command, run in n1's network, where names of Services resolve as they do in pods."""
        bind = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        return self.inside(1, "unshare", "--mount", "sh", "-c", bind, self.resolv_conf, *command)

    def kubectl(self, *arguments, **options):
        return run(self.inside(1, program("kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments), **options)


def program(name):
    """The path of a program that scripts/install-kubernetes made."""
    return os.path.join(os.environ["CLUSTER_BIN"], name)


def run(command, check=True, **options):
    """Runs a command to its end and returns it with its output; what it says on failure is in the error."""
    done = subprocess.run(
        [str(each) for each in command], capture_output=True, text=True, timeout=COMMAND_SECONDS, **options
    )
    if check and done.returncode:
        raise ClusterError(f"{' '.join(map(str, command))}: {(done.stderr or done.stdout).strip()}")
    return done
