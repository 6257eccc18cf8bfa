"""A planned change of the primary, asked for in the resource and by the plugin of kubectl."""

import time
import uuid

import pytest

from checker import summary


def by_spec(demo, target):
    request = uuid.uuid4().hex[:8]
    demo.resource.patch({"switchover": {"target": target, "requestId": request}})
    return demo.resource.wait_for(
        f"switchover {request}",
        lambda status: (
            (found := status.get("lastSwitchover") or {}).get("requestId") == request
            and found["result"] != "Pending"
            and found
        ),
    )


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

    done = demo.scene.round(switchover)
    row.measured(done)
    assert not done.violations, summary(done.violations)
    [(primary, target, report)] = reports
    assert report["result"] == "Succeeded", report
    assert (report["from"], report["to"]) == (primary.name, target.name)
    demo.resource.wait_until_settled(demo.masters)
    assert demo.masters.primary().name == target.name


@pytest.mark.scenario("3", "`kubectl moonkeeper status` says who leads")
def test_status(demo):
    shown = demo.space.plugin("status", "demo").stdout
    assert demo.masters.primary().name in shown
    for each in demo.masters.all():
        assert each.name in shown
