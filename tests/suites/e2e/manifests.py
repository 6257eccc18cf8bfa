"""Objects that the scenarios need besides ours, as Python values; JSON is YAML."""

import json

from images import ETCD


def text(*objects):
    """For `kubectl apply -f -`."""
    return "\n---\n".join(map(json.dumps, objects))


def etcd(node=None, name="etcd"):
    """One etcd with its data in the pod, which outlives its container; on a node that is never cut off."""
    urls = ["--listen-client-urls=http://0.0.0.0:2379", f"--advertise-client-urls=http://{name}:2379"]
    # The id of an etcd cluster follows from its members' URLs and this token: without it, two of these have the same.
    flags = ["--data-dir=/data/etcd", f"--initial-cluster-token={name}", *urls]
    container = {
        "name": "etcd",
        "image": ETCD,
        "imagePullPolicy": "IfNotPresent",
        "args": [*flags, "--log-level=warn"],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 2379}, "periodSeconds": 1},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    pod = {
        "automountServiceAccountToken": False,
        # Variables that the programs would take for settings of theirs.
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        # As the namespace of install.yaml asks for.
        "securityContext": {"runAsNonRoot": True, "fsGroup": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
        "volumes": [{"name": "data", "emptyDir": {}}],
    }
    if node:
        pod["nodeSelector"] = {"kubernetes.io/hostname": node}
    return [
        service(name, {"app": name}, client=2379),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": 1,
                "serviceName": name,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        },
    ]


def service(name, selector, headless=False, **ports):
    spec = {"selector": selector, "ports": [{"name": each, "port": port} for each, port in ports.items()]}
    if headless:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def idle(image, name, labels):
    """A pod that does nothing for anyone: a master without replication."""
    container = {
        "name": "master",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["master"],
        "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels}, "spec": spec}


def masters_by_hand(image, cluster_id, count=3, name="masters"):
    """Masters that replicate through etcd, without an operator."""
    labels = {"app": name}

    def field(name, path):
        return {"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}}

    flags = ["--enable_ha=true", "--etcd_endpoints=etcd:2379", f"--cluster_id={cluster_id}", "--member_name=$(POD_NAME)"]
    container = {
        "name": "master",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "args": ["master", *flags],
        "env": [field("POD_NAME", "metadata.name"), field("POD_IP", "status.podIP")],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 9003}, "periodSeconds": 1},
        "securityContext": {"readOnlyRootFilesystem": True, "allowPrivilegeEscalation": False},
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": labels},
    }
    pod = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": {"runAsNonRoot": True},
        "topologySpreadConstraints": [spread],
        "containers": [container],
    }
    return [
        service(name, labels, headless=True, rpc=50051),
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": name},
            "spec": {
                "replicas": count,
                "serviceName": name,
                "podManagementPolicy": "Parallel",
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": pod},
            },
        },
    ]
