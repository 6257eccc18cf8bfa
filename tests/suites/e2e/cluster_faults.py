"""What goes wrong in a cluster. Each fault is a generator: it does the harm, yields the moment at which it struck, and is
resumed to repair what does not repair itself. `expects` says what has to come of it."""

import time

from clusters import CONTINUE, KILL, STOP
from scenario_judge import DIED, HANDED_OVER, LEASE_ENDED, Expects
from waiting import wait_until


def expecting(*words, **more):
    """Says of a fault what has to come of it."""

    def mark(fault):
        fault.expects = Expects(*words, **more)
        return fault

    return mark


# A node is called NotReady after 20 s of silence in the local cluster, 40 s elsewhere.
NODE_SECONDS = 120


@expecting(DIED, restarts=1, before_lease_ends=True)
def process_killed(scene):
    """SIGKILL of the primary's process; its pod stays, and the container is started again."""
    process = scene.cluster.process(scene.masters.wait_until_serving().pod)
    struck = time.monotonic()
    process(KILL)
    yield struck


@expecting(HANDED_OVER, replaced=1, before_lease_ends=True)
def pod_deleted(scene):
    """The primary's pod deleted, as by hand or by a drain: it is asked to end first."""
    yield _delete(scene)


@expecting(HANDED_OVER, replaced=1, before_lease_ends=True)
def pod_deleted_at_once(scene):
    """The primary's pod deleted with no grace: its kubelet asks it to end all the same, and kills it two seconds later."""
    yield _delete(scene, "--grace-period=0", "--force")


def _delete(scene, *options):
    victim = scene.masters.wait_until_serving()
    struck = time.monotonic()
    scene.cluster.kubectl("delete", "pod", victim.name, "-n", scene.masters.namespace, "--wait=false", *options)
    return struck


@expecting(LEASE_ENDED, rebuilds=True)
def node_cut(scene):
    """The primary's node off the network, until another leads; then it comes back. See `move_off`."""
    victim = scene.masters.wait_until_serving()
    assert victim.node != scene.cluster.stable_node, f"{victim.name} is on the node that must not be cut off"
    struck = time.monotonic()
    scene.cluster.cut(victim.node)
    try:
        scene.masters.wait_for_another(victim)
        yield struck
    finally:
        scene.cluster.heal(victim.node)
    ready = ["wait", "--for=condition=Ready", f"node/{victim.node}", f"--timeout={NODE_SECONDS}s"]
    scene.cluster.kubectl(*ready)


def move_off(scene, node):
    """Moves the primary to another node than the one that must not be cut off. Before a round: it replaces pods."""
    for _ in range(5):
        primary = scene.masters.wait_until_serving()
        if primary.node != node:
            return
        _delete(scene)
        scene.masters.wait_for_another(primary)
        scene.masters.wait_until_redundant()
    raise AssertionError(f"the primary is on {node} again and again")


def api_stopped(seconds):
    """The API server away, and the primary's process killed meanwhile: masters elect another without it."""

    def fault(scene):
        process = scene.cluster.process(scene.masters.wait_until_serving().pod)
        scene.cluster.stop_api()
        try:
            struck = time.monotonic()
            process(KILL)
            time.sleep(seconds)
        finally:
            scene.cluster.start_api()
        answers = ["get", "--raw", "/readyz"]
        ready = lambda: scene.cluster.kubectl(*answers, check=False).returncode == 0  # noqa: E731
        wait_until(ready, "the API server", NODE_SECONDS)
        yield struck

    fault.__name__ = f"API server stopped for {seconds} s, primary killed"
    return expecting(DIED, restarts=1)(fault)


def etcd_stopped(seconds):
    """The masters' etcd stopped: nothing can be acknowledged until it is back."""

    def fault(scene):
        [pod] = scene.cluster.list("pods", "-n", scene.masters.namespace, "-l", "app=etcd")
        process = scene.cluster.process(pod)
        struck = time.monotonic()
        process(STOP)
        try:
            time.sleep(seconds)
        finally:
            process(CONTINUE)
        yield struck

    fault.__name__ = f"etcd stopped for {seconds} s"
    # The lease ends in etcd while nobody can renew it, also that of a primary which leads again afterwards.
    return expecting(LEASE_ENDED, rebuilds=True)(fault)


def api_silenced(operator):
    """All connections of the operator to the API server silent for good, as when a machine behind a load balancer vanishes,
    and the primary's process killed: the label has to follow through new connections."""

    def fault(scene):
        process = scene.cluster.process(scene.masters.wait_until_serving().pod)
        silenced = [scene.cluster.silence_api(each) for each in operator.running()]
        try:
            assert all(count for count, _ in silenced), "an operator without a connection to the API server"
            struck = time.monotonic()
            process(KILL)
            yield struck
            # While nothing passes on the old ones.
            scene.pod_judge.resource.wait_until_settled(scene.masters)
        finally:
            for _, undo in silenced:
                undo()

    return expecting(DIED, restarts=1)(fault)
