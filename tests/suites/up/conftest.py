"""Fixtures: `moonkeeper up` as a user runs it, ended with the test; its output and logs are shown when the test fails."""


import pytest

from printed import Client
from running import Up


@pytest.fixture
def start_up(tmp_path):
    """Starts `moonkeeper up` with the arguments given, on free ports."""
    started = []

    def start(*arguments):
        started.append(Up(tmp_path / f"up-{len(started)}.log", *arguments))
        return started[-1].wait_for_text()

    yield start
    for each in started:
        each.kill()


@pytest.fixture
def start_client(tmp_path):
    """Starts what an `up` has printed."""
    started = []

    def start(up):
        started.append(Client(up, tmp_path / f"client-{len(started)}.log"))
        return started[-1].wait_for_value()

    yield start
    for each in started:
        each.kill()
