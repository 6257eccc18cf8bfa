"""A refused `helm uninstall` removes nothing, and the release can be used again as docs/kubernetes.md says. Here the test ends
the Job that Helm starts; tests/suites/e2e has one that runs."""

import datetime
import json
import os
import re
import subprocess

import pytest

from apiserver import program
from conftest import ROOT
from waiting import wait_until

CHART = ROOT / "charts" / "moonkeeper"
JOB = "moonkeeper-removal"
# Those that the tests of this folder share have the definition already.
VALUES = ["--set", "crds.install=false"]


@pytest.fixture
def helm(server, namespace, tmp_path):
    """Starts Helm in the namespace."""
    homes = {f"HELM_{what}_HOME": str(tmp_path / what) for what in ("CACHE", "CONFIG", "DATA")}
    environment = os.environ | homes | {"KUBECONFIG": str(server.kubeconfig)}

    def start(*words):
        command = [program("helm"), *map(str, words), "--namespace", namespace]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(*words):
        process = start(*words)
        out, error = process.communicate(timeout=120)
        return process.returncode, out, error

    run.start = start
    yield run
    # What is not in the namespace.
    run("uninstall", "moonkeeper", "--no-hooks", "--ignore-not-found")


def fail(server, namespace):
    """Ends the Job as its controller does after a pod that has failed."""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = {"lastProbeTime": now, "lastTransitionTime": now}
    conditions = [{"type": kind, "status": "True", "reason": "BackoffLimitExceeded"} | times for kind in ("FailureTarget", "Failed")]
    status = json.dumps({"status": {"startTime": now, "failed": 1, "conditions": conditions}})
    server.kubectl("patch", "job", JOB, "-n", namespace, "--subresource=status", "--type=merge", "-p", status)


def documented():
    """The command that makes a release usable again."""
    text = (ROOT / "docs" / "kubernetes.md").read_text()
    [command] = re.findall(r"^helm (rollback moonkeeper) REVISION --namespace moonkeeper-system$", text, re.MULTILINE)
    return command.split()


def test_a_refused_uninstall_can_be_taken_back(server, namespace, helm):
    deployed = lambda: server.get("deployment", "moonkeeper", "-n", namespace)  # noqa: E731
    code, _, error = helm("install", "moonkeeper", CHART, *VALUES)
    assert code == 0, error
    refused = helm.start("uninstall", "moonkeeper")
    wait_until(lambda: server.get("job", JOB, "-n", namespace), "the Job")
    assert deployed(), "removed before it was known whether it may be"
    fail(server, namespace)
    _, error = refused.communicate(timeout=60)
    assert refused.returncode != 0 and JOB in error, error
    assert deployed() and server.get("job", JOB, "-n", namespace)
    # Helm takes the release for one that is being removed, and upgrades none of these.
    code, _, error = helm("upgrade", "moonkeeper", CHART, *VALUES)
    assert code != 0 and "has no deployed releases" in error, error
    [last] = json.loads(helm("history", "moonkeeper", "--output", "json")[1])
    code, _, error = helm(*documented(), last["revision"])
    assert code == 0, error
    code, _, error = helm("upgrade", "moonkeeper", CHART, *VALUES)
    assert code == 0, error
    # The next attempt begins with a Job of its own.
    before = server.get("job", JOB, "-n", namespace)["metadata"]["uid"]
    again = helm.start("uninstall", "moonkeeper")
    wait_until(lambda: (now := server.get("job", JOB, "-n", namespace)) and now["metadata"]["uid"] != before, "another Job")
    fail(server, namespace)
    again.communicate(timeout=60)
    assert again.returncode != 0 and deployed()
    code, _, error = helm("uninstall", "moonkeeper", "--no-hooks")
    assert code == 0 and deployed() is None, error
