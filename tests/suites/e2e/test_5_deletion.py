"""What is left when clusters and the operator are removed, in either order: with Retain the index, with Delete nothing, unless
another master uses it; and nothing that waits to be let go."""

import time

import pytest

from actors import StoreActor
from checker import summary
from images import MOONKEEPER
from manifests import masters_by_hand, text
from masterclusters import Resource, etcd_of, mastercluster
from installed_operator import NAMESPACE
from waiting import wait_until

DEFINITION = "masterclusters.moonkeeper.dev"
# Bounds a hang. A master that is told to end does so within its grace period of 30 s.
GONE_SECONDS = 90
# Its interval, and time to read what it has found.
GARBAGE_COLLECTOR_SECONDS = 35


def put(demo, name):
    """What a real client writes; it is looked for at the end of each test."""
    actor = StoreActor(name, demo.scene.seed, demo.scene.history, [], demo.scene.clients[0])
    # Masters that were made anew are found by the clients of those before, which takes them a moment; and a master that
    # begins with their index has no memory for new objects until one of them has told its own again.
    demo.scene.settle()
    probe = [f"{name}/probe"], [b"probe"]
    wait_until(lambda: actor.client.put_registered(*probe) == [0], "the client to rejoin", GONE_SECONDS)
    before = demo.scene.history.acknowledged()
    actor.put(200)
    assert demo.scene.history.acknowledged() - before == 200


def sweep(demo, row):
    """Everything that was acknowledged in this scenario is there."""
    violations = demo.scene.sweep()
    row.acknowledged, row.lost = demo.scene.history.acknowledged(), len(violations)
    assert not violations, summary(violations)


def create(demo, **spec):
    """Waits until it serves, with standbys if there are any."""
    demo.space.apply(mastercluster(etcd=etcd_of(demo.space), **spec))
    demo.resource.wait_until_ready()
    demo.masters.count = spec.get("replicas", 3)
    demo.masters.wait_until_redundant()


def delete(demo):
    demo.space.timeline.mark("resource deleted")
    demo.space.kubectl("delete", "mastercluster", "demo", f"--timeout={GONE_SECONDS}s")
    wait_until(lambda: not demo.space.list("pods", "-l", demo.resource.selector), "the pods to go", GONE_SECONDS)


def keys(demo, cluster_id=None):
    """Everything in etcd that is of this cluster."""
    found = demo.masters.etcd.values("mooncake-store/", prefix=True)
    return [each for each in found if f"/{cluster_id or demo.resource.cluster_id}/" in each]


def terminating(demo):
    """What is being deleted and is still there: resources, the definition, the namespaces of this scenario and of the
    operator."""
    cluster = demo.space.cluster
    ours = lambda name: name == NAMESPACE or name.startswith(demo.space.name)  # noqa: E731
    found = [each for each in cluster.list("namespaces") if ours(each["metadata"]["name"])]
    if definition := cluster.get("crd", DEFINITION):
        found += [definition, *cluster.list(DEFINITION, "--all-namespaces")]
    return [each["metadata"]["name"] for each in found if "deletionTimestamp" in each["metadata"]]


@pytest.mark.scenario("5", "resource deleted with Retain, then the operator; both made anew: the index is there")
def test_retain(demo, operator, row):
    put(demo, "store-kept")
    delete(demo)
    assert any("/oplog/" in each for each in keys(demo)), "the log is gone"
    operator.uninstall_chart()
    assert terminating(demo) == [] and demo.space.list(DEFINITION) == []
    operator.install_by_chart()
    create(demo)
    sweep(demo, row)


@pytest.mark.scenario("5", "operator uninstalled first: refused while a cluster has Delete; Retain, its namespace and the definition go at once")
def test_operator_first(demo, operator, row):
    space, cluster = demo.space, demo.space.cluster
    doomed, left = Resource(space, "doomed"), f"{space.name}-left"
    space.apply(mastercluster("doomed", etcd=etcd_of(space), replicas=1, deletionPolicy="Delete"))
    cluster.kubectl("create", "namespace", left)
    elsewhere = mastercluster("left", etcd=f"http://{demo.masters.etcd.name}", replicas=1)
    cluster.kubectl("apply", "-n", left, "-f", "-", input=text(elsewhere))
    doomed.wait_until_ready()
    wait_until(lambda: cluster.get("statefulset", "left", "-n", left), "its masters", 60)
    # One with Delete would wait for an operator.
    assert f"{space.name}/doomed" in operator.refuses_to_go()
    assert operator.running() and terminating(demo) == []
    operator.uninstall_chart("--no-hooks")
    # Masters need no operator to serve.
    put(demo, "store-alone")
    sweep(demo, row)
    cluster.kubectl("delete", "namespace", left, f"--timeout={GONE_SECONDS}s")
    delete(demo)
    assert any("/oplog/" in each for each in keys(demo)), "the log is gone"
    # One with Delete that is deleted all the same waits for an operator, and is let go by hand; its keys stay.
    space.kubectl("delete", "mastercluster", "doomed", "--wait=false")
    assert terminating(demo) == ["doomed"]
    assert doomed.get()["metadata"]["finalizers"] == ["moonkeeper.dev/etcd-keys"]
    space.kubectl("patch", "mcl", "doomed", "--type=merge", "-p", '{"metadata":{"finalizers":null}}')
    wait_until(lambda: doomed.get() is None, "the resource to go", GONE_SECONDS)
    assert keys(demo, doomed.cluster_id)
    cluster.kubectl("delete", "crd", DEFINITION, f"--timeout={GONE_SECONDS}s")
    assert terminating(demo) == []
    operator.install_by_chart()


