"""Which etcd a cluster's endpoints lead to: a short name is one of the cluster's namespace, another etcd than the one with
the log is refused, and masters get no endpoints that have not answered."""

import subprocess
import time

import pytest

from stores import Etcd

pytestmark = pytest.mark.timeout(300)


def service_labels(space):
    return space.get("service", "demo-leader")["spec"]["selector"], space.roles()


def test_endpoints_of_another_etcd_are_refused(operator, space, tmp_path):
    space.settle()
    primary = space.wait_labelled()
    before = service_labels(space), space.get("sts", "demo")["spec"], space.names("configmap")
    folder = tmp_path / "other"
    folder.mkdir()
    other = Etcd(folder, "n")
    try:
        space.patch({"etcd": {"endpoints": [other.endpoint]}})
        space.wait_phase("Stalled")
        stalled = space.condition("Stalled")
        known = space.status()["etcd"]["clusterId"]
        assert stalled["reason"] == "OtherEtcd" and known in stalled["message"]
        assert (service_labels(space), space.get("sts", "demo")["spec"], space.names("configmap")) == before
        assert other.keys() == [] and space.primary() == primary
        # The connection from before shows the next primary.
        space.masters[primary].kill()
        space.wait(lambda: space.primary() not in (None, primary), "another primary")
        space.wait_labelled()
        assert space.condition("Stalled")["reason"] == "OtherEtcd" and other.keys() == []
        space.start_master(primary)
        space.patch({"etcd": {"endpoints": [space.etcd.endpoint]}})
        space.wait_phase("Serving")
        # The same etcd at another address is no other one.
        space.patch({"etcd": {"endpoints": [f"http://localhost:{space.etcd.port}"]}})
        space.wait(lambda: len(space.names("configmap")) == 2, "the file with the new address")
        assert space.condition("Stalled")["status"] == "False" and space.status()["etcd"]["clusterId"] == known
    finally:
        other.end()


def test_endpoints_that_do_not_answer_reach_no_master(start_operator, space, tmp_path):
    """They may lead to another etcd, in which pods that are made with them would begin another log."""
    first = start_operator()
    space.settle()
    old = space.wait_labelled()
    of_masters = lambda: (space.get("sts", "demo")["spec"], space.names("configmap"))  # noqa: E731
    before = of_masters()
    folder = tmp_path / "other"
    folder.mkdir()
    other = Etcd(folder, "n")
    other.stop()

    def is_repaired():
        uid = space.get("service", "demo-leader")["metadata"]["uid"]
        space.kubectl("delete", "service", "demo-leader")
        again = lambda: (space.get("service", "demo-leader") or {"metadata": {"uid": uid}})["metadata"]["uid"] != uid  # noqa: E731
        return space.wait(again, "the Service to be made again")

    try:
        space.patch({"etcd": {"endpoints": [other.endpoint]}, "store": {"leaseTTL": "11s"}})
        reason = lambda: space.condition("Progressing").get("reason")  # noqa: E731
        space.wait(lambda: reason() == "EndpointsUnverified", "the reason to be named")
        assert is_repaired() and of_masters() == before
        space.masters[old].kill()
        space.wait(lambda: space.primary() not in (None, old), "another primary")
        space.wait_labelled()
        # Without a connection from before.
        first.kill()
        second = start_operator().wait_until_leading()
        waits = lambda: "etcd to answer at spec.etcd.endpoints" in space.condition("Progressing").get("message", "")  # noqa: E731
        space.wait(waits, "the reason to wait")
        assert is_repaired() and of_masters() == before
        other.start()
        space.wait(lambda: space.condition("Stalled").get("reason") == "OtherEtcd", "the refusal")
        assert of_masters() == before and other.keys() == []
        space.start_master(old)
        space.patch({"etcd": {"endpoints": [space.etcd.endpoint]}})
        space.wait(lambda: len(space.names("configmap")) == 2, "the other setting to be applied")
        space.wait_phase("Serving")
        assert space.status()["etcd"]["endpoints"] == [space.etcd.endpoint] and second.leads()
    finally:
        other.end()


def test_a_short_name_is_one_of_the_cluster(space, start_operator, tmp_path):
    """Masters resolve it in their namespace. In that of the operator the same name is another host."""
    hosts = tmp_path / "hosts"
    hosts.write_text(f"127.0.0.1 localhost etcd.{space.name}.svc etcd-0.etcd.{space.name}.svc\n127.0.0.2 etcd etcd-0.etcd\n")
    subprocess.run(["unshare", "--mount", "true"], check=True, timeout=10)
    start_operator(hosts=hosts)
    for name, host in (("short", "etcd"), ("pod", "etcd-0.etcd")):
        space.make(name, etcd={"endpoints": [f"http://{host}:{space.etcd.port}"]})
        space.wait_phase("Starting", name)
        assert space.condition("EtcdHealthy", name)["status"] == "True"


def test_a_missing_secret_does_not_blind_the_operator(operator, space):
    """A connection that works goes on to be used, and the label follows the primary."""
    space.settle_with_login("secret")
    old = space.wait_labelled()
    space.kubectl("delete", "secret", "login")
    space.kubectl("annotate", "mcl", "demo", "touched=yes")
    space.wait_phase("Stalled")
    assert space.condition("Stalled")["reason"] == "SecretNotFound"
    space.masters[old].kill()
    space.wait(lambda: space.primary() not in (None, old), "another primary")
    space.wait_labelled()
    space.write_login("secret")
    space.wait_status(lambda status: status.get("phase") != "Stalled", "the Secret to be found")


def test_a_password_that_etcd_does_not_know_yet_does_not_blind_the_operator(operator, space):
    """It is in the Secret first, so that masters have it when etcd changes it."""
    space.settle_with_login("secret")
    old = space.wait_labelled()
    space.write_login("next")
    space.kubectl("annotate", "mcl", "demo", "touched=yes")
    space.wait(lambda: space.condition("Progressing").get("reason") == "SecretsNotAccepted", "the reason to be named")
    assert space.condition("Ready")["status"] == space.condition("EtcdHealthy")["status"] == "True"
    # Not one attempt after the other: each costs etcd the check of a password.
    passes = operator.passes()
    time.sleep(5)
    assert operator.passes() - passes < 5
    space.masters[old].kill()
    space.wait(lambda: space.primary() not in (None, old), "another primary")
    space.wait_labelled()
    space.etcd.change_password("next")
    space.wait(lambda: space.condition("Progressing").get("reason") != "SecretsNotAccepted", "the new password to be used")
    assert space.condition("EtcdHealthy")["status"] == "True"
    space.start_master(old)
    space.wait_phase("Serving")
