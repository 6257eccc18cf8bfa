"""The primary is lost in four ways: how long no master answers, whether everything acknowledged is still there, and whether
masters and operator name the right cause."""

import pytest

import faults


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
    if fault is faults.node_cut:
        faults.move_off(demo.scene, demo.space.cluster.stable_node)
    done = demo.scene.round(fault)
    row.measured(done)
    done.check()
