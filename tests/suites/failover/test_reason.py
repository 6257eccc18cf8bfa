"""A standby that takes over says why, also if another standby was the first to find the primary dead."""

import pytest

pytestmark = pytest.mark.timeout(180)


def test_a_dead_primary_is_said_to_have_died(start_world):
    # A lease that cannot have run out in a test.
    world = start_world(clients=0, leader_lease_ttl="60s")
    for _ in range(30):
        world.masters.wait_until_redundant()
        old = world.masters.wait_until_serving()
        old.kill()
        new = world.wait_for_another(old)
        assert new.status()["promotion"]["reason"] == "the primary died"
        old.start()
