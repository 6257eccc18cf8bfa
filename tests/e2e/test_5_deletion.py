"""What is left of a cluster that was deleted: with Retain the index, with Delete nothing."""

import pytest

from actors import StoreActor
from checker import summary
from masterclusters import etcd_of, mastercluster
from waiting import wait_until


def delete(demo):
    demo.space.timeline.mark("resource deleted")
    demo.space.kubectl("delete", "mastercluster", "demo", "--timeout=90s")
    wait_until(lambda: not demo.space.list("pods", "-l", demo.resource.selector), "the pods to go", 90)


def keys(demo):
    """Everything in etcd that is of this cluster."""
    found = demo.masters.etcd.values("mooncake-store/", prefix=True)
    return [each for each in found if f"/{demo.resource.cluster_id}/" in each]


@pytest.mark.scenario("5", "deleted with Retain, operator installed anew, created again: the index is there")
def test_retain(demo, operator, row):
    actor = StoreActor("store-kept", demo.scene.seed, demo.scene.history, [], demo.scene.clients[0])
    actor.put(200)
    acknowledged = demo.scene.history.acknowledged()
    assert acknowledged == 200
    delete(demo)
    assert any("/oplog/" in each for each in keys(demo)), "the log is gone"
    operator.uninstall_chart()
    operator.install_by_chart()
    demo.space.apply(mastercluster(etcd=etcd_of(demo.space)))
    demo.resource.wait_until_ready()
    demo.masters.wait_until_redundant()
    violations = demo.scene.sweep()
    row.acknowledged, row.lost = acknowledged, len(violations)
    assert not violations, summary(violations)


@pytest.mark.scenario("5", "deleted with Delete: nothing is left in etcd")
def test_delete(demo, row):
    demo.resource.patch({"deletionPolicy": "Delete"})
    delete(demo)
    assert keys(demo) == []
