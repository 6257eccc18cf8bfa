"""What runs a mooncake_master today goes on with our image; and masters replicate without an operator."""

import pytest

import cluster_faults
from clients import Client
from images import MOONKEEPER
from manifests import masters_by_hand
from installed_operator import TREE
from pods import RPC_PORT
from scenario_namespace import SEGMENT_BYTES


@pytest.mark.scenario("7", "an existing mooncake_master Deployment with only its image changed")
def test_an_existing_deployment(space, row):
    space.kubectl("apply", "-f", TREE / "manifests/examples/swap-in.yaml")
    space.wait_for("deployment/mooncake-master")
    name = f"mooncake-master.{space.name}.svc.cluster.local"
    client = Client(space.folder / "client.log", wrap=space.cluster.host.wrap)
    try:
        metadata = f"http://{name}:8080/metadata"
        address = space.cluster.host.address
        assert client.setup(address, metadata, SEGMENT_BYTES, SEGMENT_BYTES, "tcp", "", f"{name}:{RPC_PORT}") == 0
        values = {f"key-{number}": bytes([number]) * 10_000 for number in range(50)}
        for key, value in values.items():
            assert client.put(key, value) == 0
        row.acknowledged = len(values)
        row.lost = sum(client.get(key) != value for key, value in values.items())
        assert row.lost == 0
    finally:
        client.kill()


@pytest.mark.scenario("7", "masters set up by hand without an operator: the primary's process killed")
def test_masters_by_hand(space, row):
    etcd = space.start_etcd()
    space.apply(*masters_by_hand(MOONKEEPER, "by-hand"))
    scene = space.scene(space.masters("app=masters", "by-hand", etcd))
    done = scene.round(cluster_faults.process_killed)
    row.measured(done)
    done.check()
