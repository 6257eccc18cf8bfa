"""Everything on a machine that has no IPv4: etcd, the API server, the operator, masters and clients."""

import os
import socket
import subprocess

import pytest

from apiserver import ApiServer
from hosts import ipv6_only
from messages import TENANT
from operator_process import Operator
from rpc import Connection
from namespace_by_hand import Space
from stores import Etcd
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)


def test_a_cluster_without_ipv4(tmp_path):
    with ipv6_only() as host:
        with host.inside(), pytest.raises(OSError), socket.create_connection(("127.0.0.1", 1), timeout=5):
            pass
        with ApiServer(tmp_path / "apiserver", host=host) as server:
            command = [os.environ["MOONKEEPER_BIN"], "crd"]
            crd = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            server.kubectl("apply", "--server-side", "-f", "-", input=crd)
            server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
            etcd = Etcd(tmp_path, host=host)
            space = Space(server, etcd, tmp_path)
            operator = Operator(tmp_path / "operator.log", server.kubeconfig, space.name, host=host)
            try:
                lives(space, operator)
            finally:
                space.end()
                operator.kill()
                etcd.end()


def lives(space, operator):
    """A birth, a call by a client, a switchover through the admin port, a failover through the peer port."""
    space.settle()
    old = space.wait_labelled()
    assert operator.healthy() and operator.metrics()
    assert space.status()["leader"]["address"] == f"[::1]:{space.masters[old].rpc}"
    assert space.masters[old].status()["role"] == "primary"
    wait_until(lambda: exists(space, old) is False, "the first primary to answer")
    space.patch({"switchover": {"requestId": "one"}})
    done = lambda status: status.get("lastSwitchover", {}).get("result") == "Succeeded"  # noqa: E731
    space.wait_status(done, "the switchover")
    new = space.wait_labelled()
    assert new != old
    wait_until(lambda: exists(space, new) is False, "the second primary to answer")
    space.wait_phase("Serving")
    space.masters[new].kill()
    space.wait(lambda: space.primary() not in (None, new), "another primary")
    last = space.wait_labelled()
    assert last != new
    wait_until(lambda: exists(space, last) is False, "the third primary to answer")


def exists(space, member):
    """Whether a key exists, asked over the wire at a master; None if it does not answer."""
    master = space.masters[member]
    try:
        with master.host.inside():
            connection = Connection((master.host.address, master.rpc), timeout=5)
        try:
            return connection.call("ExistKey", "nothing", TENANT).value
        finally:
            connection.close()
    except OSError:
        # No port, or one that turns clients away: for a second after a hand-over.
        return None
