"""Installed as the documentation says: an operator, the minimal example, and the real client finds its master."""

import pytest

import manifests
from installed_operator import NAMESPACE, TREE, Operator
from masterclusters import Resource
from one_client import put_and_get
from pods import RPC_PORT, Etcd

MINIMAL = TREE / "manifests/examples/minimal.yaml"


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
    # The next installation has an etcd of its own. Masters that know another log from their volumes would refuse it.
    space.kubectl("delete", "pvc", "-l", "moonkeeper.dev/cluster=demo", "--timeout=60s")
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
