"""The primary is lost in three ways that another master notices at once: how long no master answers, whether everything
acknowledged is still there, and whether masters and operator name the right cause. The lease is so long that clients which
had to wait for its end would be told apart."""

import pytest

import cluster_faults
import scenario_judge

# Read by the fixture `demo`.
LEASE_SECONDS = scenario_judge.LONG_LEASE_SECONDS


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(cluster_faults.process_killed, marks=pytest.mark.scenario("2", "SIGKILL of the primary's process")),
        pytest.param(cluster_faults.pod_deleted, marks=pytest.mark.scenario("2", "the primary's pod deleted")),
        pytest.param(cluster_faults.pod_deleted_at_once, marks=pytest.mark.scenario("2", "the same with grace 0")),
    ],
    ids=lambda fault: fault.__name__,
)
def test_failover(demo, row, fault):
    if not demo.space.cluster.has_machines and fault is cluster_faults.process_killed:
        pytest.skip("needs the machines under the cluster")
    done = demo.scene.round(fault)
    row.measured(done)
    done.check()
