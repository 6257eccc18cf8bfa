"""Fixtures: one cluster for all scenarios, a namespace for each, and a table at the end.

Which cluster is in `cluster_choice.py`; besides, by the environment:

    MOONKEEPER_E2E_ARTIFACTS    where timelines and logs go (else a temporary folder)
    MOONKEEPER_E2E_KEEP         1: leave the cluster running, and use the one that runs
"""

import fcntl
import os
import pathlib
import re
import shutil
import signal

import pytest

import cluster_choice
import images
from installed_operator import Operator, install_plugin
from masterclusters import Resource, etcd_of, mastercluster
from scenario_namespace import Demo, Space
from table import FAILED, PASSED, SKIPPED, Row, table

SEED = os.environ.get("MOONKEEPER_TEST_SEED", "1")
KEEP = os.environ.get("MOONKEEPER_E2E_KEEP") == "1"
# Bounds a hang; the first test waits for the cluster, and a busy machine takes its time.
TEST_SECONDS = 600
_rows = []
# The cluster that was used, once it is there.
_used = []


def pytest_report_header():
    try:
        _, why = cluster_choice.choose()
    except cluster_choice.NoCluster as error:
        why = str(error)
    return f"cluster: {why}"


def pytest_collection_modifyitems(config, items):
    for each in items:
        each.add_marker(pytest.mark.timeout(TEST_SECONDS))
    # Left out and not skipped: elsewhere there is nothing that they could test.
    unenforced = [each for each in items if each.get_closest_marker("policies") and not _enforces_policies()]
    if unenforced:
        config.hook.pytest_deselected(items=unenforced)
        items[:] = [each for each in items if each not in unenforced]


def _enforces_policies():
    try:
        kind, _ = cluster_choice.choose()
    except cluster_choice.NoCluster:
        return False
    return kind.enforces_policies


@pytest.fixture(scope="session")
def artifacts(tmp_path_factory):
    """The folder that is left for people to read."""
    folder = os.environ.get("MOONKEEPER_E2E_ARTIFACTS")
    if not folder:
        return tmp_path_factory.mktemp("e2e")
    shutil.rmtree(folder, ignore_errors=True)
    pathlib.Path(folder).mkdir(parents=True)
    return pathlib.Path(folder)


@pytest.fixture(scope="session")
def cluster(artifacts):
    """A cluster that has our images; gone afterwards, however the run ends."""
    # As an interrupt from the keyboard: fixtures clean up.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = pathlib.Path(os.environ.get("CLUSTER_DIR") or artifacts.with_name("e2e-cluster"))
    lock = open(folder.with_name(f"{folder.name}.lock"), "w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        pytest.exit(f"another run uses the cluster in {folder}; set CLUSTER_DIR and MOONKEEPER_E2E_NAME for a second one")
    kind, why = cluster_choice.choose()
    chosen = kind(folder, os.environ.get("MOONKEEPER_E2E_NAME", "mke2e"))
    try:
        if not (KEEP and chosen.is_up()):
            chosen.up()
        for each in [images.build_moonkeeper(artifacts), images.build_etcd(artifacts)]:
            chosen.load(each)
            each.unlink()
        chosen.path.append(install_plugin(chosen.folder / "plugins"))
        _used.append(f"cluster: {why}; Kubernetes {chosen.version()}, {len(chosen.node_names())} nodes")
        yield chosen
    finally:
        try:
            chosen.keep_logs(artifacts / "nodes")
        finally:
            if not KEEP:
                chosen.down()
            lock.close()


@pytest.fixture(scope="session")
def operator(cluster, artifacts):
    """The operator, installed by the chart."""
    made = Operator(cluster)
    made.install_by_chart()
    yield made
    made.keep_logs(artifacts / "operator")


@pytest.fixture(scope="module")
def space(cluster, artifacts, request):
    """The namespace of a scenario, which is a file of tests."""
    name = re.sub("[^a-z0-9]+", "-", request.module.__name__.removeprefix("test_"))
    made = Space(cluster, f"e2e-{name}", artifacts / name, SEED)
    yield made
    made.close()


@pytest.fixture(scope="module")
def demo(operator, space, request):
    """A MasterCluster with all defaults but its etcd, which it names by its short name, and the leader lease where the
    module has LEASE_SECONDS; Ready."""
    lease_seconds = getattr(request.module, "LEASE_SECONDS", None)
    spec = {"failover": {"leaseTTL": f"{lease_seconds}s"}} if lease_seconds else {}
    etcd = space.start_etcd()
    space.apply(mastercluster(etcd=etcd_of(space), **spec))
    resource = Resource(space)
    resource.wait_until_ready()
    masters = space.masters(resource.selector, resource.cluster_id, etcd)
    masters.wait_until_redundant()
    scene = space.scene(masters, resource=resource, operator=operator, lease_seconds=lease_seconds)
    return Demo(space, resource, masters, scene)


@pytest.fixture
def row(request):
    """The test's line in the table."""
    return request.node.stash[_ROW]


_ROW = pytest.StashKey()


def pytest_runtest_setup(item):
    marker = item.get_closest_marker("scenario")
    assert marker, f"{item.name} does not say which scenario it is"
    item.stash[_ROW] = Row(*marker.args)
    _rows.append(item.stash[_ROW])


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    if report.skipped:
        item.stash[_ROW].result = SKIPPED
    elif report.when == "call":
        item.stash[_ROW].result = PASSED if report.passed else FAILED


def pytest_terminal_summary(terminalreporter):
    if _rows:
        terminalreporter.section("scenarios")
        for each in _used:
            terminalreporter.write_line(each)
        terminalreporter.write_line(table(_rows))
