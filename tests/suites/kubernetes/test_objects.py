"""The objects that are made for a MasterCluster, as tests/operator/objects.rs pins them, at a real API server."""

import pytest

from conftest import ROOT

EXPECTED = sorted((ROOT / "tests" / "operator" / "objects" / "expected").glob("*.yaml"))


@pytest.fixture(scope="module")
def team(server):
    return server.create_namespace("team")


def test_there_are_some():
    assert len(EXPECTED) >= 3


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.stem)
def test_the_api_server_takes_them(server, team, path):
    """By server-side apply, with unknown fields refused: as the operator sends them, only stricter."""
    done = server.kubectl(
        "apply", "--server-side", "--field-manager=moonkeeper-operator", "--validate=strict", "--dry-run=server", "-f", path
    )
    kinds = [line.split("/")[0] for line in done.stdout.splitlines()]
    assert "statefulset.apps" in kinds and kinds.count("service") == 3
    assert done.stderr == "", done.stderr


def test_pods_pass_the_strictest_standard(server):
    """A namespace that enforces the `restricted` standard takes the pods without a warning."""
    server.kubectl("create", "namespace", "restricted")
    server.kubectl("label", "namespace", "restricted", "pod-security.kubernetes.io/warn=restricted")
    for path in EXPECTED:
        text = path.read_text().replace("namespace: team", "namespace: restricted")
        # The container that a user adds is the user's.
        if "name: logs" in text:
            continue
        done = server.kubectl(
            "apply", "--server-side", "--dry-run=server", "-n", "restricted", "-f", "-", input=text
        )
        assert done.stderr == "", done.stderr


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: path.stem)
def test_applying_twice_changes_nothing(server, team, path):
    """What the API server fills in is not something that the operator says otherwise."""
    apply = ("apply", "--server-side", "--field-manager=moonkeeper-operator", "-f", path)
    server.kubectl(*apply)

    def versions():
        kinds = "statefulset,service,configmap,secret,serviceaccount,pdb,networkpolicy"
        items = server.get(kinds, "-n", team)["items"]
        return {(item["kind"], item["metadata"]["name"]): item["metadata"]["resourceVersion"] for item in items}

    before = versions()
    server.kubectl(*apply)
    assert versions() == before
