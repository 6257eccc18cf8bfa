"""Volumes of masters: snapshots outlive all pods, a claim that is destroyed is made again, claims are kept with the resource,
and a cluster without volumes gets them while its masters go on."""

import json

import pytest

from masterclusters import etcd_of, mastercluster
from test_5_deletion import GONE_SECONDS, create, delete, put, sweep
from waiting import wait_until

STORE = {"volumeClaim": {"size": "1Gi"}, "ephemeral": None}


def claims(demo):
    """The uids of the claims, by name."""
    found = demo.space.list("pvc", "-l", demo.resource.selector)
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in found}


def take_snapshot(demo):
    """Has a standby take one, and waits until every standby holds one."""
    demo.space.plugin("snapshot", "demo")
    report = demo.resource.status()["lastSnapshot"]
    assert report["result"] == "Succeeded", report

    def held(status):
        return {pod for each in status.get("snapshots", []) for pod in each["holders"]}

    standbys = {each.name for each in demo.masters.all()} - {demo.masters.primary().name}
    demo.resource.wait_for("a snapshot of each standby", lambda status: standbys <= held(status))
    assert demo.resource.conditions()["SnapshotFresh"]["status"] == "True"
    return report


def started_from(demo):
    """The last record of the snapshot that each master has started from; None for those that have read the whole log."""
    return {each.name: each.status()["snapshots"]["started_from"] for each in demo.masters.all()}


def delete_pods(demo, *names):
    before = {each.uid for each in demo.masters.all()}
    demo.space.kubectl("delete", "pod", *names, "--grace-period=0", "--force")
    gone = lambda: len({each.uid for each in demo.masters.all()} - before) == len(names)  # noqa: E731
    wait_until(gone, f"other pods than {', '.join(names)}", GONE_SECONDS)
    demo.masters.wait_until_redundant()


@pytest.mark.scenario("5", "all pods deleted at once: they start from their snapshots, the index is there")
def test_all_pods(demo, operator, row):
    put(demo, "store-before")
    take_snapshot(demo)
    put(demo, "store-after")
    before = claims(demo)
    assert len(before) == 3
    demo.space.timeline.mark("all pods deleted")
    delete_pods(demo, *(each.name for each in demo.masters.all()))
    demo.masters.wait_until_serving()
    assert claims(demo) == before
    # The standbys had taken one; the primary holds none unless it was a standby before.
    assert sum(each is not None for each in started_from(demo).values()) >= 2, started_from(demo)
    sweep(demo, row)


@pytest.mark.scenario("5", "the claim and the pod of a standby destroyed: both made anew, nothing is lost")
def test_a_claim(demo, operator, row):
    put(demo, "store-claim")
    take_snapshot(demo)
    primary = demo.masters.primary()
    victim = next(each.name for each in demo.masters.all() if each.name != primary.name)
    before = claims(demo)[f"data-{victim}"]
    demo.space.timeline.mark(f"claim of {victim} deleted")
    # It goes when its pod does.
    demo.space.kubectl("delete", "pvc", f"data-{victim}", "--wait=false")
    delete_pods(demo, victim)
    assert claims(demo)[f"data-{victim}"] != before
    assert demo.masters.primary().uid == primary.uid
    assert demo.resource.conditions()["UpToDate"]["status"] == "True"
    sweep(demo, row)


@pytest.mark.scenario("5", "resource deleted with Retain and made anew: the same claims, masters start from their snapshots")
def test_retain_claims(demo, operator, row):
    put(demo, "store-retained")
    take_snapshot(demo)
    before = claims(demo)
    delete(demo)
    assert claims(demo) == before
    create(demo)
    assert claims(demo) == before
    assert any(each is not None for each in started_from(demo).values()), started_from(demo)
    sweep(demo, row)


@pytest.mark.scenario("5", "volumes given to a cluster without: no master restarted, each gets its volume when its pod is deleted")
def test_volumes_added(demo, operator, row):
    delete(demo)
    demo.space.kubectl("delete", "pvc", "--all")
    none = {"store": {"volumeClaim": None, "ephemeral": {}}}
    demo.space.apply(mastercluster(etcd=etcd_of(demo.space), snapshots=none))
    demo.resource.wait_until_ready()
    demo.masters.wait_until_redundant()
    put(demo, "store-ephemeral")
    pods = {each.name: each.uid for each in demo.masters.all()}
    assert claims(demo) == {}
    demo.resource.patch({"snapshots": {"store": STORE}})
    named = lambda status: any(each["reason"] == "NoVolumeYet" for each in status["conditions"])  # noqa: E731
    demo.resource.wait_for("the pods without a volume", named)
    assert {each.name: each.uid for each in demo.masters.all()} == pods
    owners = [each["metadata"].get("ownerReferences") for each in demo.space.list("pods", "-l", demo.resource.selector)]
    assert all(owners), "a pod is nobody's"
    # In the order that the condition names.
    for name in sorted(pods):
        delete_pods(demo, name)
        volumes = {each["name"]: each for each in demo.space.get("pod", name)["spec"]["volumes"]}
        assert volumes["data"]["persistentVolumeClaim"]["claimName"] == f"data-{name}", json.dumps(volumes)
    demo.resource.wait_for(
        "nothing to be older", lambda status: demo.resource.conditions()["UpToDate"]["status"] == "True"
    )
    sweep(demo, row)
