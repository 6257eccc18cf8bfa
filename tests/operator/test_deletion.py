"""A resource that is deleted goes, whatever etcd does, and takes its keys with it only if that was asked for."""

import pytest

pytestmark = pytest.mark.timeout(300)


def gone(space):
    space.wait(lambda: space.get("mcl", "demo") is None, "the resource to go", 150)


def delete(space):
    assert space.get("mcl", "demo")["metadata"]["finalizers"] == ["moonkeeper.dev/etcd-keys"]
    space.kubectl("delete", "mcl", "demo", "--wait=false")


def end_masters(space):
    """What the StatefulSet controller does when there shall be none."""
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 0, "the masters to be ended")
    for pod in list(space.roles()):
        space.masters.pop(pod).terminate()
        space.remove_pod(pod)


def test_retain(operator, space):
    space.settle()
    delete(space)
    gone(space)
    assert any("/oplog/" in key for key in space.etcd.keys())
    assert "KeysKept" in space.events()


def test_delete(operator, space):
    space.settle(deletionPolicy="Delete")
    delete(space)
    space.wait_phase("Deleting")
    assert space.etcd.keys()
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
    delete(space)
    gone(space)
