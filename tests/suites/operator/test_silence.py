"""An API server that vanishes without a word, and an operator that loses its Lease before it has seen anything."""

import json

import pytest

from proxy import Proxy
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def proxy(server):
    proxy = Proxy(server.port)
    yield proxy
    proxy.end()


def test_silent_connections_to_the_api_server_are_given_up(server, space, start_operator, proxy, tmp_path):
    operator = start_operator(kubeconfig=proxy.kubeconfig(server.kubeconfig, tmp_path / "proxied.kubeconfig"))
    space.settle()
    old = space.wait_labelled()
    assert proxy.silence() > 0
    space.masters[old].kill()
    space.wait(lambda: space.primary() not in (None, old), "another primary")
    space.wait_labelled()
    # Watches are silent as well: what is changed is seen through new ones.
    space.patch({"replicas": 4})
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 4, "the change to be seen")
    assert operator.healthy() and operator.metrics()["moonkeeper_operator_oldest_pass_seconds"] < 60


def test_one_that_loses_the_lease_before_it_has_seen_anything_is_ready_to_wait(server, space, start_operator):
    # It may hold a Lease and see nothing else, so its caches are never filled.
    space.kubectl("create", "serviceaccount", "blind")
    space.kubectl("create", "role", "blind", "--verb=get,create,update", "--resource=leases.coordination.k8s.io")
    space.kubectl("create", "rolebinding", "blind", "--role=blind", f"--serviceaccount={space.name}:blind")
    operator = start_operator(kubeconfig=server.account_kubeconfig(space.name, "blind"))
    wait_until(operator.leads, "the lease")
    wait_until(lambda: not operator.ready(), "caches to be waited for")
    taken = {"spec": {"holderIdentity": "another", "leaseDurationSeconds": 3600}}
    space.kubectl("patch", "lease", "moonkeeper-operator", "--type=merge", "-p", json.dumps(taken))
    wait_until(lambda: not operator.leads(), "the lease to be lost", 30)
    wait_until(operator.ready, "one that waits to be ready", 30)
