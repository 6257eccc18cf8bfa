"""Fixtures: `moonkeeper up` as a user runs it, ended with the test; its output and logs are shown when the test fails."""

import pathlib

import pytest

from running import Up

LOG_TAIL_BYTES = 4000


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


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    folder = item.funcargs.get("tmp_path") if hasattr(item, "funcargs") else None
    if report.failed and folder:
        for log in sorted(pathlib.Path(folder).rglob("*.log")):
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            report.sections.append((f"end of {log.name}", tail))
