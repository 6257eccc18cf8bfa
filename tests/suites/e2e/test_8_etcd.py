"""The etcd under a cluster that serves asks who calls: its user is replaced by another one, and its address by that of
another etcd. Clients know the Service of the leader alone: such an etcd lets none of them in."""

import time

import pytest

import cluster_faults
from clusters import KILL
from scenario_judge import Expects
from masterclusters import Resource, etcd_of, mastercluster
from one_client import put_and_get
from pods import RPC_PORT
from scenario_namespace import Demo
from waiting import wait_until

ROLE = "of-masters"
USERS = {"one": "first", "two": "second"}
NEW_PASSWORD = "another"
# Where the operator mounts the Secret of `etcd.credentialsSecretName`.
SECRET_FOLDER = "/etc/moonkeeper-etcd-credentials"
# Longer than a lease of 5 s, which ends unless it is renewed.
LEASE_SECONDS = 7
# Bounds a hang; a kubelet may take over a minute to bring a Secret to its pods.
KUBELET_SECONDS = 180


def login(user, password=None):
    """The Secret with a user of etcd."""
    data = {"username": user, "password": password or USERS[user]}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": data}


def deliver(guarded, secret):
    """Replaces the Secret, and waits until every master has it."""
    space = guarded.space
    space.apply(secret)
    wanted = secret["stringData"]
    # A kubelet brings it when its pod changes, and else about once a minute.
    mark = "-".join(wanted.values())
    space.kubectl("annotate", "pod", "-l", guarded.resource.selector, f"login={mark}", "--overwrite")

    def has_it(pod):
        return all(space.cluster.read_file(pod, f"{SECRET_FOLDER}/{key}") == text for key, text in wanted.items())

    for each in guarded.masters.all():
        wait_until(lambda pod=each.pod: has_it(pod), f"the Secret in {each.name}", KUBELET_SECONDS)


def leader_of(space):
    """The name of the Service of the leader."""
    return f"demo-leader.{space.name}.svc.cluster.local"


@pytest.fixture(scope="module")
def guarded(operator, space):
    """A MasterCluster that logs in to its etcd; its clients know the Service of the leader."""
    etcd = space.start_etcd()
    etcd.require_login(ROLE)
    etcd.add_user("one", USERS["one"], ROLE)
    space.apply(login("one"))
    login_there = {"endpoints": [etcd_of(space)], "credentialsSecretName": "login"}
    space.apply(mastercluster(etcd=login_there, metadataServer={"enabled": True}))
    resource = Resource(space)
    resource.wait_until_ready()
    masters = space.masters(resource.selector, resource.cluster_id, etcd)
    resource.wait_until_settled(masters)
    scene = space.scene(masters, resource=resource, operator=operator, address=f"{leader_of(space)}:{RPC_PORT}")
    return Demo(space, resource, masters, scene)


@pytest.mark.scenario("8", "SIGKILL of the primary's process, clients through the leader's Service")
def test_clients_of_the_service(guarded, row):
    if not guarded.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    done = guarded.scene.round(cluster_faults.process_killed)
    row.measured(done)
    done.check()


@pytest.mark.scenario("8", "the password of etcd's user changed as documented, the Secret first")
def test_another_password(guarded, row):
    if not guarded.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")

    def rotate(scene):
        deliver(guarded, login("one", NEW_PASSWORD))
        struck = time.monotonic()
        guarded.masters.etcd.change_password("one", NEW_PASSWORD)
        time.sleep(LEASE_SECONDS)
        yield struck

    done = guarded.scene.round(rotate, Expects())
    row.measured(done)
    done.check()


@pytest.mark.scenario("8", "etcd's user and password replaced as documented, then the old user deleted")
def test_another_user(guarded, row):
    space, masters = guarded.space, guarded.masters
    if not space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")

    def rotate(scene):
        masters.etcd.add_user("two", USERS["two"], ROLE)
        deliver(guarded, login("two"))
        struck = time.monotonic()
        masters.etcd.delete_user("one")
        time.sleep(LEASE_SECONDS)
        yield struck

    done = guarded.scene.round(rotate, Expects())
    row.measured(done)
    done.check()
    # The operator has logged in again as well: it sees the request, and the label follows.
    report = guarded.resource.switch_over()
    assert report["result"] == "Succeeded", report
    guarded.resource.wait_until_settled(masters)


@pytest.mark.scenario("8", "endpoints of another etcd: refused with a condition, masters go on, also one that restarts")
def test_other_endpoints(guarded, row):
    space, resource = guarded.space, guarded.resource
    if not space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    other = space.start_etcd("other")
    other.require_login(ROLE)
    for user, password in USERS.items():
        other.add_user(user, password, ROLE)

    def elsewhere(scene):
        primary = scene.masters.wait_until_serving()
        standby = next(each for each in scene.masters.all() if each.uid != primary.uid)
        process = scene.cluster.process(standby.pod)
        struck = time.monotonic()
        resource.patch({"etcd": {"endpoints": ["http://other:2379"]}})
        try:
            resource.wait_for("the refusal", lambda status: _stalled(status) == "OtherEtcd")
            process(KILL)
            scene.masters.wait_until_redundant()
            assert _stalled(resource.status()) == "OtherEtcd"
            assert resource.leader_addresses() == [primary.ip]
            yield struck
        finally:
            resource.patch({"etcd": {"endpoints": [etcd_of(space)]}})

    done = guarded.scene.round(elsewhere, Expects(restarts=1, of_primary=False))
    row.measured(done)
    done.check()
    assert other.values("mooncake-store/", prefix=True) == {}
    assert _stalled(resource.status()) is None


@pytest.mark.scenario("8", "a client that asks the masters' metadata server through the leader's Service")
def test_the_metadata_server(guarded, row):
    """The last one: its client takes a segment of memory with it that others may have got places in."""
    leader = leader_of(guarded.space)
    made = put_and_get(guarded.space, "metadata", f"{leader}:{RPC_PORT}", metadata=f"http://{leader}:8080/metadata")
    row.acknowledged, row.lost = made
    assert row.lost == 0


def _stalled(status):
    """The reason, if the condition is True."""
    found = {each["type"]: each for each in status.get("conditions", [])}.get("Stalled", {})
    return found.get("reason") if found.get("status") == "True" else None
