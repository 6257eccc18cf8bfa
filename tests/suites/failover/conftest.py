"""Fixtures: whole deployments, ended with their test; the ends of all logs are shown when it fails."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

import report
from hosts import Network
from deployment import World

# Printed with a failure; another seed is another run.
SEED = os.environ.get("MOONKEEPER_TEST_SEED", "1")


# More than a test has under way at once.
CALLS = 48
_ROUNDS = []


@pytest.fixture
def soak_rounds():
    """Rounds that are put here are in the table at the end."""
    return _ROUNDS


def pytest_terminal_summary(terminalreporter):
    if _ROUNDS:
        terminalreporter.section("failover: rounds")
        terminalreporter.write_line(report.table(_ROUNDS))


@pytest.fixture
def ask():
    """Makes a call in the background and returns its future. Named before `start_world` by a test, so that the masters
    are ended first, and with them the calls that wait."""
    with ThreadPoolExecutor(CALLS) as threads:
        yield threads.submit


@pytest.fixture
def start_world(tmp_path):
    """Starts a deployment; arguments as of World."""
    worlds = []

    def start(namespaces=False, masters=3, **settings):
        folder = tmp_path / f"world-{len(worlds)}"
        folder.mkdir()
        network = Network(masters) if namespaces else None
        worlds.append(World(folder, masters=masters, network=network, **({"seed": SEED} | settings)))
        return worlds[-1]

    yield start
    for each in worlds:
        each.end()
    errors = [line for each in worlds for line in each.unexpected_errors()]
    # At this level a person must act (docs/development.md): a test that means it names it.
    assert not errors, "\n".join(["masters logged errors:", *errors])
