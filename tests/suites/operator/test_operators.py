"""The operator itself: several of them, restarts, and that a settled cluster costs no write (INV-9)."""

import json

import pytest

from waiting import wait_until

pytestmark = pytest.mark.timeout(300)


def lease(space):
    found = space.get("lease", "moonkeeper-operator")
    return found and found["spec"]


def test_a_restart_writes_nothing_but_the_lease(start_operator, space):
    first = start_operator()
    space.settle()
    space.wait_labelled()
    # The last news may still be on their way.
    wait_until(lambda: first.is_still(), "the operator to have nothing left to write", 60)
    versions = _versions(space)
    assert first.terminate() == 0
    second = start_operator().wait_until_leading()
    passes = second.passes()
    space.kubectl("annotate", "mcl", "demo", "touched=yes")
    wait_until(lambda: second.passes() > passes, "passes")
    wait_until(lambda: second.is_still(), "passes to end", 60)
    assert second.writes() == {}
    assert second.metrics()["moonkeeper_operator_lease_writes_total"] >= 1
    after = _versions(space)
    # The resource itself was touched by this test.
    assert {name: at for name, at in after.items() if "MasterCluster" not in name} == {
        name: at for name, at in versions.items() if "MasterCluster" not in name
    }


def _versions(space):
    kinds = "mcl,sts,svc,cm,sa,secret,pdb,networkpolicy,pods"
    items = space.get(kinds)["items"]
    return {f"{each['kind']}/{each['metadata']['name']}": each["metadata"]["resourceVersion"] for each in items}


def test_only_the_holder_writes(start_operator, space):
    first = start_operator().wait_until_leading()
    second = start_operator()
    wait_until(second.ready, "the second operator")
    space.settle()
    assert first.writes() and not second.writes() and not second.leads()
    # One that ends properly leaves nothing to wait for.
    holder = lease(space)["holderIdentity"]
    assert first.terminate() == 0
    second.wait_until_leading(30)
    assert lease(space)["holderIdentity"] != holder
    # One that is killed is replaced when its lease has run out.
    third = start_operator()
    second.kill()
    third.wait_until_leading(60)
    # More, not fewer: scaling down would wait for a person whenever the last master is the primary.
    space.patch({"replicas": 4})
    space.wait(lambda: space.get("sts", "demo")["spec"]["replicas"] == 4, "the third one to work")
    assert lease(space)["leaseTransitions"] >= 2


def test_the_api_server_goes_and_comes_back(operator, space, server):
    space.settle()
    old = space.wait_labelled()
    server.stop()
    try:
        space.masters[old].kill()
        assert operator.healthy()
    finally:
        server.start()
    space.wait(lambda: space.primary() not in (None, old), "another primary")
    assert space.wait_labelled() != old
    space.wait_status(lambda status: status.get("leader", {}).get("name") not in (None, old), "the status")


def test_one_that_could_not_renew_its_lease_works_again(operator, space, server):
    """No other operator has taken it meanwhile, so the cluster depends on this one."""
    holder = lambda: (lease(space)["holderIdentity"], lease(space).get("leaseTransitions"))  # noqa: E731
    operator.wait_until_leading()
    before = holder()
    server.stop()
    try:
        wait_until(lambda: not operator.leads(), "the right to write to end", 60)
        wait_until(operator.ready, "one that waits to be ready")
    finally:
        server.start()
    operator.wait_until_leading()
    assert holder() == before
    space.make()
    space.wait(lambda: space.get("sts", "demo"), "the StatefulSet")


def test_a_namespace_with_an_operator_of_its_own_is_left_alone(start_operator, space, server):
    """An operator for all namespaces and one for a single one, as two releases of the chart make them."""
    home = server.create_namespace(f"{space.name}-system")
    wide = start_operator(namespace=None, own_namespace=home).wait_until_leading()
    space.make()
    policy = lambda: json.dumps(space.get("networkpolicy", "demo") or {})  # noqa: E731
    space.wait(lambda: home in policy(), "the policy of the operator for all namespaces")
    away = server.create_namespace(f"{space.name}-away")
    own = start_operator(own_namespace=away).wait_until_leading()
    space.wait(lambda: away in policy(), "the policy of the other operator")
    space.wait(lambda: "OtherOperator" in space.events(), "the event")
    # Nothing is fought over.
    writes = wide.writes()
    wait_until(lambda: own.is_still(), "the other operator to have nothing left to write", 60)
    assert wide.writes() == writes and away in policy()
    # It is free when that operator ends.
    assert own.terminate() == 0
    space.wait(lambda: home in policy(), "the operator for all namespaces to take it back")
