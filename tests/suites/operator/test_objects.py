"""Every object of a cluster is made, and made again when somebody deletes or edits it."""

import json

import pytest

pytestmark = pytest.mark.timeout(300)

KINDS = [
    ("serviceaccount", "demo"),
    ("secret", "demo-admin"),
    ("service", "demo"),
    ("service", "demo-leader"),
    ("service", "demo-masters"),
    ("poddisruptionbudget", "demo"),
    ("networkpolicy", "demo"),
    ("statefulset", "demo"),
]

# What somebody might do to an object, and the field that it is about.
EDITS = [
    ("service", "demo-leader", {"spec": {"selector": {"moonkeeper.dev/role": "standby"}}}, ("spec", "selector")),
    ("poddisruptionbudget", "demo", {"spec": {"maxUnavailable": 3}}, ("spec", "maxUnavailable")),
    ("networkpolicy", "demo", {"spec": {"ingress": []}}, ("spec", "ingress")),
    ("statefulset", "demo", {"spec": {"replicas": 5}}, ("spec", "replicas")),
    ("service", "demo", {"metadata": {"labels": {"moonkeeper.dev/cluster": None}}}, ("metadata", "labels")),
    ("serviceaccount", "demo", {"automountServiceAccountToken": True}, ("automountServiceAccountToken",)),
]


def field(thing, path):
    for name in path:
        thing = thing[name]
    return thing


@pytest.fixture
def made(operator, space):
    space.make()
    for kind, name in KINDS:
        space.wait(lambda kind=kind, name=name: space.get(kind, name), f"{kind} {name}")
    return space


def kinds(space):
    """All objects; the name of the ConfigMap comes from what is in it."""
    return [*KINDS, *(("configmap", name) for name in space.names("configmap"))]


def test_every_object_is_owned_and_made_again(made):
    owner = made.get("mcl", "demo")["metadata"]["uid"]
    assert len(kinds(made)) == len(KINDS) + 1
    for kind, name in kinds(made):
        metadata = made.get(kind, name)["metadata"]
        assert [each["uid"] for each in metadata["ownerReferences"]] == [owner], (kind, name)
        assert metadata["labels"]["moonkeeper.dev/cluster"] == "demo"
    for kind, name in kinds(made):
        before = made.get(kind, name)["metadata"]["uid"]
        made.kubectl("delete", kind, name, "--wait=false")
        if kind == "secret":
            # Secrets are not watched: any pass finds out.
            made.kubectl("annotate", "mcl", "demo", "touched=yes", "--overwrite")

        def again(kind=kind, name=name, before=before):
            found = made.get(kind, name)
            return found and found["metadata"]["uid"] != before

        made.wait(again, f"{kind} {name} to be made again")


def test_edits_are_undone(made):
    for kind, name, edit, path in EDITS:
        before = field(made.get(kind, name), path)
        made.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(edit))
        made.wait(
            lambda kind=kind, name=name, path=path, before=before: field(made.get(kind, name), path) == before,
            f"{kind} {name} to be as it was",
        )


def test_another_manager_does_not_keep_our_fields(made):
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "demo-leader", "labels": {"team": "store"}},
        "spec": {"selector": {"moonkeeper.dev/role": "standby"}},
    }
    words = ["apply", "--server-side", "--force-conflicts", "--field-manager=somebody", "-f", "-"]
    made.kubectl(*words, input=json.dumps(theirs))
    role = lambda: made.get("service", "demo-leader")["spec"]["selector"]["moonkeeper.dev/role"]  # noqa: E731
    made.wait(lambda: role() == "primary", "our field to be ours again")
    # What is not ours stays.
    assert made.get("service", "demo-leader")["metadata"]["labels"]["team"] == "store"


