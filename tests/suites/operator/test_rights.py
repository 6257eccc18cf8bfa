"""The operator's role is enough for all that it does, and nothing in it is more than that.

The operator lives through everything with exactly the role of the chart, and the API server writes down every call.
None may have been refused; and every right that the role gives must have been used, so that without it some call would
have been refused. To see that such a refusal is noticed, rights are then taken away one after the other.
"""

import json
import pathlib
import subprocess

import pytest

from apiserver import program
from waiting import wait_until

pytestmark = pytest.mark.timeout(600)

ROOT = pathlib.Path(__file__).resolve().parents[3]
NAMESPACE = "moonkeeper-system"
RELEASE = "moonkeeper"


def rendered(server):
    """The chart's account and roles, as objects."""
    command = [program("helm"), "template", RELEASE, str(ROOT / "charts" / "moonkeeper"), "--namespace", NAMESPACE]
    # Without a cluster to ask, helm takes a version of its own choice.
    command += ["--kube-version", "1.34.0"]
    for name in ("rbac", "serviceaccount"):
        command += ["--show-only", f"templates/{name}.yaml"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return parsed(server.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", input=text).stdout)


def parsed(shown):
    """What kubectl shows: one object after the other, not a list."""
    decoder, found, at = json.JSONDecoder(), [], 0
    while at < len(shown.rstrip()):
        value, at = decoder.raw_decode(shown, at)
        found += value["items"] if value["kind"] == "List" else [value]
        while at < len(shown) and shown[at].isspace():
            at += 1
    return found


def rights(objects):
    """All that the roles give, as (group, resource, verb)."""
    return {
        (group, resource, verb)
        for role in objects
        if role["kind"] in ("Role", "ClusterRole")
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def without(objects, right):
    """The same objects, with one right less."""
    copy = json.loads(json.dumps(objects))
    for role in copy:
        if role["kind"] not in ("Role", "ClusterRole"):
            continue
        rules = []
        for rule in role["rules"]:
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    verbs = [verb for verb in rule["verbs"] if (group, resource, verb) != right]
                    if verbs:
                        rules.append({"apiGroups": [group], "resources": [resource], "verbs": verbs})
        role["rules"] = rules
    return copy


def written(server):
    """The log of the API server as far as its lines are whole: it is being written to."""
    log = server.audit_log.read_bytes()
    return log[: log.rfind(b"\n") + 1]


def calls(server, since=0):
    """What the operator has asked the API server for, from a place in the log on."""
    found = []
    for line in written(server)[since:].decode().splitlines():
        event = json.loads(line)
        about = event.get("objectRef", {})
        resource = about.get("resource", "")
        if about.get("subresource"):
            resource += f"/{about['subresource']}"
        code = event.get("responseStatus", {}).get("code")
        group = about.get("apiGroup", "")
        found.append(((group, resource, event["verb"]), code))
        if event["verb"] == "patch" and code == 201:
            # Applying what is not there creates it, and takes both rights.
            found.append(((group, resource, "create"), code))
    return found


def live(space):
    """Everything that can happen to a cluster."""
    space.settle(deletionPolicy="Delete")
    old = space.wait_labelled()
    space.patch({"networkPolicy": {"enabled": False}})
    space.wait(lambda: space.get("networkpolicy", "demo") is None, "the policy to go")
    # Another StatefulSet around the same pods.
    space.patch({"snapshots": {"store": {"volumeClaim": None, "ephemeral": {}}}})
    space.let_go()
    space.set_revision("demo", "rev-1")
    for request in ("one", "two"):
        # The second is told by a change of the event of the first.
        space.patch({"switchover": {"requestId": request}})
        space.wait_status(
            lambda status, request=request: (found := status.get("lastSwitchover", {})).get("requestId") == request
            and found["result"] == "Succeeded",
            "the switchover",
        )
        space.wait_phase("Serving")
    space.masters[old].kill()
    space.wait_phase("Degraded")
    replace_settings(space)
    space.kubectl("delete", "mcl", "demo", "--wait=false")
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 0, "the masters to be ended")
    for pod in list(space.roles()):
        space.masters[pod].kill()
        space.remove_pod(pod)
    space.set_replicas("demo", 0)
    space.wait(lambda: space.get("mcl", "demo") is None, "the resource to go", 150)


def replace_settings(space):
    """Another settings file, while no pod has the first one."""
    space.make("spare")
    space.wait(lambda: space.get("sts", "spare"), "StatefulSet spare")
    files = lambda: space.names("configmap", "spare")  # noqa: E731
    [old] = files()
    space.patch({"store": {"leaseTTL": "11s"}}, "spare")
    space.wait(lambda: len(files()) == 2, "another ConfigMap")
    space.set_replicas("spare", 0)
    space.wait(lambda: old not in files(), "the old ConfigMap to go")


@pytest.fixture(scope="module")
def role(server):
    server.kubectl("create", "namespace", NAMESPACE, check=False)
    objects = rendered(server)
    apply(server, objects)
    return objects


def apply(server, objects):
    for each in objects:
        words = ["apply", "--server-side", "--force-conflicts", "--field-manager=test", "-f", "-"]
        each["metadata"].pop("managedFields", None)
        namespace = ["--namespace", each["metadata"].get("namespace", NAMESPACE)]
        server.kubectl(*namespace, *words, input=json.dumps(each))


def account(server, objects):
    [name] = [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"]
    return server.account_kubeconfig(NAMESPACE, name)


def test_the_role_is_enough_and_not_more(server, space, start_operator, role):
    start_operator(kubeconfig=account(server, role), namespace=None, own_namespace=NAMESPACE)
    live(space)
    made = calls(server)
    refused = [call for call, code in made if code in (401, 403)]
    assert not refused, refused
    unused = rights(role) - {call for call, _ in made}
    assert not unused, f"the role gives what is never used: {sorted(unused)}"


def test_every_missing_right_is_noticed(server, space, start_operator, role):
    """Without any one of its rights, something that the operator does is refused."""
    kubeconfig = account(server, role)
    # Operators of earlier tests were killed and left theirs behind: each new operator would wait for them to run out.
    for lease in json.loads(server.kubectl("get", "lease", "--all-namespaces", "-o", "json").stdout)["items"]:
        if lease["metadata"]["name"] == "moonkeeper-operator":
            server.kubectl("delete", "lease", "moonkeeper-operator", "--namespace", lease["metadata"]["namespace"])
    # A cluster that has everything to do: objects, labels, status, finalizer.
    for number, right in enumerate(sorted(rights(role))):
        if right[2] == "delete" or (right[1], right[2]) == ("events", "patch"):
            # These take more than the birth of a cluster; the test above has seen them used.
            continue
        apply(server, without(role, right))
        since = len(written(server))
        operator = start_operator(kubeconfig=kubeconfig, namespace=None, own_namespace=NAMESPACE, elect=True)
        if right[1] == "leases":
            server.kubectl("delete", "lease", "--all", "--namespace", NAMESPACE)
        # With a finalizer to set.
        name = space.make(f"c{number}", deletionPolicy="Delete")
        if right[1] == "pods":
            space.kubectl("create", "-f", "-", input=json.dumps(_pod(name)), check=False)
        try:
            wait_until(
                lambda since=since, right=right: any(
                    code == 403 and call[:2] == right[:2] for call, code in calls(server, since)
                ),
                f"a refusal without {right}",
                60,
            )
        finally:
            operator.kill()
            apply(server, role)
            server.kubectl("delete", "lease", "--all", "--namespace", NAMESPACE)


def _pod(cluster):
    labels = {
        "moonkeeper.dev/cluster": cluster,
        "app.kubernetes.io/managed-by": "moonkeeper-operator",
        "app.kubernetes.io/name": "moonkeeper",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{cluster}-0", "labels": labels},
        "spec": {"containers": [{"name": "master", "image": "m"}]},
    }
