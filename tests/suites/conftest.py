"""For all suites: when a test fails, the ends of the logs in its folder are shown with it; with `--no-skips`, as `make test`
runs them, a test that is skipped, or expected to fail, has failed."""

import pathlib

import pytest

LOG_TAIL_BYTES = 4000


def pytest_addoption(parser):
    parser.addoption("--no-skips", action="store_true", help="a test or a file that is skipped counts as failed")


def _refuse_skip(report, config):
    """Turns a skip into a failure that names its reason."""
    if config.getoption("--no-skips") and report.skipped:
        # With this attribute pytest counts no failure.
        reason = report.__dict__.pop("wasxfail", None) or report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped, which --no-skips does not allow: {reason}"


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector):
    _refuse_skip((yield).get_result(), collector.config)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    report = (yield).get_result()
    _refuse_skip(report, item.config)
    folder = item.funcargs.get("tmp_path") if hasattr(item, "funcargs") else None
    if report.failed and folder:
        for log in sorted(pathlib.Path(folder).rglob("*.log")):
            tail = log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
            report.sections.append((f"end of {log.name}", tail))
