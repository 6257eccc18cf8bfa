"""Fixtures: `moonkeeper up` as a user runs it, ended with the test; its output and logs are shown when the test fails."""


import pytest

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
