"""Volumes of masters: a StatefulSet is replaced around its pods when it has to have other ones, claims that wait or differ
are named, and a deleted cluster keeps its claims or not, as it keeps its keys."""

import json

import pytest

from test_deletion import end_masters, gone

pytestmark = pytest.mark.timeout(300)

EPHEMERAL = {"store": {"ephemeral": {}}}
CLAIM = {"store": {"volumeClaim": {"size": "8Gi"}, "ephemeral": None}}


def claims(space):
    found = space.get("pvc", "-l", "moonkeeper.dev/cluster=demo")
    return sorted(each["metadata"]["name"] for each in found["items"]) if found else []


def uids(space):
    pods = space.get("pods", "-l", "moonkeeper.dev/cluster=demo")["items"]
    return {each["metadata"]["name"]: each["metadata"]["uid"] for each in pods}


def up_to_date(space):
    found = space.condition("UpToDate")
    return found.get("status"), found.get("reason")


def test_a_volume_is_added_and_taken_away_without_a_restart(operator, space):
    space.settle(snapshots=EPHEMERAL)
    primary, term = space.wait_labelled(), space.status()["term"]
    pods = uids(space)
    assert claims(space) == [] and "volumeClaimTemplates" not in space.get("sts", "demo")["spec"]
    space.patch({"snapshots": CLAIM})
    space.let_go()
    assert space.get("sts", "demo")["spec"]["volumeClaimTemplates"][0]["metadata"]["name"] == "data"
    space.set_revision("demo", "rev-2")
    space.wait(lambda: up_to_date(space) == ("False", "NoVolumeYet"), "the pods without a volume to be named")
    message = space.condition("UpToDate")["message"]
    assert "demo-0, demo-1 and demo-2" in message and "Until demo-0 has its volume" in message, message
    # Nothing was restarted, and the primary serves.
    assert uids(space) == pods and space.wait_labelled() == primary and space.status()["term"] == term
    space.wait_phase("Serving")
    for ordinal in range(3):
        space.remove_pod(f"demo-{ordinal}")
        space.make_pod(space.get("sts", "demo"), ordinal, "rev-2")
    space.wait(lambda: up_to_date(space) == ("True", "AllCurrent"), "all pods to have their volume")
    assert claims(space) == ["data-demo-0", "data-demo-1", "data-demo-2"]
    # And back.
    space.patch({"snapshots": {"store": {"volumeClaim": None, "ephemeral": {}}}})
    space.let_go()
    assert "volumeClaimTemplates" not in space.get("sts", "demo")["spec"]
    assert len(claims(space)) == 3, "claims went that the user may want to keep"


def test_a_settled_cluster_is_not_replaced(operator, start_operator, space):
    space.settle(snapshots={"store": {"volumeClaim": {"size": "8192Mi"}}})
    space.wait(lambda: operator.is_still(), "the operator to have nothing left to write")
    before = space.get("sts", "demo")["metadata"]
    # Its size is written in another form.
    template = space.get("sts", "demo")["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["resources"]["requests"]["storage"] == "8Gi"
    operator.kill()
    again = start_operator()
    space.wait(lambda: again.passes() > 0, "a pass of the operator that was restarted")
    passes = again.passes()
    space.kubectl("annotate", "mcl", "demo", "touched=yes")
    space.wait(lambda: again.passes() > passes, "another pass")
    after = space.get("sts", "demo")["metadata"]
    assert (before["uid"], before["generation"]) == (after["uid"], after["generation"])
    assert again.writes() == {}, again.writes()


def test_another_size_is_for_claims_to_come(operator, space):
    space.settle()
    space.patch({"snapshots": {"store": {"volumeClaim": {"size": "9Gi"}}}})
    space.let_go()
    template = space.get("sts", "demo")["spec"]["volumeClaimTemplates"][0]
    assert template["spec"]["resources"]["requests"]["storage"] == "9Gi"
    space.set_revision("demo", "rev-1")
    space.wait(lambda: up_to_date(space) == ("False", "OtherClaims"), "the claims that differ to be named")
    assert "data-demo-0 (8Gi, no StorageClass)" in space.condition("UpToDate")["message"]


def test_a_claim_that_waits_is_named(operator, space):
    space.make()
    stateful_set = space.wait(lambda: space.get("sts", "demo"), "the StatefulSet")
    space.make_pod(stateful_set, 0)
    space.claim_status("data-demo-0", "Pending")
    unscheduled = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}]
    space.pod_status("demo-0", {"phase": "Pending", "conditions": unscheduled})
    named = lambda: "data-demo-0 is Pending and has no StorageClass" in space.condition("Progressing").get("message", "")  # noqa: E731
    for ordinal in (1, 2):
        space.make_pod(stateful_set, ordinal)
    space.set_revision("demo", "rev-1")
    space.wait(named, "the claim to be named")
    assert space.condition("Progressing")["reason"] == "ClaimPending"


def test_claims_go_with_the_keys(operator, space):
    space.settle(deletionPolicy="Delete")
    assert len(claims(space)) == 3
    space.kubectl("delete", "mcl", "demo", "--wait=false")
    end_masters(space)
    gone(space)
    left = space.get("pvc", "-l", "moonkeeper.dev/cluster=demo")["items"]
    # Kubernetes lets go of claims that no pod uses; there is no controller for that here.
    assert all("deletionTimestamp" in each["metadata"] for each in left), left
    assert space.etcd.keys() == []


def test_claims_stay_with_the_keys(operator, space):
    """The log is not the one that the masters wrote, so neither it nor what they keep is deleted."""
    space.settle(deletionPolicy="Delete")
    key = f"mooncake-store/oplog/{space.name}-demo/latest"
    space.kubectl("delete", "mcl", "demo", "--wait=false")
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 0, "the masters to be ended")
    for master in space.masters.values():
        master.terminate()
    space.etcd.put(key, json.dumps(json.loads(space.etcd.get(key)) | {"log": "7"}))
    for pod in list(space.roles()):
        space.masters.pop(pod)
        space.remove_pod(pod)
    space.set_replicas("demo", 0)
    gone(space)
    left = space.get("pvc", "-l", "moonkeeper.dev/cluster=demo")["items"]
    assert len(left) == 3 and not any("deletionTimestamp" in each["metadata"] for each in left)


def test_retain_keeps_claims(operator, space):
    space.settle()
    space.kubectl("delete", "mcl", "demo")
    assert len(claims(space)) == 3
    left = space.get("pvc", "data-demo-0")["metadata"]
    assert "ownerReferences" not in left and "deletionTimestamp" not in left, left
