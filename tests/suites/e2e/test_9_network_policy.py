"""Who reaches which port of a master, probed from pods, with the NetworkPolicy of the operator enforced. docs/security.md has the
same table."""

from dataclasses import dataclass

import pytest

import manifests
from images import MOONKEEPER
from masterclusters import Resource, etcd_of, mastercluster
from pods import ADMIN_PORT, HTTP_PORT, RPC_PORT, PodMasters
from scenario_namespace import Space
from waiting import wait_until

pytestmark = pytest.mark.policies

PEER_PORT, METADATA_PORT = 9005, 8080
PORTS = [RPC_PORT, METADATA_PORT, HTTP_PORT, ADMIN_PORT, PEER_PORT]
NAMED = {"role": "inference"}
CLIENTS = [{"podSelector": {"matchLabels": NAMED}}]
# Who tries.
NAMED_CLIENT, OTHER_POD, STRANGER, MASTER, OPERATOR = (
    "a client that `clients` names",
    "another pod of the namespace",
    "a pod of another namespace",
    "a master of the cluster",
    "the operator",
)
ALL = {NAMED_CLIENT, OTHER_POD, STRANGER, MASTER, OPERATOR}
# Whom a port lets in.
CLIENTS_NAMED = {
    RPC_PORT: {NAMED_CLIENT},
    METADATA_PORT: {NAMED_CLIENT},
    HTTP_PORT: ALL,
    ADMIN_PORT: {OPERATOR},
    PEER_PORT: {MASTER},
}
NO_CLIENTS_NAMED = CLIENTS_NAMED | {RPC_PORT: ALL, METADATA_PORT: ALL}
NO_POLICY = {port: ALL for port in PORTS}
# Bounds a hang; a network takes some seconds to enforce what was changed.
ENFORCED_SECONDS = 90


@dataclass
class Guarded:
    """A MasterCluster whose clients are named, and a pod for each that tries to reach its masters."""

    resource: Resource
    masters: PodMasters
    sources: dict

    def open(self):
        """By port: who gets a connection with all masters. Whom some let in and others do not is named with a question mark."""
        everywhere = [each.ip for each in self.masters.all()]
        # A standby does not listen for clients.
        listening = {port: everywhere for port in PORTS} | {RPC_PORT: [self.masters.wait_until_serving().ip]}
        found = {port: set() for port in PORTS}
        for who, pod in self.sources.items():
            own = pod["status"]["podIP"]
            targets = {port: {(each, port) for each in listening[port] if each != own} for port in PORTS}
            reached = self.masters.cluster.reached(pod, set().union(*targets.values()))
            for port in PORTS:
                if targets[port] & reached:
                    found[port].add(who if targets[port] <= reached else f"{who}?")
        return found

    def wait_until_open(self, wanted):
        """Until exactly these get connections."""
        try:
            wait_until(lambda: self.open() == wanted, "the NetworkPolicy to be enforced", ENFORCED_SECONDS)
        except AssertionError as error:
            found = self.open()
            wrong = [f"{port}: {sorted(found[port])}, not {sorted(wanted[port])}" for port in PORTS if found[port] != wanted[port]]
            raise AssertionError(f"{error}; these reach port " + "; ".join(wrong)) from None


@pytest.fixture(scope="module")
def guarded(operator, cluster, space, artifacts):
    elsewhere = Space(cluster, f"{space.name}-elsewhere", artifacts / "9-network-policy-elsewhere", space.seed)
    elsewhere.apply(manifests.idle(MOONKEEPER, "stranger", NAMED))
    space.apply(manifests.idle(MOONKEEPER, "named", NAMED), manifests.idle(MOONKEEPER, "other", {"role": "training"}))
    etcd = space.start_etcd()
    policy = {"clients": CLIENTS}
    space.apply(mastercluster(etcd=etcd_of(space), networkPolicy=policy, metadataServer={"enabled": True}))
    resource = Resource(space)
    resource.wait_until_ready()
    masters = space.masters(resource.selector, resource.cluster_id, etcd)
    masters.wait_until_redundant()
    for where, name in [(space, "named"), (space, "other"), (elsewhere, "stranger")]:
        where.kubectl("wait", "--for=condition=Ready", f"pod/{name}", "--timeout=60s")
    sources = {
        NAMED_CLIENT: space.get("pod", "named"),
        OTHER_POD: space.get("pod", "other"),
        # With the label that `clients` names: that of another namespace does not count.
        STRANGER: elsewhere.get("pod", "stranger"),
        # Not the primary, whose port for clients it tries.
        MASTER: next(each for each in masters.all() if each.uid != masters.wait_until_serving().uid).pod,
        OPERATOR: operator.leader(),
    }
    yield Guarded(resource, masters, sources)
    elsewhere.close()


@pytest.mark.scenario("9", "who reaches which port, with `networkPolicy.clients`")
def test_clients_are_named(guarded):
    guarded.wait_until_open(CLIENTS_NAMED)


@pytest.mark.scenario("9", "the same without `networkPolicy.clients`")
def test_no_clients_are_named(guarded):
    guarded.resource.patch({"networkPolicy": {"clients": []}})
    guarded.wait_until_open(NO_CLIENTS_NAMED)
    guarded.resource.patch({"networkPolicy": {"clients": CLIENTS}})
    guarded.wait_until_open(CLIENTS_NAMED)


@pytest.mark.scenario("9", "`networkPolicy.enabled: false`: the policy is deleted, every port is open; then it is made again")
def test_without_the_policy(guarded):
    """What was closed was closed by the policy alone."""
    guarded.resource.patch({"networkPolicy": {"enabled": False, "clients": []}})
    guarded.wait_until_open(NO_POLICY)
    assert guarded.resource.space.get("networkpolicy", "demo") is None
    guarded.resource.patch({"networkPolicy": {"enabled": True, "clients": CLIENTS}})
    guarded.wait_until_open(CLIENTS_NAMED)
