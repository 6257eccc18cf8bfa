"""What the API server refuses, and what it says then. Every rule of the definition has a bad example here that meets
this one rule, and good ones beside it."""

import pytest

from conftest import apply, cluster, try_to_create

HTTPS = {"endpoints": ["https://etcd:2379"]}


def etcd(*endpoints, **more):
    return {"etcd": {"endpoints": list(endpoints)} | more}


def failover(**fields):
    return {"failover": fields}


def store(**fields):
    return {"store": fields}


def snapshots(**fields):
    return {"snapshots": fields}


def pod(**fields):
    return {"podTemplate": fields}


# (what is in the message, good specs, bad specs); `name` is that of the resource.
RULES = {
    "the name must begin with a letter": (
        [{"name": "a"}, {"name": "a" * 52}, {"name": "a-1"}],
        [{"name": "a" * 53}, {"name": "1a"}, {"name": "a.b"}],
    ),
    "the target of a switchover is one of the pods": (
        [{"switchover": {"target": "demo-0", "requestId": "a"}}, {"switchover": {"target": "demo-6", "requestId": "a"}}],
        [
            {"switchover": {"target": "demo", "requestId": "a"}},
            {"switchover": {"target": "demo-7", "requestId": "a"}},
            {"switchover": {"target": "other-0", "requestId": "a"}},
        ],
    ),
    "a target alone asks for nothing": (
        [{"switchover": {"requestId": "2026-01-01T00:00:00Z"}}],
        [{"switchover": {"target": "demo-0"}}],
    ),
    "oplog is the name that logs are kept under": ([{"clusterId": "oplog_"}], [{"clusterId": "oplog"}]),
    "the tag or digest of an image belongs in image.tag": (
        [{"image": {"repository": "localhost:5000/a/b", "tag": "1"}}, {"image": {"repository": "m"}}],
        [{"image": {"repository": "a/b:1"}}, {"image": {"repository": "b@sha256:00"}}],
    ),
    "an https:// endpoint needs tlsSecretName": (
        [etcd("https://etcd:2379", tlsSecretName="tls")],
        [etcd("https://etcd:2379"), etcd("http://a:1", "https://b:1")],
    ),
    "with tlsSecretName every endpoint must begin with https://": (
        [etcd("https://a:1", "https://b:1", tlsSecretName="tls")],
        [etcd("http://a:1", tlsSecretName="tls"), etcd("https://a:1", "http://b:1", tlsSecretName="tls")],
    ),
    "softPinTTL can be at most 24h": ([store(softPinTTL="24h")], [store(softPinTTL="24h1s")]),
    "clientTTL is 1s or more, in whole seconds": (
        [store(clientTTL="1s"), store(clientTTL="1m30s"), store(clientTTL="2000ms")],
        [store(clientTTL="0s"), store(clientTTL="500ms"), store(clientTTL="1.5s")],
    ),
    "leaseTTL is 2s to 60s, in whole seconds": (
        [failover(leaseTTL="2s", keepAliveInterval="500ms"), failover(leaseTTL="1m")],
        [failover(leaseTTL="1s", keepAliveInterval="100ms"), failover(leaseTTL="61s"), failover(leaseTTL="5500ms")],
    ),
    "keepAliveInterval must be greater than 0": (
        [failover(keepAliveInterval="1ms")],
        [failover(keepAliveInterval="0s")],
    ),
    "keepAliveInterval must fit twice into leaseTTL": (
        # Less 500 ms below 5 s, less a tenth above, as the master counts.
        [
            failover(leaseTTL="5s", keepAliveInterval="2250ms"),
            failover(leaseTTL="2s", keepAliveInterval="750ms"),
            failover(leaseTTL="20s", keepAliveInterval="9s"),
        ],
        [
            failover(leaseTTL="5s", keepAliveInterval="2251ms"),
            failover(leaseTTL="2s", keepAliveInterval="751ms"),
            failover(leaseTTL="20s", keepAliveInterval="9001ms"),
        ],
    ),
    "inheritedClientTTL must be greater than 0": (
        [failover(inheritedClientTTL="1ms")],
        [failover(inheritedClientTTL="0s")],
    ),
    "leaseSyncInterval must be greater than 0": (
        [{"replication": {"leaseSyncInterval": "1ms"}}],
        [{"replication": {"leaseSyncInterval": "0ms"}}],
    ),
    "interval is 10s to 24h": (
        [snapshots(interval="10s"), snapshots(interval="24h")],
        [snapshots(interval="9999ms"), snapshots(interval="0s"), snapshots(interval="24h1s")],
    ),
    "store is either volumeClaim, which is the default, or ephemeral": (
        [snapshots(store={"volumeClaim": {"size": "1.5Ti"}}), snapshots(store={"ephemeral": {}})],
        [snapshots(store={}), snapshots(store={"volumeClaim": {}, "ephemeral": {}})],
    ),
    "size must be greater than 0": (
        [snapshots(store={"volumeClaim": {"size": "1"}})],
        [snapshots(store={"volumeClaim": {"size": "0Gi"}})],
    ),
    "labels that begin with moonkeeper.dev/ and app.kubernetes.io/": (
        [pod(labels={"team": "a", "example.com/moonkeeper.dev": "b"})],
        [pod(labels={"moonkeeper.dev/role": "primary"}), pod(labels={"app.kubernetes.io/name": "x"})],
    ),
    "annotations that begin with moonkeeper.dev/": (
        [pod(annotations={"example.com/a": "b"})],
        [pod(annotations={"moonkeeper.dev/config-hash": "0"})],
    ),
    "POD_IP, POD_NAME and MOONKEEPER_ETCD_USER are set by the operator": (
        [pod(env=[{"name": "MOONKEEPER_V", "value": "1"}])],
        [pod(env=[{"name": name, "value": "x"}]) for name in ("POD_IP", "POD_NAME", "MOONKEEPER_ETCD_USER")],
    ),
    "config, data, admin, admin-tls, etcd-tls and etcd-credentials are volumes": (
        [pod(volumes=[{"name": "more", "emptyDir": {}}])],
        [
            pod(volumes=[{"name": name, "emptyDir": {}}])
            for name in ("config", "data", "admin", "admin-tls", "etcd-tls", "etcd-credentials")
        ],
    ),
    "the container called master is the operator's own": (
        [pod(containers=[{"name": "side", "image": "a"}])],
        [pod(containers=[{"name": "master", "image": "a"}])],
    ),
    "clients are only let through or kept out when the policy is enabled": (
        [{"networkPolicy": {"enabled": False}}, {"networkPolicy": {"enabled": True, "clients": [{"podSelector": {}}]}}],
        [{"networkPolicy": {"enabled": False, "clients": [{"podSelector": {}}]}}],
    ),
}

