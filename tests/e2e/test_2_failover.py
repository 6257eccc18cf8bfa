"""The primary is lost in four ways: how long nobody answers, and whether everything acknowledged is still there."""

import pytest

import faults
from checker import summary


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(faults.process_killed, marks=pytest.mark.scenario("2", "SIGKILL of the primary's process")),
        pytest.param(faults.pod_deleted, marks=pytest.mark.scenario("2", "the primary's pod deleted")),
        pytest.param(faults.pod_deleted_at_once, marks=pytest.mark.scenario("2", "the same with grace 0")),
        pytest.param(faults.node_cut, marks=pytest.mark.scenario("2", "the primary's node cut off")),
    ],
    ids=lambda fault: fault.__name__,
)
def test_failover(demo, row, fault):
    if not demo.space.cluster.has_machines and fault in (faults.process_killed, faults.node_cut):
        pytest.skip("needs the machines under the cluster")
    before = demo.resource.status()
    done = demo.scene.round(fault)
    row.measured(done)
    assert not done.violations, summary(done.violations)
    assert done.acknowledged > 100, "not much was tested"
    demo.resource.wait_until_settled(demo.masters)
    after = demo.resource.status()
    assert after["term"] > before["term"]
    # A pod that is asked to end hands over; that is no failover.
    if fault is not faults.pod_deleted:
        report = after["lastFailover"]
        assert report["to"] == after["leader"]["name"]
        assert report != before.get("lastFailover")
