"""For all suites: when a test fails, the ends of the logs in its folder are shown with it."""

import pathlib

import pytest

LOG_TAIL_BYTES = 4000


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    folder = item.funcargs.get("tmp_path") if hasattr(item, "funcargs") else None
    if report.failed and folder:
        for log in sorted(pathlib.Path(folder).rglob("*.log")):
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            report.sections.append((f"end of {log.name}", tail))