# Looks at what was there before, so it has tests of its own.
IMMUTABLE = "clusterId names the log in etcd and cannot be changed"

# What patterns, ranges and lists of words refuse: (what is in the message, bad spec).
SHAPES = [
    ("spec.etcd: Required value", {"etcd": None}),
    ("spec.etcd.endpoints", etcd()),
    ("spec.etcd.endpoints[0]", etcd("etcd:2379")),
    ("spec.etcd.endpoints[0]", etcd("http://etcd")),
    ("spec.etcd.endpoints[0]", etcd("http://a:1;http://b:1")),
    ("spec.etcd.endpoints[1]: Duplicate value", etcd("http://a:1", "http://a:1")),
    ("spec.replicas", {"replicas": 0}),
    ("spec.replicas", {"replicas": 8}),
    ("spec.clusterId", {"clusterId": ""}),
    ("spec.clusterId", {"clusterId": "Demo"}),
    ("spec.clusterId", {"clusterId": "a/b"}),
    ("spec.clusterId", {"clusterId": "a" * 64}),
    ("spec.image.tag", {"image": {"tag": "a b"}}),
    ("spec.image.pullPolicy", {"image": {"pullPolicy": "Sometimes"}}),
    ("spec.resources.requests.cpu", {"resources": {"requests": {"cpu": "much"}}}),
    ("spec.store.leaseTTL", store(leaseTTL="10")),
    ("spec.store.leaseTTL", store(leaseTTL="-1s")),
    ("spec.store.leaseTTL", store(leaseTTL="soon")),
    ("spec.store.leaseTTL", store(leaseTTL=10)),
    ("spec.store.evictionRatio", store(evictionRatio="1.5")),
    ("spec.store.evictionRatio", store(evictionRatio="five")),
    ("spec.store.evictionHighWatermark", store(evictionHighWatermark="2")),
    ("spec.snapshots.keep", snapshots(keep=1)),
    ("spec.snapshots.keep", snapshots(keep=9)),
    ("spec.snapshots.interval", snapshots(interval="10")),
    ("spec.snapshots.store.volumeClaim.size", snapshots(store={"volumeClaim": {"size": "much"}})),
    ("spec.snapshots.store.volumeClaim.size", snapshots(store={"volumeClaim": {"size": "-1Gi"}})),
    ("spec.promotion.expired", {"promotion": {"expired": "keep"}}),
    ("spec.replication.durability", {"replication": {"durability": "Lax"}}),
    ("spec.scheduling.spread", {"scheduling": {"spread": "Always"}}),
    ("spec.deletionPolicy", {"deletionPolicy": "Forget"}),
    ("spec.switchover.requestId", {"switchover": {"requestId": "a b"}}),
    # Fields whose step does not exist yet are refused, not passed over.
    ('unknown field "spec.snapshots.store.s3"', snapshots(store={"s3": {"bucket": "b"}})),
    ('unknown field "spec.oplog"', {"oplog": {"maxBytes": "128Mi"}}),
    ('unknown field "spec.update"', {"update": {"strategy": "OnDelete"}}),
    ('unknown field "spec.monitoring"', {"monitoring": {"podMonitor": True}}),
    ('unknown field "spec.etcd.maintenance"', etcd("http://a:1", maintenance="Compact")),
    ('unknown field "spec.replication.onEtcdOutage"', {"replication": {"onEtcdOutage": "Degrade"}}),
]


