"""What keeps a cluster from working is named in a condition, and nothing keeps it from being deleted."""

import pytest

pytestmark = pytest.mark.timeout(300)


def test_a_wrong_address(operator, space):
    space.make(etcd={"endpoints": ["http://nowhere.invalid:2379"]})
    space.wait_phase("Stalled")
    assert space.condition("EtcdHealthy")["status"] == "False"
    assert "nowhere.invalid" in space.condition("Ready")["message"]
    space.patch({"etcd": {"endpoints": [space.etcd.endpoint]}})
    space.wait_phase("Starting")


def test_a_missing_secret(operator, space):
    space.make(etcd={"endpoints": [space.etcd.endpoint.replace("http", "https")], "tlsSecretName": "not-made"})
    space.wait_phase("Stalled")
    ready = space.condition("Ready")
    assert ready["reason"] == "SecretNotFound" and "not-made" in ready["message"]
    space.kubectl("create", "secret", "generic", "not-made", "--from-literal=tls.crt=x")
    space.wait(lambda: space.condition("Ready")["reason"] == "SecretIncomplete", "the next complaint")
    assert "ca.crt" in space.condition("Ready")["message"]


def test_a_wrong_image(operator, space):
    space.make()
    space.make_pods()
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
    container = {"name": "master", "image": "m:never-built", "imageID": "", "ready": False, "restartCount": 0}
    space.pod_status("demo-1", {"phase": "Pending", "containerStatuses": [container | {"state": waiting}]})
    space.wait_phase("Stalled")
    assert space.condition("Stalled")["reason"] == "ImagePullBackOff"
    assert "never-built" in space.condition("Ready")["message"]
    assert "demo-1" in space.condition("Ready")["message"]


def test_two_resources_that_name_one_log(operator, space):
    space.make("first", clusterId="shared")
    space.wait_phase("Starting", "first")
    space.make("second", clusterId="shared", deletionPolicy="Delete")
    space.wait_phase("Stalled", "second")
    ready = space.condition("Ready", "second")
    assert ready["reason"] == "ClusterIdTaken" and "first" in ready["message"]
    assert space.get("sts", "second") is None
    assert space.status("first")["phase"] == "Starting"
    # It is free when the other one is gone.
    space.kubectl("delete", "mcl", "first")
    space.wait_phase("Starting", "second")


def test_older_pods_are_named(operator, space):
    space.settle()
    primary = space.wait_labelled()
    space.set_revision("demo", "rev-2")
    space.wait(lambda: space.condition("UpToDate").get("status") == "False", "the condition")
    message = space.condition("UpToDate")["message"]
    assert all(pod in message for pod in space.roles())
    # The primary's turn is last.
    assert message.index(primary) == max(message.index(pod) for pod in space.roles())
    assert space.condition("Ready")["status"] == "True"


def let_lead(space, pod):
    if space.wait_labelled() != pod:
        space.patch({"switchover": {"requestId": f"to-{pod}", "target": pod}})
        space.wait(lambda: space.primary() == pod and space.wait_labelled() == pod, f"{pod} to lead")


def crash_loop(space, pod):
    """Its master ends, and its kubelet says that it does so again and again."""
    space.masters[pod].kill()
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    container = {"name": "master", "image": "m", "imageID": "", "ready": False, "restartCount": 5, "state": state}
    conditions = [{"type": "Ready", "status": "False"}]
    space.pod_status(pod, {"containerStatuses": [container], "conditions": conditions})


def test_one_standby_in_a_crash_loop_leaves_the_cluster_ready(operator, space):
    space.settle()
    primary = space.wait_labelled()
    standby = next(pod for pod in sorted(space.roles()) if pod != primary)
    crash_loop(space, standby)
    message = lambda: space.condition("Progressing").get("message", "")  # noqa: E731
    space.wait(lambda: f"{standby}: crash-looping" in message(), "the standby to be named")
    space.wait_phase("Degraded")
    assert space.condition("Ready")["status"] == "True" and space.condition("Stalled")["status"] == "False"


def test_fewer_masters_never_end_the_last_caught_up_standby(operator, space):
    space.settle()
    let_lead(space, "demo-0")
    space.masters["demo-1"].kill()
    space.wait_status(lambda status: status.get("caughtUpReplicas") == 1, "demo-1 to be behind")
    space.patch({"replicas": 2})
    message = lambda: space.condition("Progressing").get("message", "")  # noqa: E731
    space.wait(lambda: "demo-1 to catch up" in message() and "demo-2" in message(), "the reason to wait")
    assert space.get("sts", "demo")["spec"]["replicas"] == 3
    space.start_master("demo-1")
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 2, "the StatefulSet to become smaller")


def test_fewer_masters_never_end_the_one_that_serves(operator, space):
    space.settle()
    let_lead(space, "demo-2")
    space.patch({"replicas": 1})
    space.wait(lambda: "demo-2" in space.condition("Progressing").get("message", ""), "the reason to wait")
    assert space.get("sts", "demo")["spec"]["replicas"] == 3
    space.patch({"switchover": {"requestId": "down", "target": "demo-0"}})
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 1, "the StatefulSet to become smaller")
    assert space.primary() == "demo-0"
