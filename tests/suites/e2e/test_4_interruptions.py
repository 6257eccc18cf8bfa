"""The operator, the API server or etcd away at a bad moment: afterwards everything is as if nothing had happened.

The short form has one moment for each kind of event and 15 s without an API server; `-m ""` has them all.
"""

import time
import uuid

import pytest

import cluster_faults
from clusters import KILL
from scenario_judge import DIED, HANDED_OVER, Expects
from masterclusters import ROLE
from waiting import wait_until

long = pytest.mark.long


def at_once(demo, old):
    return True


def another_leads(demo, old):
    primary = demo.masters.primary()
    return primary is not None and primary.uid != old.uid


def the_old_label_is_gone(demo, old):
    return all(each.labels.get(ROLE) != "primary" for each in demo.masters.all() if each.uid == old.uid)


def the_new_label_is_there(demo, old):
    return any(each.labels.get(ROLE) == "primary" for each in demo.masters.all() if each.uid != old.uid)


def the_status_says_so(demo, old):
    return (demo.resource.status().get("leader") or {}).get("name", old.name) != old.name


MOMENTS = [at_once, another_leads, the_old_label_is_gone, the_new_label_is_there, the_status_says_so]


def each_moment(event, short):
    """All moments after an event; all but one are for the long form."""
    return [
        pytest.param(
            moment,
            id=moment.__name__,
            marks=[
                pytest.mark.scenario("4", f"{event}, and the operator killed: {moment.__name__.replace('_', ' ')}"),
                *([] if moment is short else [long]),
            ],
        )
        for moment in MOMENTS
    ]


def kill_operator(demo, operator, old, moment):
    """Kills all replicas of the operator when the moment has come; returns them."""
    pods = operator.running()
    assert pods, "no operator runs"
    processes = [demo.space.cluster.process(each) for each in pods]
    wait_until(lambda: moment(demo, old), moment.__name__.replace("_", " "), 60)
    for each in processes:
        each(KILL)
    operator.replace(pods)
    demo.space.timeline.mark("operator killed")
    return pods


@pytest.mark.parametrize("moment", each_moment("primary's process killed", short=another_leads))
def test_operator_killed_in_a_failover(demo, operator, row, moment):
    killed = []

    def fault(scene):
        primary = scene.masters.wait_until_serving()
        process = scene.cluster.process(primary.pod)
        struck = time.monotonic()
        process(KILL)
        killed.extend(kill_operator(demo, operator, primary, moment))
        yield struck
        operator.wait_until_replaced(killed)

    done = demo.scene.round(fault, Expects(DIED, restarts=1, operator_stays=False))
    row.measured(done)
    done.check()


@pytest.mark.parametrize("moment", each_moment("switchover asked for", short=at_once))
def test_operator_killed_in_a_switchover(demo, operator, row, moment):
    request, killed, reports = uuid.uuid4().hex[:8], [], []

    def fault(scene):
        primary = scene.masters.wait_until_serving()
        struck = time.monotonic()
        demo.resource.patch({"switchover": {"target": "", "requestId": request}})
        killed.extend(kill_operator(demo, operator, primary, moment))
        yield struck
        operator.wait_until_replaced(killed)
        reports.append(demo.resource.wait_for_switchover(request))

    done = demo.scene.round(fault, Expects(HANDED_OVER, recorded=False, operator_stays=False))
    row.measured(done)
    done.check()
    [report] = reports
    assert report["result"] == "Succeeded", report


@pytest.mark.parametrize(
    "seconds",
    [
        pytest.param(15, marks=pytest.mark.scenario("4", "API server stopped for 15 s, and the primary killed")),
        pytest.param(60, marks=[long, pytest.mark.scenario("4", "API server stopped for 60 s, and the primary killed")]),
    ],
)
def test_api_server_stopped(demo, row, seconds):
    if not demo.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    done = demo.scene.round(cluster_faults.api_stopped(seconds))
    row.measured(done)
    done.check()


@pytest.mark.scenario("4", "the operator's connections to the API server silent for good, and the primary killed")
def test_api_connections_silent(demo, operator, row):
    if not demo.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    done = demo.scene.round(cluster_faults.api_silenced(operator))
    row.measured(done)
    done.check()


@pytest.mark.scenario("4", "etcd stopped for 20 s")
def test_etcd_stopped(demo, row):
    if not demo.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    done = demo.scene.round(cluster_faults.etcd_stopped(20))
    row.measured(done)
    done.check()
