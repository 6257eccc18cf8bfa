"""The primary's node is cut off: nothing notices it but the end of the lease, which is as long as by default."""

import pytest

import cluster_faults


@pytest.mark.scenario("2", "the primary's node cut off")
def test_node_cut(demo, row):
    if not demo.space.cluster.has_machines:
        pytest.skip("needs the machines under the cluster")
    cluster_faults.move_off(demo.scene, demo.space.cluster.stable_node)
    done = demo.scene.round(cluster_faults.node_cut)
    row.measured(done)
    done.check()