def test_an_object_of_somebody_else_is_left_alone(operator, space):
    space.kubectl("create", "service", "clusterip", "demo-leader", "--tcp=1:1")
    space.make()
    space.wait_phase("Stalled")
    stalled = space.condition("Stalled")
    assert stalled["reason"] == "NameTaken" and "Service demo-leader" in stalled["message"]
    assert space.get("service", "demo-leader")["spec"]["selector"] == {"app": "demo-leader"}
    space.kubectl("delete", "service", "demo-leader")
    space.wait_status(lambda status: status.get("phase") != "Stalled", "the way to be free")


def mounted(template):
    [name] = [each["configMap"]["name"] for each in template["volumes"] if "configMap" in each]
    return name


def test_a_settings_file_stays_until_no_pod_has_it(made):
    """A container that restarts by itself reads what it read before, whatever the spec says by then."""
    made.make_pods()
    old = mounted(made.get("pod", "demo-0")["spec"])
    text = made.get("configmap", old)["data"]["master.yaml"]
    made.patch({"store": {"leaseTTL": "11s"}})
    template = lambda: made.get("sts", "demo")["spec"]["template"]["spec"]  # noqa: E731
    made.wait(lambda: mounted(template()) != old, "another file in the template")
    made.set_revision("demo", "rev-2")
    new = mounted(template())
    assert made.get("configmap", old)["data"]["master.yaml"] == text != made.get("configmap", new)["data"]["master.yaml"]
    for ordinal in range(3):
        assert old in made.names("configmap")
        made.remove_pod(f"demo-{ordinal}")
        made.make_pod(made.get("sts", "demo"), ordinal, "rev-2")
    made.wait(lambda: made.names("configmap") == [new], "the old file to go")


def test_the_network_policy_goes_when_it_is_turned_off(made):
    made.patch({"networkPolicy": {"enabled": False}})
    made.wait(lambda: made.get("networkpolicy", "demo") is None, "the policy to go")
    made.patch({"networkPolicy": {"enabled": True}})
    made.wait(lambda: made.get("networkpolicy", "demo"), "the policy to come back")


def test_a_suspended_cluster_is_left_alone(made, operator):
    made.patch({"suspend": True})
    made.wait_phase("Suspended")
    made.kubectl("delete", "service", "demo-leader")
    passes = operator.passes()
    made.kubectl("annotate", "mcl", "demo", "touched=yes")
    made.wait(lambda: operator.passes() > passes, "another pass")
    assert made.get("service", "demo-leader") is None
    made.patch({"suspend": False})
    made.wait(lambda: made.get("service", "demo-leader"), "the Service to come back")
    assert {"Suspended", "Resumed"} <= set(made.events())


def test_the_image_is_chosen_once(made):
    image = lambda: made.get("sts", "demo")["spec"]["template"]["spec"]["containers"][0]["image"]  # noqa: E731
    chosen = image()
    made.wait_status(lambda status: status.get("image") == chosen, "the image in the status")
    # Somebody's edit is undone.
    made.kubectl("patch", "sts", "demo", "--type=json", "-p", json.dumps([
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "elsewhere/m:0.0.8"}
    ]))
    made.wait(lambda: image() == chosen, "the image to be as it was")
    # As with an operator of another version and from another registry: what the masters have is kept, also when the
    # StatefulSet is made again.
    kept = json.dumps({"status": {"image": "registry.example/m:0.0.9"}})
    made.kubectl("patch", "mcl", "demo", "--subresource=status", "--type=merge", "-p", kept)
    made.wait(lambda: image() == "registry.example/m:0.0.9", "the image of the status")
    before = made.get("sts", "demo")["metadata"]["uid"]
    made.kubectl("delete", "sts", "demo", "--cascade=background")
    again = lambda: (found := made.get("sts", "demo")) and found["metadata"]["uid"] != before  # noqa: E731
    made.wait(again, "the StatefulSet to be made again")
    assert image() == "registry.example/m:0.0.9"


def test_masters_get_the_image_of_the_operator(start_operator, space):
    start_operator(flags=["--default-image=registry.example:5000/m:7"])
    space.make()
    found = space.wait(lambda: space.get("sts", "demo"), "the StatefulSet")
    assert found["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example:5000/m:7"
