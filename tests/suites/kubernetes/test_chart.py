"""The chart and the manifests: linted, rendered with several sets of values, and put before a real API server."""

import json
import os
import subprocess

import pytest

from apiserver import program
from conftest import ROOT

CHART = ROOT / "charts" / "moonkeeper"
NAMESPACE = "moonkeeper-system"

VALUES = {
    "defaults": {},
    "etcd": {"etcd": {"enabled": True}},
    "one-namespace": {"watchNamespace": "team-a", "replicas": 1},
    "local-image": {"image": {"repository": "docker.io/library/moonkeeper", "tag": "test", "pullPolicy": "Never"}},
    "digest": {"image": {"tag": "sha256:" + "0" * 64}},
    "everything": {
        "imagePullSecrets": [{"name": "registry"}],
        "replicas": 3,
        "extraArgs": ["--help"],
        "logLevel": "debug",
        "crds": {"keep": False},
        "serviceAccount": {"name": "somebody", "annotations": {"a": "b"}},
        "podLabels": {"team": "cache"},
        "podAnnotations": {"a": "b"},
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "a", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "etcd": {
            "enabled": True,
            "image": {"repository": "docker.io/library/etcd", "tag": "test", "pullPolicy": "Never"},
            "nodeSelector": {"kubernetes.io/hostname": "a"},
            "tolerations": [{"key": "b", "operator": "Exists"}],
        },
    },
    "bare": {"crds": {"install": False}, "rbac": {"create": False}, "serviceAccount": {"create": False, "name": "mine"}},
}

REFUSED = {
    "replicas": {"replicas": "two"},
    "unknown": {"replica": 2},
    "unknown-below": {"etcd": {"enable": True}},
    "pull-policy": {"image": {"pullPolicy": "Sometimes"}},
    "namespace": {"watchNamespace": "A B"},
    "log-level": {"logLevel": "loud"},
}


