"""Installed as the documentation says: an operator, the minimal example, and the real client finds its master."""

import pytest

import manifests
from clients import Client
from installed_operator import NAMESPACE, TREE, Operator
from pods import RPC_PORT, Etcd
from masterclusters import Resource
from scene import CLIENT_ENVIRONMENT
from scenario_namespace import SEGMENT_BYTES

MINIMAL = TREE / "manifests/examples/minimal.yaml"


def put_and_get(space, name, address, **environment):
    """A real client that knows only `address`; returns how many objects it wrote, and how many it did not find again."""
    client = Client(space.folder / f"client-{name}.log", CLIENT_ENVIRONMENT | environment, space.cluster.host.wrap)
    try:
        here = space.cluster.host.address
        assert client.setup(here, "P2PHANDSHAKE", SEGMENT_BYTES, SEGMENT_BYTES, "tcp", "", address) == 0
        values = {f"{name}-{number}": bytes([number]) * 20_000 for number in range(50)}
        for key, value in values.items():
            assert client.put(key, value) == 0, key
        lost = [key for key, value in values.items() if client.get(key) != value]
        client.close()
        return len(values), len(lost)
    finally:
        client.kill()


def run_minimal_example(space):
    """From `kubectl apply` to a client's data; returns how many objects were written, and how many were not found again."""
    space.kubectl("apply", "-f", MINIMAL)
    resource = Resource(space)
    resource.wait_until_ready()
    masters = space.masters(resource.selector, resource.cluster_id, Etcd(space.cluster, NAMESPACE, "moonkeeper-etcd"))
    masters.wait_until_redundant()
    resource.wait_until_settled(masters)
    found_by_etcd = f"etcd://moonkeeper-etcd.{NAMESPACE}.svc.cluster.local:2379"
    by_etcd = put_and_get(space, "etcd", found_by_etcd, MC_STORE_CLUSTER_ID=resource.cluster_id)
    leader = f"demo-leader.{space.name}.svc.cluster.local:{RPC_PORT}"
    by_service = put_and_get(space, "service", leader)
    space.kubectl("delete", "mastercluster", "demo", "--timeout=60s")
    return tuple(map(sum, zip(by_etcd, by_service)))


@pytest.mark.scenario("1", "plain manifests, the minimal example, a client through etcd and through the leader's Service")
def test_from_manifests(cluster, space, row):
    operator = Operator(cluster)
    operator.install_by_manifests()
    try:
        # The one that the example names.
        etcd = manifests.text(*manifests.etcd(cluster.stable_node, "moonkeeper-etcd"))
        cluster.kubectl("apply", "-n", NAMESPACE, "-f", "-", input=etcd)
        row.acknowledged, row.lost = run_minimal_example(space)
        assert row.lost == 0
    finally:
        operator.uninstall_manifests()


@pytest.mark.scenario("1", "the same with `helm install`")
def test_by_chart(operator, space, row):
    row.acknowledged, row.lost = run_minimal_example(space)
    assert row.lost == 0
