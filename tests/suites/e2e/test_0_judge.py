"""A round fails on everything that its fault does not announce: the judge, on a cluster that is made up."""

import copy
import types

import pytest

import scenario_judge
from scenario_judge import DIED, HANDED_OVER, LEASE_ENDED, Expects, Judge


class Cluster:
    """Three masters and a resource, as the judge sees them."""

    namespace, count = "made-up", 3

    def __init__(self):
        self.leader, self.term, self.reason = "demo-0", 5, "first start"
        self.pods = {f"demo-{number}": [f"uid-{number}", 0, []] for number in range(3)}
        self.failover, self.operator, self.log = None, {"a": 0}, {}
        # Restarts of companions by the uid of their pod, and the masters that have lost theirs.
        self.companions, self.unwatched = {}, set()

    # What the judge asks of masters.

    def all(self):
        return [self._master(name) for name in self.pods]

    def _master(self, name):
        uid, count, faults = self.pods[name]
        main, companion = [{"name": "master", "restartCount": count}], {"name": "companion"}
        sidecars = [companion | {"restartCount": self.companions.get(uid, 0)}]
        pod = {"metadata": {"uid": uid}, "status": {"containerStatuses": main, "initContainerStatuses": sidecars}}
        promotion = {"term": self.term, "reason": self.reason}
        status = {"term": self.term, "promotion": promotion if name == self.leader else None, "faults": faults}
        watched = int(name not in self.unwatched)
        return types.SimpleNamespace(name=name, uid=uid, pod=pod, status=lambda: status, metric=lambda _: watched)

    def primary(self):
        return self._master(self.leader)

    wait_until_serving = primary

    def wait_until_redundant(self):
        assert len(self.pods) == self.count

    @property
    def cluster(self):
        def kubectl(*words, check):
            # By the container of a pod, which is the master's unless another is named.
            pod, container = words[3], words[5]
            name = pod if container == "master" else f"{container} of {pod}"
            return types.SimpleNamespace(returncode=0, stdout=self.log.get(name, ""), stderr="")

        return types.SimpleNamespace(kubectl=kubectl)

    def judge(self):
        resource = types.SimpleNamespace(
            status=lambda: {"lastFailover": copy.copy(self.failover)}, wait_until_settled=lambda masters: None
        )
        pods = lambda: [  # noqa: E731
            {"metadata": {"uid": uid}, "status": {"containerStatuses": [{"restartCount": count}]}}
            for uid, count in self.operator.items()
        ]
        return Judge(self, resource, types.SimpleNamespace(pods=pods))


def found(change, expects):
    """What the judge says about a change."""
    made = Cluster()
    judge = made.judge()
    before = judge.look()
    change(made)
    return list(judge.compare(before, expects))


def late(made, silence, expects=None, client=None):
    """What the judge says about the time that a fault took, where the lease is as long as it has to be."""
    judge = made.judge()
    judge.lease_seconds = scenario_judge.LONG_LEASE_SECONDS
    return list(judge.late(expects or IN_TIME, silence, client))


def take_over(made, reason=DIED, record="ProcessDied"):
    made.leader, made.term, made.reason = "demo-1", 9, reason
    made.failover = record and {"to": "demo-1", "reason": record}


def die(made):
    take_over(made)
    made.pods["demo-0"][1] += 1


def changed(**attributes):
    """A failover as it should be, and something else."""

    def change(made):
        die(made)
        for name, value in attributes.items():
            setattr(made, name, value)

    return change


def of_pod(name, index, value):
    def change(made):
        die(made)
        made.pods[name][index] = value

    return change


DEATH = Expects(DIED, restarts=1)
IN_TIME = Expects(DIED, restarts=1, before_lease_ends=True)
REBUILDS = Expects(DIED, restarts=1, rebuilds=True)
REBUILT, TWICE = ([{"what": scenario_judge.REBUILT[0], "count": count}] for count in (1, 2))
UNEXPECTED = [
    ("a new term where none was expected", lambda made: take_over(made, record=None), Expects(), "was to go on in term 5"),
    ("the same primary in another term", lambda made: setattr(made, "term", 6), Expects(), "leads in term 6"),
    ("no new term", lambda made: None, Expects(DIED, recorded=False), "no new term after 5"),
    ("the lease and not the death", changed(reason=LEASE_ENDED), DEATH, "took over because of 'the lease ran out'"),
    ("a crash and not a hand-over", die, Expects(HANDED_OVER, recorded=False, restarts=1), "not 'switchover'"),
    ("no record", changed(failover=None), DEATH, "was to be recorded; it is None"),
    ("a record of another cause", changed(failover={"to": "demo-1", "reason": "LeaseExpired"}), DEATH, "(ProcessDied)"),
    ("a record that should not be", die, Expects(DIED, recorded=False, restarts=1), "no failover was to be recorded"),
    ("no restart", take_over, DEATH, "1 restarts and 0 new pods were expected; restarted: {}"),
    ("a restart of another", of_pod("demo-2", 1, 1), DEATH, "restarted: {'demo-0': 1, 'demo-2': 1}"),
    ("a pod that was replaced", of_pod("demo-2", 0, "new"), DEATH, "new: ['demo-2']"),
    ("a restart of the operator", changed(operator={"a": 1}), DEATH, "the operator's pods were"),
    ("a standby that was rebuilt", of_pod("demo-2", 2, [{"what": "x", "count": 1}]), DEATH, "demo-2 says that something is wrong"),
    ("a standby that was rebuilt, not the primary", of_pod("demo-2", 2, REBUILT), REBUILDS, "demo-2 says"),
    ("a primary that was rebuilt twice", of_pod("demo-0", 2, TWICE), REBUILDS, "demo-0 says"),
    ("an error in a log", changed(log={"demo-1": "x ERROR y"}), DEATH, "master of demo-1 logged: x ERROR y"),
    ("a panic", changed(log={"demo-0": "thread 'main' panicked at"}), DEATH, "master of demo-0 logged: thread"),
    ("a companion that was restarted", changed(companions={"uid-0": 1}), DEATH, "the companion of demo-0 was started again"),
    ("a master without a companion", changed(unwatched={"demo-2"}), DEATH, "demo-2 has no companion that watches it"),
    ("a panic of a companion", changed(log={"companion of demo-0": "panicked at"}), DEATH, "companion of demo-0 logged"),
]


@pytest.mark.scenario("0", f"rounds that do not come as they say fail, in {len(UNEXPECTED)} ways")
def test_what_was_not_announced_is_found(monkeypatch):
    # What is not there is not waited for.
    monkeypatch.setattr(scenario_judge, "WRITTEN_SECONDS", 0)
    assert found(die, DEATH) == []
    assert found(lambda made: None, Expects()) == []
    assert found(of_pod("demo-0", 2, REBUILT), REBUILDS) == []
    for what, change, expects, sentence in UNEXPECTED:
        said = found(change, expects)
        assert any(sentence in each for each in said), f"{what}: {said}"
    limit = scenario_judge.LONG_LEASE_SECONDS - scenario_judge.RENEWAL_SECONDS
    assert late(Cluster(), 0.1, client=limit - 1) == [] and late(Cluster(), limit, DEATH, client=limit) == []
    assert "no master answered for 28.0 s" in late(Cluster(), limit, client=0.1)[0]
    assert "a client had no success for 28.0 s" in late(Cluster(), 0.1, client=limit)[0]
    # With a shorter lease nothing can be said.
    short = Cluster().judge()
    assert list(short.late(IN_TIME, limit, limit)) == []