def helm(command, *arguments, check=True):
    # Without a cluster to ask, helm takes a version of its own choice, which may be older than the chart accepts.
    version = ["--kube-version", "1.30.0"]
    command = [program("helm"), command, *version, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0 or not check, done.stderr
    return done


@pytest.fixture
def values(tmp_path):
    """Writes values to a file for helm."""

    def write(content):
        path = tmp_path / "values.json"
        path.write_text(json.dumps(content))
        return path

    return write


def render(values, **options):
    extra = [part for name, value in options.items() for part in (f"--{name}", value)]
    return helm("template", "moonkeeper", CHART, "--namespace", NAMESPACE, "--values", values, *extra).stdout


@pytest.fixture(scope="module")
def namespaces(server):
    return [server.create_namespace(name) for name in (NAMESPACE, "team-a")]


def objects(server, text):
    """The rendered objects as the API server would store them."""
    done = server.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", "-", "-o", "json", input=text)
    assert done.stderr == "", done.stderr
    return json.loads(done.stdout)["items"]


def one(items, kind, name="moonkeeper"):
    (found,) = [item for item in items if item["kind"] == kind and item["metadata"]["name"] == name]
    return found


@pytest.mark.parametrize("name", VALUES)
def test_lint(values, name):
    helm("lint", "--strict", CHART, "--values", values(VALUES[name]))


@pytest.mark.parametrize("name", VALUES)
def test_the_api_server_takes_what_is_rendered(server, namespaces, values, name):
    items = objects(server, render(values(VALUES[name])))
    assert one(items, "Deployment")


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_values_are_refused(values, name):
    done = helm("template", "moonkeeper", CHART, "--values", values(REFUSED[name]), check=False)
    assert done.returncode != 0 and "values don't meet the specifications of the schema" in done.stderr, done.stderr


def test_the_image_can_be_any(server, namespaces, values):
    def image(name):
        (container,) = one(objects(server, render(values(VALUES[name]))), "Deployment")["spec"]["template"]["spec"]["containers"]
        return container["image"], container["imagePullPolicy"]

    assert image("local-image") == ("docker.io/library/moonkeeper:test", "Never")
    assert image("digest") == ("ghcr.io/moonkeeper/moonkeeper@sha256:" + "0" * 64, "IfNotPresent")


def test_one_namespace_needs_no_rights_outside(server, namespaces, values):
    items = objects(server, render(values(VALUES["one-namespace"])))
    # Roles for people are bound by Kubernetes' own, to whom those are bound.
    assert not [item["kind"] for item in items if item["kind"] == "ClusterRoleBinding"]
    roles = {(item["metadata"]["namespace"], item["metadata"]["name"]) for item in items if item["kind"] == "Role"}
    assert roles == {("team-a", "moonkeeper"), ("team-a", "moonkeeper-lease")}
    everywhere = objects(server, render(values({})))
    # Only an operator for all namespaces has to know of others.
    *rules, leases = one(everywhere, "ClusterRole")["rules"]
    assert rules == one(items, "Role")["rules"]
    assert (leases["resources"], leases["verbs"]) == (["leases"], ["list"])


def test_users_see_and_edit_by_the_roles_that_they_have(server, namespaces, values):
    items = objects(server, render(values({})))

    def given(to):
        label = f"rbac.authorization.k8s.io/aggregate-to-{to}"
        roles = [item for item in items if item["metadata"]["labels"].get(label) == "true"]
        rules = [rule for role in roles for rule in role["rules"]]
        return {(resource, verb) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}

    assert given("view") >= {("masterclusters", verb) for verb in ("get", "list", "watch")}
    assert given("view").isdisjoint({(resource, "patch") for resource, _ in given("view")})
    edits = {("masterclusters", verb) for verb in ("create", "update", "patch", "delete")} | {("masterclusters/scale", "update")}
    assert given("edit") == given("admin") and given("edit") >= edits
    # Who leads is written by the operator alone.
    assert not [verb for resource, verb in given("edit") if resource == "masterclusters/status"]
    none = objects(server, render(values({"rbac": {"aggregate": False}})))
    assert len([item for item in none if item["kind"] == "ClusterRole"]) == 1


def pod_specs(items):
    return [item["spec"]["template"]["spec"] for item in items if item["kind"] in ("Deployment", "Job", "StatefulSet")]


def test_the_platform_may_choose_the_user(server, namespaces, values):
    """OpenShift gives each namespace ids of its own, and refuses pods that name others."""
    chosen = {"etcd": {"enabled": True, "runAsUser": None}}
    pods = pod_specs(objects(server, render(values(chosen))))
    found = [pod["securityContext"] for pod in pods]
    assert found == [{"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}] * 3
    containers = [each for pod in pods for each in pod["containers"] + pod.get("initContainers", [])]
    assert not [each for each in containers if each["securityContext"].keys() & {"runAsUser", "runAsGroup"}]


def test_pods_pass_the_strictest_standard(server, namespaces, values):
    server.kubectl("label", "namespace", NAMESPACE, "--overwrite", "pod-security.kubernetes.io/warn=restricted")
    try:
        objects(server, render(values({"etcd": {"enabled": True}})))
    finally:
        server.kubectl("label", "namespace", NAMESPACE, "pod-security.kubernetes.io/warn-")


def test_masters_get_the_image_of_the_operator(server, namespaces, values):
    for name, image in [("local-image", "docker.io/library/moonkeeper:test"), ("digest", "ghcr.io/moonkeeper/moonkeeper@sha256:" + "0" * 64)]:
        (container,) = one(objects(server, render(values(VALUES[name]))), "Deployment")["spec"]["template"]["spec"]["containers"]
        assert f"--default-image={image}" in container["args"]


def test_uninstalling_keeps_the_definition(server, namespaces, values):
    name = "masterclusters.moonkeeper.dev"
    kept = one(objects(server, render(values({}))), "CustomResourceDefinition", name)
    assert kept["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    left = one(objects(server, render(values({"crds": {"keep": False}}))), "CustomResourceDefinition", name)
    assert "helm.sh/resource-policy" not in left["metadata"].get("annotations", {})


def test_the_operator_is_asked_before_it_is_uninstalled(server, namespaces, values):
    job = one(objects(server, render(values({"watchNamespace": "team-a"}))), "Job", "moonkeeper-removal")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    spec = job["spec"]["template"]["spec"]
    assert spec["serviceAccountName"] == "moonkeeper"
    assert spec["containers"][0]["args"] == ["operator", "--check-removal", "--namespace=team-a"]
    # It is the chart's alone: who applies the manifests would start it at once.
    assert "Job" not in (ROOT / "manifests" / "install.yaml").read_text()


def test_an_upgrade_of_the_chart_restarts_no_etcd(tmp_path, values):
    """The etcd for trying things out has no disk: a restart would empty it."""

    def etcd(chart):
        text = helm("template", "moonkeeper", chart, "--set", "etcd.enabled=true", "--show-only", "templates/etcd.yaml").stdout
        return text.split("  template:\n")[1]

    newer = tmp_path / "chart"
    subprocess.run(["cp", "-r", CHART, newer], check=True)
    about = (newer / "Chart.yaml").read_text().replace("ersion: 0.1.0", "ersion: 0.2.0")
    (newer / "Chart.yaml").write_text(about)
    assert etcd(newer) == etcd(CHART)


def test_the_manifests_are_those_of_the_chart():
    environment = os.environ | {"HELM": program("helm")}
    done = subprocess.run(
        [ROOT / "scripts" / "manifests", "--check"], capture_output=True, text=True, env=environment, timeout=60
    )
    assert done.returncode == 0, done.stderr


def test_the_api_server_takes_the_manifests(server, namespaces):
    path = ROOT / "manifests" / "install.yaml"
    done = server.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", path, "-o", "json")
    (namespace,) = [item for item in json.loads(done.stdout)["items"] if item["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


EXAMPLES = sorted((ROOT / "manifests" / "examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_api_server_takes_the_examples(server, path):
    done = server.kubectl("apply", "--validate=strict", "--dry-run=server", "-f", path)
    assert done.stderr == "", done.stderr


def test_the_etcd_of_the_minimal_example_is_the_one_of_the_chart(values):
    text = render(values({"etcd": {"enabled": True}}))
    assert "advertise-client-urls=http://moonkeeper-etcd.moonkeeper-system:2379" in text
    assert "http://moonkeeper-etcd.moonkeeper-system:2379" in (ROOT / "manifests/examples/minimal.yaml").read_text()
