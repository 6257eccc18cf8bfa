"""Which cluster is chosen and why, and what kind's cluster does to its nodes, without a cluster."""

import pathlib
import subprocess

import pytest

import cluster_choice
import container_processes
from cluster_choice import GIVEN, WANTED, NoCluster
from kind_cluster import KindCluster
from local_cluster import LocalCluster
from waiting import wait_until

NO_DOCKER = "Docker does not run"


@pytest.fixture
def machine(monkeypatch):
    """A machine on which clusters work unless a reason is put in here, by kind of cluster; the environment names none."""
    reasons = {}
    for word, kind in cluster_choice.KINDS.items():
        monkeypatch.setattr(kind, "missing", staticmethod(lambda word=word: reasons.get(word, "")))
    for each in (GIVEN, WANTED):
        monkeypatch.delenv(each, raising=False)
    cluster_choice.choose.cache_clear()
    yield reasons
    cluster_choice.choose.cache_clear()


@pytest.mark.scenario("0", "kind is taken where Docker runs, else the local cluster, and the reason is named")
def test_what_works_is_taken(machine):
    assert cluster_choice.choose() == (KindCluster, "kind (Docker runs here)")
    machine["kind"] = NO_DOCKER
    cluster_choice.choose.cache_clear()
    assert cluster_choice.choose() == (LocalCluster, f"local (not kind: {NO_DOCKER})")
    machine["local"] = "needs root"
    cluster_choice.choose.cache_clear()
    with pytest.raises(NoCluster, match=f"not kind: {NO_DOCKER}; not local: needs root"):
        cluster_choice.choose()


@pytest.mark.scenario("0", "a cluster that is asked for is taken or refused, never replaced by another")
def test_what_is_asked_for(machine, monkeypatch):
    monkeypatch.setenv(WANTED, "local")
    assert cluster_choice.choose() == (LocalCluster, f"local (asked for by {WANTED})")
    machine["kind"] = NO_DOCKER
    for wanted, said in [("kind", f"not kind: {NO_DOCKER}"), ("minikube", "it is kind or local")]:
        monkeypatch.setenv(WANTED, wanted)
        cluster_choice.choose.cache_clear()
        with pytest.raises(NoCluster, match=said):
            cluster_choice.choose()


@pytest.mark.scenario("0", "a node of kind is cut off by IPv4 and by IPv6")
def test_both_families_are_cut(monkeypatch):
    """A kubelet that still reached the API server by IPv6 kept its node Ready."""
    run = []
    monkeypatch.setattr(KindCluster, "in_node", staticmethod(lambda node, *command: run.append((node, *command))))
    made = KindCluster.__new__(KindCluster)
    made.cut("mk-worker")
    ways = {("raw", "PREROUTING", "-i", "eth0"), ("mangle", "POSTROUTING", "-o", "eth0")}
    # mk-worker iptables -w -t TABLE --insert CHAIN -i eth0 -j DROP
    assert sorted((command[1], command[4], *command[6:9]) for command in run) == sorted(
        (tool, *way) for tool in ("iptables", "ip6tables") for way in ways
    )
    cut, run[:] = list(run), []
    made.heal("mk-worker")
    assert run == [tuple("--delete" if word == "--insert" else word for word in command) for command in cut]


@pytest.mark.scenario("0", "a container's process is found on this machine by its number in the node")
def test_processes_of_namespaces():
    # Like a node in which a runtime starts a container: the container's process has a third number of its own.
    nested = ["unshare", "--pid", "--fork", "sh", "-c", "unshare --pid --fork sleep 600 & wait"]
    nodes = [subprocess.Popen(nested) for _ in range(2)]
    try:
        for node in nodes:
            [first] = wait_until(lambda node=node: _children(node.pid), "the first process", 10)
            container = wait_until(lambda first=first: container_processes.on_this_machine(first, 3), "the container's process", 10)
            assert pathlib.Path(f"/proc/{container}/comm").read_text().strip() in ("sleep", "unshare")
            assert container in _descendants(first)
            assert container_processes.on_this_machine(first, 1) == first
            assert container_processes.on_this_machine(first, 99) is None
    finally:
        for node in nodes:
            for each in _descendants(node.pid):
                subprocess.run(["kill", "-KILL", str(each)], capture_output=True)
            node.kill()
            node.wait()


def _children(process):
    return [int(each) for each in pathlib.Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def _descendants(process):
    try:
        children = _children(process)
    except OSError:
        return []
    return [*children, *(found for each in children for found in _descendants(each))]