@pytest.mark.scenario("5", "deleted with Delete while a master of another origin leads: its log is left alone")
def test_stranger(demo, operator, row):
    space, masters = demo.space, demo.masters
    create(demo, deletionPolicy="Delete")
    put(demo, "store-shared")
    space.apply(*masters_by_hand(MOONKEEPER, demo.resource.cluster_id, count=1, name="stranger"))
    space.wait_for("statefulset/stranger")
    delete(demo)
    strangers = space.masters("app=stranger", demo.resource.cluster_id, masters.etcd, count=1)
    assert strangers.wait_until_serving().name == "stranger-0"
    notes = [each["note"] for each in space.list("events.events.k8s.io") if each["reason"] == "KeysLeft"]
    assert len(notes) == 1 and "stranger-0 at " in notes[0], notes
    demo.scene.masters = strangers
    sweep(demo, row)
    demo.scene.masters = masters
    space.kubectl("delete", "statefulset", "stranger")
    wait_until(lambda: not strangers.all(), "the stranger to go", GONE_SECONDS)


@pytest.mark.scenario("5", "deleted with Delete: nothing is left in etcd")
def test_delete(demo, operator):
    assert keys(demo)
    create(demo, replicas=1, deletionPolicy="Delete")
    delete(demo)
    assert keys(demo) == [] and terminating(demo) == []


@pytest.mark.scenario("5", "clusters with Delete and with Retain deleted, then the chart uninstalled and the definition deleted: nothing waits")
def test_in_order(demo, operator):
    space, cluster = demo.space, demo.space.cluster
    policies = {"doomed": "Delete", "kept": "Retain"}
    made = {name: Resource(space, name) for name in policies}
    where = {"etcd": etcd_of(space), "replicas": 1}
    space.apply(*(mastercluster(name, **where, deletionPolicy=policy) for name, policy in policies.items()))
    for each in made.values():
        each.wait_until_ready()
    space.kubectl("delete", "mastercluster", "--all", f"--timeout={GONE_SECONDS}s")
    wait_until(lambda: not space.list("pods", "-l", "moonkeeper.dev/cluster"), "the pods to go", GONE_SECONDS)
    assert keys(demo, made["doomed"].cluster_id) == []
    assert any("/oplog/" in each for each in keys(demo, made["kept"].cluster_id)), "the log is gone"
    operator.uninstall_chart()
    cluster.kubectl("delete", "crd", DEFINITION, f"--timeout={GONE_SECONDS}s")
    assert terminating(demo) == [] and cluster.get("namespace", NAMESPACE) is None
    # The scenario that follows begins with the chart's.
    operator.install_by_chart()


@pytest.mark.scenario("5", "plain manifests uninstalled by the documented commands: refused while a cluster has Delete; with Retain all goes at once")
def test_manifests(demo, operator):
    space, cluster = demo.space, demo.space.cluster
    operator.uninstall_chart()
    cluster.kubectl("delete", "crd", DEFINITION, f"--timeout={GONE_SECONDS}s")
    operator.install_by_manifests()
    # Kubernetes' garbage collector looks for new definitions each 30 s. It would never hear of the deletion of a resource
    # whose definition comes and goes before it has looked, and leave the StatefulSet.
    time.sleep(GARBAGE_COLLECTOR_SECONDS)
    create(demo, replicas=1, deletionPolicy="Delete")
    refused = operator.uninstall_manifests_as_documented(check=False)
    assert refused.returncode and f"{space.name}/demo" in refused.stderr, refused
    assert operator.running() and terminating(demo) == []
    assert "deletionTimestamp" not in demo.resource.get()["metadata"]
    demo.resource.patch({"deletionPolicy": "Retain"})
    wait_until(lambda: not demo.resource.get()["metadata"].get("finalizers"), "the finalizer to go", GONE_SECONDS)
    operator.uninstall_manifests_as_documented()
    wait_until(lambda: terminating(demo) == [], "everything to go", GONE_SECONDS)
    assert cluster.get("crd", DEFINITION) is None and cluster.get("namespace", NAMESPACE) is None
    wait_until(lambda: not space.list("pods", "-l", demo.resource.selector), "the pods to go", GONE_SECONDS)
    assert any("/oplog/" in each for each in keys(demo)), "the log is gone"
    # The scenarios that follow use the chart's.
    operator.install_by_chart()
