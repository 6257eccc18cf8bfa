"""A real API server with the definition of MasterCluster, for all tests here."""

import http.client
import json
import pathlib
import ssl

import pytest

from apiserver import ApiServer

ROOT = pathlib.Path(__file__).resolve().parents[3]
DEFINITION = ROOT / "crds" / "masterclusters.moonkeeper.dev.yaml"


def pytest_collection_modifyitems(items):
    """The first test that needs the API server waits for it, and on a busy machine that is long."""
    for item in items:
        if item.path.is_relative_to(pathlib.Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(600))


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """The API server, with the definition installed as a user would."""
    with ApiServer(tmp_path_factory.mktemp("apiserver")) as server:
        done = server.kubectl("apply", "-f", DEFINITION)
        # Formats that it does not know, rules that it finds odd: it says so here.
        assert done.stderr == "", done.stderr
        server.kubectl("wait", "--for=condition=Established", "crd/masterclusters.moonkeeper.dev", "--timeout=60s")
        yield server


@pytest.fixture(scope="session")
def definition(server):
    """The definition as the API server has it."""
    return server.get("crd", "masterclusters.moonkeeper.dev")


@pytest.fixture
def namespace(server, request):
    """A namespace for this test."""
    letters = "".join(c if c.isalnum() else "-" for c in request.node.name.lower())
    return server.create_namespace(letters[:50].strip("-"))


def cluster(name="demo", **spec):
    """A MasterCluster with what it must have, and what is given."""
    spec = {"etcd": {"endpoints": ["http://etcd:2379"]}} | spec
    return {
        "apiVersion": "moonkeeper.dev/v1alpha1",
        "kind": "MasterCluster",
        "metadata": {"name": name},
        "spec": spec,
    }


def apply(server, manifest, *options, check=True, namespace="default"):
    """Applies a manifest as a user would; the finished process."""
    return server.kubectl("apply", "-n", namespace, "-f", "-", *options, input=json.dumps(manifest), check=check)


def try_to_create(server, manifest, namespace="default"):
    """What the API server says to a new MasterCluster without keeping it: status, answer, warning.
    Unknown fields are refused, as kubectl asks for. Without kubectl, which takes a second for each question."""
    settings = json.loads(server.kubeconfig.read_text())
    where = settings["clusters"][0]["cluster"]
    trust = ssl.create_default_context(cafile=where["certificate-authority"])
    connection = http.client.HTTPSConnection(where["server"].removeprefix("https://"), context=trust, timeout=60)
    try:
        connection.request(
            "POST",
            f"/apis/moonkeeper.dev/v1alpha1/namespaces/{namespace}/masterclusters?dryRun=All&fieldValidation=Strict",
            json.dumps(manifest),
            {"Authorization": f"Bearer {settings['users'][0]['user']['token']}", "Content-Type": "application/json"},
        )
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read()), answer.getheader("Warning")
    finally:
        connection.close()
