"""The operator asks etcd for size, quota and alarms itself, also while no master serves, and names what is wrong; numbers
that only grow cost no write (INV-9)."""

import os
import subprocess

import pytest

from stores import Etcd
from waiting import wait_until

pytestmark = pytest.mark.timeout(300)
QUOTA_BYTES = 16 << 20
# Longer than the time between two looks at etcd.
LOOKS_SECONDS = 12


@pytest.fixture
def etcd(tmp_path):
    """One with a small quota. A commit for each write makes the size exact that it compares with the quota: by default it
    is up to 100 ms old, and what was written since can be more than the space that is left."""
    etcd = Etcd(tmp_path, flags=["--quota-backend-bytes", str(QUOTA_BYTES), "--backend-batch-limit", "1"])
    yield etcd
    etcd.end()


def shown(space):
    """What `kubectl moonkeeper status` prints."""
    command = ["kubectl-moonkeeper", "status", "demo", "--namespace", space.name]
    options = {"executable": os.environ["MOONKEEPER_BIN"], "env": os.environ | {"KUBECONFIG": str(space.server.kubeconfig)}}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True, **options).stdout


def test_space_is_named_before_it_is_gone(start_operator, space):
    first = start_operator()
    space.make()
    reason = lambda: space.condition("EtcdHealthy").get("reason")  # noqa: E731
    found = space.wait(lambda: space.status().get("etcd", {}).get("quotaBytes") and space.status()["etcd"], "the quota")
    assert found["quotaBytes"] == QUOTA_BYTES and found["alarms"] == []
    assert 0 < found["inUseBytes"] <= found["dbBytes"] < QUOTA_BYTES / 2
    assert reason() == "Answers" and "of 16.0 MiB in use" in space.condition("EtcdHealthy")["message"]
    assert "of 16.0 MiB in use" in shown(space)

    # No news while it grows below the limit.
    wait_until(lambda: first.is_still(LOOKS_SECONDS), "the operator to have nothing left to write", 90)
    writes = first.writes()
    space.etcd.fill_up(until=QUOTA_BYTES // 2)
    assert first.is_still(LOOKS_SECONDS) and first.writes() == writes

    space.etcd.fill_up(until=QUOTA_BYTES * 96 // 100)
    space.wait(lambda: reason() == "SpaceLow", "low space to be named")
    assert space.condition("EtcdHealthy")["status"] == "False"
    assert "of 16.0 MiB in use" in space.condition("EtcdHealthy")["message"]
    assert space.status()["etcd"]["dbBytes"] > QUOTA_BYTES * 0.95
    space.wait(lambda: "EtcdSpaceLow" in space.events(), "the event")
    assert "SpaceLow" in shown(space) and "defrag" in shown(space)

    space.etcd.fill_up()
    space.wait(lambda: reason() == "NoSpace", "the alarm to be named")
    assert space.status()["etcd"]["alarms"] == ["NOSPACE"]
    space.wait(lambda: "EtcdOutOfSpace" in space.events(), "the event")
    assert "NoSpace" in shown(space) and "alarm disarm" in shown(space)

    # Another operator finds it as it was left.
    wait_until(lambda: first.is_still(LOOKS_SECONDS), "the operator to have nothing left to write", 90)
    assert first.terminate() == 0
    second = start_operator().wait_until_leading()
    wait_until(lambda: second.passes() and second.is_still(LOOKS_SECONDS), "passes of the second operator", 90)
    assert second.writes() == {}

    space.etcd.reclaim()
    space.wait(lambda: reason() == "Answers", "space to be there again")
    assert space.condition("EtcdHealthy")["status"] == "True" and space.status()["etcd"]["alarms"] == []
    space.wait(lambda: "EtcdRecovered" in space.events(), "the event")
