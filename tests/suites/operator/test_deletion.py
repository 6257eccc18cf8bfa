"""A resource that is deleted goes, whatever etcd does, and takes its keys with it only if that was asked for."""

import json

import pytest

pytestmark = pytest.mark.timeout(300)


def gone(space):
    space.wait(lambda: space.get("mcl", "demo") is None, "the resource to go", 150)


def finalizers(space):
    return space.get("mcl", "demo")["metadata"].get("finalizers", [])


def delete(space):
    assert finalizers(space) == ["moonkeeper.dev/etcd-keys"]
    space.kubectl("delete", "mcl", "demo", "--wait=false")


def end_pods(space):
    """What kubelets do when there shall be no master."""
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 0, "the masters to be ended")
    for pod in list(space.roles()):
        space.masters.pop(pod).terminate()
        space.remove_pod(pod)


def end_masters(space):
    """Then the StatefulSet controller confirms that none is left."""
    end_pods(space)
    space.set_replicas("demo", 0)


def left(space):
    """What the event about keys that stay says."""
    return [each["note"] for each in space.get("events.events.k8s.io")["items"] if each["reason"] == "KeysLeft"]


def test_retain(operator, space):
    space.settle()
    assert finalizers(space) == []
    space.kubectl("delete", "mcl", "demo")
    assert any("/oplog/" in key for key in space.etcd.keys())


def test_the_operator_is_uninstalled_first(server, operator, space):
    """Nothing that the operator leaves behind waits for it: neither the resource nor the definition."""
    space.make()
    space.wait(lambda: space.get("sts", "demo"), "the StatefulSet")
    operator.kill()
    space.kubectl("delete", "mcl", "demo", "--timeout=20s")
    space.make()
    try:
        server.kubectl("delete", "crd", "masterclusters.moonkeeper.dev", "--timeout=20s")
    finally:
        server.install_definition()
    assert space.get("mcl", "demo") is None


def test_the_finalizer_follows_the_policy(operator, space):
    space.make(deletionPolicy="Delete")
    space.wait(lambda: finalizers(space), "the finalizer to be set")
    space.patch({"deletionPolicy": "Retain"})
    space.wait(lambda: not finalizers(space), "the finalizer to be taken off")
    space.patch({"deletionPolicy": "Delete"})
    space.wait(lambda: finalizers(space), "the finalizer to be set again")


def test_delete_while_a_stranger_leads(operator, space):
    """Masters that were started elsewhere with the same id keep their log."""
    space.settle(deletionPolicy="Delete", failover={"leaseTTL": "2s", "keepAliveInterval": "500ms"})
    stranger = space.start_master("stranger")
    delete(space)
    end_masters(space)
    gone(space)
    assert space.primary() == "stranger" and any("/oplog/" in key for key in space.etcd.keys())
    [note] = left(space)
    assert "stranger at 127.0.0.1" in note
    assert stranger.status()["role"] == "primary"


def test_delete_of_another_log(operator, space):
    """A log that appeared under the same id is not the one that this cluster's masters wrote."""
    space.settle(deletionPolicy="Delete")
    delete(space)
    end_masters_of_another_log(space)
    gone(space)
    assert any("/oplog/" in key for key in space.etcd.keys())
    assert "wrote" in left(space)[0]


def end_masters_of_another_log(space):
    """Ends the masters and puts another end of the log there before the operator hears that they are gone."""
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 0, "the masters to be ended")
    for master in space.masters.values():
        master.terminate()
    key = f"mooncake-store/oplog/{space.name}-demo/latest"
    latest = json.loads(space.etcd.get(key)) | {"log": "7"}
    space.etcd.put(key, json.dumps(latest))
    for pod in list(space.roles()):
        space.masters.pop(pod)
        space.remove_pod(pod)
    space.set_replicas("demo", 0)


def test_delete(operator, space):
    space.settle(deletionPolicy="Delete")
    delete(space)
    space.wait_phase("Deleting")
    assert space.etcd.keys()
    end_pods(space)
    # No pod is seen any more, but the StatefulSet's controller counts one.
    space.set_replicas("demo", 1)
    message = lambda: space.condition("Progressing").get("message", "")  # noqa: E731
    space.wait(lambda: "1 masters of the StatefulSet" in message(), "the reason to wait")
    assert any("/oplog/" in key for key in space.etcd.keys())
    space.set_replicas("demo", 0)
    gone(space)
    assert space.etcd.keys() == []
    assert "KeysDeleted" in space.events()


def test_delete_without_the_secret(operator, space):
    """The connection that was made with it still works."""
    space.settle_with_login("secret", deletionPolicy="Delete")
    space.kubectl("delete", "secret", "login")
    delete(space)
    end_masters(space)
    gone(space)
    assert space.etcd.keys() == []
    assert "KeysDeleted" in space.events()


def test_delete_without_etcd(operator, space):
    space.settle(deletionPolicy="Delete")
    space.etcd.stop()
    delete(space)
    end_masters(space)
    gone(space)
    assert "KeysLeft" in space.events()
    space.etcd.start()


def test_delete_of_one_that_never_worked(operator, space):
    space.make(etcd={"endpoints": ["https://etcd:1"], "tlsSecretName": "not-made"})
    space.wait_phase("Stalled")
    space.kubectl("delete", "mcl", "demo", "--timeout=20s")