def create(server, spec):
    """What the API server says to it; an empty text is yes."""
    spec = dict(spec)
    status, answer, warning = try_to_create(server, cluster(spec.pop("name", "demo"), **spec))
    assert not warning, warning
    return "" if status == 201 else answer["message"]


def rules_of(schema):
    """The messages of all rules below here."""
    for rule in schema.get("x-kubernetes-validations", []):
        yield rule["message"]
    for field in schema.get("properties", {}).values():
        yield from rules_of(field)
    if isinstance(schema.get("items"), dict):
        yield from rules_of(schema["items"])


def test_every_rule_has_examples(definition):
    (version,) = definition["spec"]["versions"]
    messages = list(rules_of(version["schema"]["openAPIV3Schema"]))
    tested = [*RULES, IMMUTABLE]
    untested = [message for message in messages if not any(part in message for part in tested)]
    assert not untested
    gone = [part for part in tested if not any(part in message for message in messages)]
    assert not gone


@pytest.mark.parametrize("message", RULES)
def test_rule(server, message):
    good, bad = RULES[message]
    for spec in good:
        assert create(server, spec) == "", spec
    for spec in bad:
        assert message in create(server, spec), spec


@pytest.mark.parametrize("message,spec", SHAPES, ids=[f"{n}-{s[0]}" for n, s in enumerate(SHAPES)])
def test_shape(server, message, spec):
    assert message in create(server, spec)


def test_kubectl_shows_the_message(server):
    done = apply(server, cluster(**failover(leaseTTL="1s")), "--dry-run=server", check=False)
    assert done.returncode != 0 and "spec.failover.leaseTTL" in done.stderr and "2s to 60s" in done.stderr, done.stderr


@pytest.mark.parametrize("before,after", [("a", "b"), ("a", None), (None, "a")])
def test_the_cluster_id_stays(server, namespace, before, after):
    def spec(value, **more):
        return cluster(**({"clusterId": value} if value else {}), **more)

    apply(server, spec(before), namespace=namespace)
    refused = apply(server, spec(after), namespace=namespace, check=False)
    assert refused.returncode != 0 and IMMUTABLE in refused.stderr, refused.stderr
    apply(server, spec(before, replicas=5), namespace=namespace)
