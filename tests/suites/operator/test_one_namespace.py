"""An operator for one namespace, with exactly the Roles that the chart gives it with `watchNamespace`: it does all that it
does elsewhere, and has no right in any other namespace."""

import json
import subprocess

import pytest

from apiserver import program
from test_rights import NAMESPACE, ROOT, account, apply, live, parsed

pytestmark = pytest.mark.timeout(600)
# Not the account of test_rights.py, which has rights everywhere.
RELEASE = "one-namespace"


def rendered(server, namespace):
    command = [program("helm"), "template", RELEASE, str(ROOT / "charts" / "moonkeeper"), "--namespace", NAMESPACE]
    command += ["--kube-version", "1.34.0", "--set", f"watchNamespace={namespace}"]
    for name in ("rbac", "serviceaccount"):
        command += ["--show-only", f"templates/{name}.yaml"]
    text = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    return parsed(server.kubectl("create", "--dry-run=client", "-o", "json", "-f", "-", input=text).stdout)


def may(server, name, verb, resource, *where):
    user = f"--as=system:serviceaccount:{NAMESPACE}:{name}"
    return server.kubectl("auth", "can-i", verb, resource, user, *where, check=False).stdout.strip() == "yes"


def test_the_roles_of_one_namespace_are_enough(server, space, start_operator):
    server.kubectl("create", "namespace", NAMESPACE, check=False)
    objects = rendered(server, space.name)
    assert not [each for each in objects if each["kind"].startswith("Cluster")], "a right in every namespace"
    apply(server, objects)
    [name] = [each["metadata"]["name"] for each in objects if each["kind"] == "ServiceAccount"]
    # As the Deployment of the chart starts it: its Lease is in the namespace that it looks after.
    operator = start_operator(kubeconfig=account(server, objects), own_namespace=NAMESPACE)
    operator.wait_until_leading()
    live(space)
    refused = [line for line in operator.log.read_text().splitlines() if "orbidden" in line or '"403"' in line]
    assert not refused, refused[:3]
    leases = json.loads(server.kubectl("get", "lease", "--all-namespaces", "-o", "json").stdout)["items"]
    held = [each["metadata"]["namespace"] for each in leases if each["metadata"]["namespace"] in (space.name, NAMESPACE)]
    assert space.name in held, held
    for verb, resource in (("list", "masterclusters"), ("get", "secrets"), ("patch", "statefulsets"), ("get", "leases")):
        assert may(server, name, verb, resource, "--namespace", space.name), (verb, resource)
        for elsewhere in ("default", NAMESPACE):
            assert not may(server, name, verb, resource, "--namespace", elsewhere), (verb, resource, elsewhere)
        assert not may(server, name, verb, resource, "--all-namespaces"), (verb, resource)
