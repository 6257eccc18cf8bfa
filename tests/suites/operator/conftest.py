"""Fixtures: one API server for all tests, and for each test a namespace, an operator and masters that end with it."""

import os
import subprocess

import pytest

from apiserver import ApiServer
from operator_process import Operator
from namespace_by_hand import Space
from stores import Etcd

# Which calls were made by whom: what the operator may do is compared with what it does.
AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: Metadata
    users: ["system:serviceaccount:moonkeeper-system:moonkeeper"]
  - level: None
"""


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("apiserver")
    policy = folder / "audit-policy.yaml"
    policy.write_text(AUDIT_POLICY)
    flags = [f"--audit-policy-file={policy}", f"--audit-log-path={folder / 'audit.log'}"]
    with ApiServer(folder, flags) as server:
        server.audit_log = folder / "audit.log"
        server.install_definition = lambda: install_definition(server)
        server.install_definition()
        yield server


def install_definition(server):
    crd = subprocess.run([os.environ["MOONKEEPER_BIN"], "crd"], capture_output=True, text=True, check=True).stdout
    server.kubectl("apply", "--server-side", "-f", "-", input=crd)
    server.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")


@pytest.fixture
def etcd(tmp_path):
    """The etcd of the masters, which can be stopped without stopping Kubernetes."""
    etcd = Etcd(tmp_path)
    yield etcd
    etcd.end()


@pytest.fixture
def space(server, etcd, tmp_path, request):
    """A namespace of the test's own, and what it needs to make clusters there."""
    space = Space(server, etcd, tmp_path)
    yield space
    space.end()


@pytest.fixture
def keeping(space):
    """A namespace whose masters have folders for snapshots."""
    space.keeps_files = True
    return space


@pytest.fixture
def start_operator(server, space, tmp_path):
    """Starts operators that look after the test's namespace."""
    operators = []

    def start(**options):
        options = {"kubeconfig": server.kubeconfig, "namespace": space.name} | options
        operators.append(Operator(tmp_path / f"operator-{len(operators)}.log", **options))
        return operators[-1]

    yield start
    for each in operators:
        each.kill()


@pytest.fixture
def operator(start_operator):
    """One operator."""
    return start_operator()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    space = item.funcargs.get("space") if hasattr(item, "funcargs") else None
    if report.failed and space:
        try:
            shown = space.kubectl("get", "mcl,sts,pods,events", "-o", "wide", check=False).stdout
        except subprocess.TimeoutExpired:
            shown = "the API server does not answer"
        report.sections.append(("objects", shown))
