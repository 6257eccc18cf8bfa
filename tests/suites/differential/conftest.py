"""Puts the harness on the path and prints its tables at the end."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from dated import DAY  # noqa: E402
from pair import self_comparison  # noqa: E402
from tally import Tally  # noqa: E402

_TALLY = Tally()


@pytest.fixture(scope="session")
def tally():
    """The counts of the whole session."""
    return _TALLY


def pytest_report_header():
    return f"differential: walks of day {DAY} beside the fixed ones (MOONKEEPER_TEST_DAY={DAY} repeats them)"


def pytest_terminal_summary(terminalreporter):
    if self_comparison():
        terminalreporter.section("differential: DIFFERENTIAL_SELF compared the reference with itself, and nothing with ours")
    if _TALLY.total:
        terminalreporter.section("differential: calls, answers, differences")
        terminalreporter.write_line(str(_TALLY))


@pytest.fixture
def scenario(tally):
    """Makes scenarios: ``with scenario(client_ttl=2) as s: ...``."""
    from scenario import Scenario

    # Neither leases nor clients, which never ping, end in a scenario that says nothing of it, however slow the machine.
    return lambda **flags: Scenario(tally, **{"default_kv_lease_ttl": 3_600_000, "client_ttl": 3_600, **flags})
