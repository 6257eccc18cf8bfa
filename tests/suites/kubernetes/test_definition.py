"""The definition of MasterCluster: what `kubectl` shows, what is filled in, what the subresources do."""

import json
import os
import subprocess

from conftest import DEFINITION, apply, cluster


def test_the_command_prints_the_file():
    done = subprocess.run([os.environ["MOONKEEPER_BIN"], "crd"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == DEFINITION.read_text()


def test_defaults_are_filled_in(server, namespace):
    apply(server, cluster(), namespace=namespace)
    spec = server.get("mcl", "demo", "-n", namespace)["spec"]
    assert spec == {
        "replicas": 3,
        "image": {"repository": "", "tag": "", "pullPolicy": "IfNotPresent"},
        "resources": {},
        "etcd": {"endpoints": ["http://etcd:2379"], "tlsSecretName": "", "credentialsSecretName": ""},
        "store": {
            "leaseTTL": "10s",
            "softPinTTL": "30m",
            "evictionHighWatermark": "0.90",
            "evictionRatio": "0.05",
            "clientTTL": "10s",
        },
        "metadataServer": {"enabled": False},
        "failover": {"leaseTTL": "5s", "keepAliveInterval": "1s", "inheritedClientTTL": "180s", "companion": True},
        "promotion": {"expired": "Keep"},
        "replication": {"durability": "Strict", "leaseSyncInterval": "1s"},
        "snapshots": {
            "interval": "10m",
            "keep": 2,
            "store": {"volumeClaim": {"size": "8Gi", "storageClassName": ""}},
        },
        "switchover": {"target": "", "requestId": ""},
        "scheduling": {"spread": "Preferred", "topologyKey": "kubernetes.io/hostname", "priorityClassName": ""},
        "podTemplate": {},
        "admin": {"tlsSecretName": ""},
        "networkPolicy": {"enabled": True},
        "suspend": False,
        "deletionPolicy": "Retain",
    }


def test_defaults_are_filled_in_beside_what_is_given(server, namespace):
    manifest = cluster(image={"tag": "1.0"}, failover={"leaseTTL": "10s"}, networkPolicy={"clients": [{"podSelector": {}}]})
    apply(server, manifest, namespace=namespace)
    spec = server.get("mcl", "demo", "-n", namespace)["spec"]
    assert spec["image"] == {"repository": "", "tag": "1.0", "pullPolicy": "IfNotPresent"}
    assert spec["failover"] == {"leaseTTL": "10s", "keepAliveInterval": "1s", "inheritedClientTTL": "180s", "companion": True}
    assert spec["networkPolicy"] == {"enabled": True, "clients": [{"podSelector": {}}]}


def test_the_store_of_snapshots_is_chosen(server, namespace):
    """Another choice replaces the default one, with server-side apply as it is written, else with a null."""
    store = lambda: server.get("mcl", "demo", "-n", namespace)["spec"]["snapshots"]["store"]  # noqa: E731
    apply(server, cluster(snapshots={"store": {"volumeClaim": {"size": "20Gi"}}}), namespace=namespace)
    assert store() == {"volumeClaim": {"size": "20Gi", "storageClassName": ""}}
    apply(server, cluster(snapshots={"store": {"volumeClaim": None, "ephemeral": {}}}), namespace=namespace)
    assert store() == {"ephemeral": {}}
    apply(server, cluster(snapshots={}), namespace=namespace)
    assert store() == {"volumeClaim": {"size": "8Gi", "storageClassName": ""}}
    server.kubectl("delete", "mcl", "demo", "-n", namespace)
    both = ["--server-side", "--field-manager=test"]
    apply(server, cluster(), *both, namespace=namespace)
    apply(server, cluster(snapshots={"store": {"ephemeral": {}}}), *both, namespace=namespace)
    assert store() == {"ephemeral": {}}


STATUS = {
    "observedGeneration": 1,
    "phase": "Serving",
    "term": 48211,
    "leader": {"name": "demo-0", "address": "10.1.2.3:50051", "since": "2026-01-01T00:00:00Z"},
    "replicas": 3,
    "readyReplicas": 3,
    "caughtUpReplicas": 2,
    "updatedReplicas": 3,
    "selector": "moonkeeper.dev/cluster=demo",
    "lag": 7,
    "image": "ghcr.io/moonkeeper/moonkeeper:0.1.0",
    "version": "0.1.0",
    "members": [
        {"name": "demo-0", "node": "n1", "role": "primary", "applied": 9001, "lag": 0, "version": "0.1.0"},
        {"name": "demo-1", "role": "unknown"},
    ],
    "oplog": {"durablePrefix": 9001},
    "etcd": {
        "clusterId": "cdf818194e3a8c32",
        "endpoints": ["http://etcd-1:2379", "http://etcd-2:2379"],
        "dbBytes": 25000000,
        "inUseBytes": 20000000,
        "quotaBytes": 2147483648,
        "growthBytesPerSecond": 150,
        "timeLeftSeconds": 14183223,
        "alarms": [],
        "silentEndpoints": ["http://etcd-2:2379"],
    },
    "snapshots": [
        {"id": "s-8800", "sequenceId": 8800, "bytes": 12582912, "holders": ["demo-1"], "at": "2026-01-01T00:00:00Z"},
        {"id": "s-8000", "sequenceId": 8000, "bytes": 12582000, "holders": ["demo-1", "demo-2"]},
    ],
    "lastSnapshot": {"requestId": "a2", "member": "demo-1", "sequenceId": 8800, "result": "Succeeded"},
    "lastFailover": {
        "from": "demo-2",
        "to": "demo-0",
        "reason": "ProcessDied",
        "durationMilliseconds": 140,
        "cleaned": {"clients": 1},
        "at": "2026-01-01T00:00:00Z",
    },
    "lastSwitchover": {"requestId": "a1", "from": "demo-1", "to": "demo-2", "term": 48211, "result": "Succeeded", "durationMilliseconds": 40},
    "conditions": [
        {
            "type": "Ready",
            "status": "True",
            "reason": "Serving",
            "message": "",
            "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
    ],
}


def test_what_kubectl_get_shows(server, namespace):
    apply(server, cluster(), namespace=namespace)
    patch = json.dumps({"status": STATUS})
    server.kubectl("patch", "mcl", "demo", "-n", namespace, "--subresource=status", "--type=merge", "-p", patch)
    assert server.get("mcl", "demo", "-n", namespace)["status"] == STATUS, "a field of the status is not in the schema"

    def table(*options):
        lines = server.kubectl("get", "mcl", "-n", namespace, *options).stdout.splitlines()
        return [line.split() for line in lines]

    head, row = table()
    assert head == ["NAME", "READY", "LEADER", "STANDBYS", "LAG", "PHASE", "AGE"]
    assert row[:-1] == ["demo", "True", "demo-0", "2", "7", "Serving"]
    head, row = table("-o", "wide")
    assert head == ["NAME", "READY", "LEADER", "STANDBYS", "LAG", "PHASE", "AGE", "TERM", "VERSION"]
    assert row[-2:] == ["48211", "0.1.0"]
    # What `kubectl wait`, and tools that follow the same convention, look at.
    server.kubectl("wait", "mcl/demo", "-n", namespace, "--for=condition=Ready", "--timeout=10s")


def test_deleting_all_of_a_namespace_spares_the_clusters(server, namespace):
    """`kubectl delete all --all` is what people type to be rid of pods and Services."""
    apply(server, cluster(), namespace=namespace)
    assert "demo" not in server.kubectl("get", "all", "-n", namespace).stdout


def test_it_can_be_scaled(server, namespace):
    apply(server, cluster(), namespace=namespace)
    server.kubectl("scale", "mcl/demo", "-n", namespace, "--replicas=5")
    assert server.get("mcl", "demo", "-n", namespace)["spec"]["replicas"] == 5
    refused = server.kubectl("scale", "mcl/demo", "-n", namespace, "--replicas=8", check=False)
    assert refused.returncode != 0 and "should be less than or equal to 7" in refused.stderr


def test_every_field_is_explained(server, definition):
    (version,) = definition["spec"]["versions"]

    def look(schema, path):
        for name, field in schema.get("properties", {}).items():
            # A field that is passed on is explained as a whole.
            assert field.get("description") or path.endswith("[]"), f"{path}.{name} has no description"
            look(field, f"{path}.{name}")

    for part in ("spec", "status"):
        schema = version["schema"]["openAPIV3Schema"]["properties"][part]
        schema["properties"].get("conditions", {}).pop("items", None)
        look(schema, part)
    assert "leaseTTL" in server.kubectl("explain", "mcl.spec.failover").stdout
