"""A planned change of the primary, asked for in the resource and by the plugin of kubectl; one that is withdrawn, and what is
recorded of failovers after one."""

import time
import uuid

import pytest

from clusters import KILL
from scenario_judge import DIED, HANDED_OVER, Expects
from pods import ADMIN_PORT

# How long a standby that is ready may take to connect to the primary.
PEER_SECONDS = 3


def by_spec(demo, target):
    return demo.resource.switch_over(target)


def by_plugin(demo, target):
    before = demo.resource.status().get("lastSwitchover")
    demo.space.plugin("switchover", "demo", "--to", target)
    found = demo.resource.status()["lastSwitchover"]
    assert found != before
    return found


@pytest.mark.parametrize(
    "ask",
    [
        pytest.param(by_spec, marks=pytest.mark.scenario("3", "a switchover by spec")),
        pytest.param(by_plugin, marks=pytest.mark.scenario("3", "a switchover by `kubectl moonkeeper`")),
    ],
    ids=lambda ask: ask.__name__,
)
def test_switchover(demo, row, ask):
    reports = []

    def switchover(scene):
        primary = scene.masters.wait_until_serving()
        target = next(each for each in scene.masters.all() if each.uid != primary.uid)
        struck = time.monotonic()
        reports.append((primary, target, ask(demo, target.name)))
        yield struck

    done = demo.scene.round(switchover, Expects(HANDED_OVER, recorded=False))
    row.measured(done)
    done.check()
    [(primary, target, report)] = reports
    assert report["result"] == "Succeeded", report
    assert (report["from"], report["to"]) == (primary.name, target.name)
    assert demo.masters.primary().name == target.name


@pytest.mark.scenario("3", "`kubectl moonkeeper status` says who leads")
def test_status(demo):
    shown = demo.space.plugin("status", "demo").stdout
    assert demo.masters.primary().name in shown
    for each in demo.masters.all():
        assert each.name in shown


@pytest.mark.scenario("3", "`spec.switchover` reset before there is a result: the request ends, the primary goes on")
def test_reset(demo, operator, row):
    """As a GitOps tool does that finds a field which Git does not have."""
    if not demo.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    request, reports = uuid.uuid4().hex[:8], []

    def reset(scene):
        # The primary cannot be asked, so the request stays without a result.
        undo = [scene.cluster.refuse(each, ADMIN_PORT) for each in operator.running()]
        try:
            struck = time.monotonic()
            demo.resource.patch({"switchover": {"target": "", "requestId": request}})
            demo.resource.wait_for("the switchover to begin", lambda status: status.get("phase") == "SwitchingOver")
            demo.resource.patch({"switchover": None})
            reports.append(demo.resource.wait_for_switchover(request))
        finally:
            for each in undo:
                each()
        yield struck

    done = demo.scene.round(reset, Expects())
    row.measured(done)
    done.check()
    [report] = reports
    assert report["result"] == "Failed" and report["message"].startswith("withdrawn"), report


def scale_to_two(demo):
    """Two masters, the primary among them; the operator ends the third one."""
    if demo.masters.primary().name == "demo-2":
        assert by_spec(demo, "demo-0")["result"] == "Succeeded"
    demo.resource.patch({"replicas": 2})
    demo.masters.count = 2
    demo.resource.wait_until_settled(demo.masters)


@pytest.mark.scenario("3", "two masters: a switchover, then two failovers, the second the same way: each has its record")
def test_failovers_after_a_switchover(demo, row):
    if not demo.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    scale_to_two(demo)
    records = []

    def to_and_fro(scene):
        first = scene.masters.wait_until_serving().name
        [second] = [each.name for each in scene.masters.all() if each.name != first]
        struck = time.monotonic()
        assert by_spec(demo, second)["result"] == "Succeeded"
        for old, new in [(second, first), (first, second)]:
            scene.masters.wait_until_redundant()
            demo.resource.wait_until_settled(scene.masters)
            primary = scene.masters.wait_until_serving()
            assert primary.name == old
            # A standby that was started again connects to the primary's peer port within a second, which no status tells;
            # only one that is connected knows a death from a lease that ran out.
            time.sleep(PEER_SECONDS)
            before = demo.resource.status().get("lastFailover")
            scene.cluster.process(primary.pod)(KILL)

            def recorded(status):
                found = status.get("lastFailover")
                return found if found not in (None, before) and found["reason"] != "Unknown" else None

            found = demo.resource.wait_for(f"the record of the failover to {new}", recorded)
            records.append((found["from"], found["to"]) == (old, new))
        yield struck

    done = demo.scene.round(to_and_fro, Expects(DIED, restarts=2))
    row.measured(done)
    done.check()
    assert records == [True, True], records
