"""Fixtures: a master and real clients for each test, killed when it ends; their logs are shown when it fails."""


import pytest

from clients import Client
from one_master import Master


@pytest.fixture
def start_master(tmp_path):
    """Starts a master with the flags given."""
    masters = []

    def start(**flags):
        masters.append(Master(tmp_path / f"master-{len(masters)}.log", **flags))
        return masters[-1]

    yield start
    for each in masters:
        each.kill()


@pytest.fixture
def master(request, start_master):
    """A master with the flags of the test's `master` mark."""
    mark = request.node.get_closest_marker("master")
    return start_master(**(mark.kwargs if mark else {}))


@pytest.fixture
def start_client(request, tmp_path):
    """Starts a client of the test's `master`, or of a proxy before it, and sets it up; arguments as of Client.connect."""
    clients = []
    master = request.getfixturevalue("master")

    def start(proxy=None, **settings):
        clients.append(Client(tmp_path / f"client-{len(clients)}.log"))
        return clients[-1].connect(proxy or master, **settings)

    yield start
    for each in clients:
        each.kill()


@pytest.fixture
def client(start_client):
    """One client with a segment of the default size."""
    return start_client()
