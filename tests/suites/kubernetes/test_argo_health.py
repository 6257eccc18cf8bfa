"""The health check for Argo CD of docs/kubernetes.md, run as Argo CD runs it: `obj` is the resource, the answer a table."""

import re

import pytest
from lupa import LuaRuntime

from conftest import ROOT

MESSAGES = {"Ready": "of Ready", "Stalled": "of Stalled"}


def documented():
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    [found] = re.findall(r"resource\.customizations\.health\.moonkeeper\.dev_MasterCluster: \|\n((?:    .*\n|\n)+)", text)
    return found


def resource(generation=3, observed=3, suspend=None, **conditions):
    """A MasterCluster with these conditions; without any it has no status."""
    listed = [{"type": name, "status": status, "message": MESSAGES[name]} for name, status in conditions.items()]
    status = {"observedGeneration": observed, "conditions": listed} if listed else None
    spec = {} if suspend is None else {"suspend": suspend}
    return {"metadata": {"generation": generation}, "spec": spec} | ({"status": status} if status else {})


CASES = {
    "no status": (resource(), "Progressing", "not observed it yet"),
    "older generation": (resource(observed=2, Ready="True"), "Progressing", "newest spec"),
    "ready": (resource(Ready="True", Stalled="False"), "Healthy", "of Ready"),
    "not ready": (resource(Ready="False", Stalled="False"), "Progressing", "of Ready"),
    "unknown": (resource(Ready="Unknown"), "Progressing", "of Ready"),
    "stalled": (resource(Ready="True", Stalled="True"), "Degraded", "of Stalled"),
    "suspended": (resource(Ready="True", suspend=True), "Suspended", "spec.suspend"),
    "not suspended": (resource(Ready="True", suspend=False), "Healthy", "of Ready"),
}


@pytest.mark.parametrize(("obj", "status", "message"), CASES.values(), ids=CASES)
def test_health(obj, status, message):
    lua = LuaRuntime()
    lua.globals().obj = lua.table_from(obj, recursive=True)
    answer = lua.execute(documented())
    assert answer["status"] == status
    assert message in answer["message"]
