"""What a fault may do, and that each kind of what it may not is found."""

import inspect

import pytest

import faults
import handover_faults
import log_faults
from expectations import (
    DIED,
    EITHER,
    HANDED_OVER,
    LEASE_ENDED,
    NEW,
    REBUILT,
    UNNOTICED,
    Cluster,
    Expects,
    Observed,
    judge,
)
from faults import DEPOSED, PLANNED, PROCESS_DIED
from gaps import Call, Gap, gap
from logs import Logs

LONG, SHORT = 30, 5
NAMES = ("a", "b", "c")


def masters(**changed):
    """Three masters that stand well; `changed` gives fields of some of them."""
    return tuple(Observed(name, boot_id=name, **changed.get(name, {})) for name in NAMES)


def cluster(primary="a", term=7, reason="first start", elections=0, error_lines=(), **changed):
    return Cluster(primary, term, reason, masters(**changed), elections, tuple(error_lines))


def restarted(name):
    """A master that the fault killed and started again."""
    return {name: {"starts": 2}}


def died(**more):
    return cluster("b", 9, more.pop("reason", DIED), more.pop("elections", 1), **(restarted("a") | more))


BEFORE = cluster()
# name: (expects, after, lease, silence, clients)
ALLOWED = {
    "nothing": (UNNOTICED, cluster(), LONG, 0.1, []),
    "a process died": (PROCESS_DIED, died(), LONG, 0.4, [Gap("store0", 4.4, 9)]),
    "handed over": (PLANNED, cluster("b", 9, HANDED_OVER, 1), LONG, 0.1, []),
    "a lease that ended": (DEPOSED, cluster("b", 9, LEASE_ENDED, 1, a={"rebuilds": 1}), SHORT, 5.0, []),
    "as the status counts it": (DEPOSED, cluster("b", 9, LEASE_ENDED, 1, a={"counts": {REBUILT: 1}}), SHORT, 5.0, []),
    "a short lease that a stall has ended": (UNNOTICED, cluster("b", 9, LEASE_ENDED, 1), SHORT, 5.0, []),
    "one or the other": (Expects(EITHER, (LEASE_ENDED,)), cluster(), SHORT, 5.0, []),
    "an error that is named": (Expects(EITHER, errors=("no luck",)), cluster(error_lines=["a: ERROR no luck"]), LONG, 0, []),
    "a fault that is named": (Expects(EITHER, faults=("odd",)), cluster(a={"counts": {"odd": 2}}), LONG, 0, []),
    "slow without a promise": (Expects(NEW, (DIED,)), died(), LONG, 80.0, [Gap("store0", 80.0, 9)]),
}
FORBIDDEN = {
    "term: another one where none was due": (UNNOTICED, cluster("b", 9, LEASE_ENDED, 1), LONG, 0.1, []),
    "term: the same one, won again": (UNNOTICED, cluster("a", 9, LEASE_ENDED, 1), LONG, 0.1, []),
    "term: an election that left no trace": (UNNOTICED, cluster(elections=1), LONG, 0.1, []),
    "term: none where one was due": (PROCESS_DIED, cluster(elections=1, **restarted("a")), LONG, 0.1, []),
    "term: two primaries in one": (UNNOTICED, cluster("b"), LONG, 0.1, []),
    "term: one election too many": (PROCESS_DIED, died(elections=2), LONG, 0.1, []),
    "reason: a death that the lease told": (PROCESS_DIED, died(reason=LEASE_ENDED), LONG, 0.1, []),
    "reason: a hand-over that was a crash": (PLANNED, died(), LONG, 0.1, []),
    "late": (PROCESS_DIED, died(), LONG, 28.5, []),
    "late: a hand-over": (PLANNED, cluster("b", 9, HANDED_OVER, 1), LONG, 29.0, []),
    "late: one client of two": (PROCESS_DIED, died(), LONG, 0.1, [Gap("store0", 0.2, 0), Gap("store1", 29.0, 3)]),
    "starved": (UNNOTICED, cluster(), LONG, 0.1, [Gap("store0", 0.2, 0), Gap("store1", None, 3)]),
    "absent": (UNNOTICED, cluster(c={"running": False}), LONG, 0.1, []),
    "unready": (UNNOTICED, cluster(c={"ready": False, "why_not_ready": "catching up"}), LONG, 0.1, []),
    "fault: an object was dropped": (UNNOTICED, cluster(b={"counts": {"objects dropped": 1}}), LONG, 0.1, []),
    "fault: a digest that did not match": (PROCESS_DIED, died(b={"mismatches": 1}), LONG, 0.1, []),
    "rebuild": (UNNOTICED, cluster(b={"rebuilds": 1}), LONG, 0.1, []),
    "rebuild: as the status counts it": (UNNOTICED, cluster(b={"counts": {REBUILT: 1}}), LONG, 0.1, []),
    "rebuild: more than one": (DEPOSED, cluster("b", 9, LEASE_ENDED, 1, a={"rebuilds": 1}, c={"rebuilds": 1}), SHORT, 5, []),
    "error": (UNNOTICED, cluster(error_lines=["a: T ERROR moonkeeper: upkeep failed"]), LONG, 0.1, []),
    "error: a panic": (UNNOTICED, cluster(error_lines=["a: thread 'main' panicked at src/x.rs"]), LONG, 0.1, []),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_a_fault_may_do(name):
    expected, after, lease, silence, clients = ALLOWED[name]
    assert judge(expected, BEFORE, after, lease, silence, clients) == []


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_it_may_not(name):
    expected, after, lease, silence, clients = FORBIDDEN[name]
    found = {each.kind for each in judge(expected, BEFORE, after, lease, silence, clients)}
    assert found == {name.split(":")[0]}


def test_a_process_that_the_fault_did_not_end():
    after = Cluster("a", 7, "first start", (Observed("a", boot_id="x"), *masters()[1:]))
    assert [each.kind for each in judge(UNNOTICED, BEFORE, after, LONG, 0.1)] == ["restarted"]


def test_what_was_counted_before_the_fault_is_not_its_doing():
    before = cluster(a={"rebuilds": 2, "counts": {"odd": 3}, "mismatches": 1})
    assert judge(UNNOTICED, before, before, LONG, 0.1) == []
    more = cluster(a={"rebuilds": 3, "counts": {"odd": 3}, "mismatches": 1})
    assert [each.kind for each in judge(UNNOTICED, before, more, LONG, 0.1)] == ["rebuild"]


@pytest.mark.parametrize("module", [faults, handover_faults, log_faults], ids=lambda module: module.__name__)
def test_every_fault_says_what_it_expects(module):
    found = [
        each
        for name, each in inspect.getmembers(module, inspect.isgeneratorfunction)
        if not name.startswith("_") and each.__module__ == module.__name__
        if list(inspect.signature(each).parameters) == ["world"]
    ]
    silent = [each.__name__ for each in found if not hasattr(each, "expects")]
    # Steps of a fault, which tests use by themselves.
    assert set(silent) <= {"delete_log", "delete_all_keys", "empty_etcd"}
    assert len(found) > len(silent)


def good(began, ended):
    return Call(began, ended, True)


def bad(began, ended):
    return Call(began, ended, False)


@pytest.mark.parametrize(
    "calls, expected",
    [
        ([good(0, 1), good(9, 10), good(10.5, 11), good(19.5, 20)], Gap("c", 9, 0)),
        ([good(0, 1), good(9.5, 9.6), bad(10.5, 14), good(14, 14.4), good(19, 19.5)], Gap("c", 5.1, 1)),
        # A call that began before the fault shows nothing.
        ([good(9, 12), bad(12, 15)], Gap("c", None, 1)),
        ([bad(10.5, 14), bad(15, 19)], Gap("c", None, 2)),
        # After the end of the round nothing counts.
        ([good(9, 9.5), good(21, 22)], Gap("c", None, 0)),
    ],
    ids=["served", "turned away", "answered late", "never", "too late"],
)
def test_the_gap_of_a_client(calls, expected):
    found = gap("c", calls, struck=10, ended=20)
    assert (found.name, found.failed) == (expected.name, expected.failed)
    assert found.seconds == (expected.seconds and pytest.approx(expected.seconds))


def test_errors_are_found_in_logs_once(tmp_path):
    class Master:
        name, logs = "a", [tmp_path / "a-0.log"]

    [path] = Master.logs
    path.write_text("T  INFO moonkeeper: won the election term=3\nT  WARN x: odd\nT ERROR x: bad\nT ERR")
    logs = Logs()
    news = logs.take([Master])
    assert (news.elections, news.errors) == (1, ("a: T ERROR x: bad",))
    with path.open("a") as log:
        log.write("OR y: worse\nthread 'x' panicked at src/a.rs:1\n\x1b[2mT\x1b[0m \x1b[31mERROR\x1b[0m z: colored\n")
    news = logs.take([Master])
    assert news.errors == ("a: T ERROR y: worse", "a: thread 'x' panicked at src/a.rs:1", "a: T ERROR z: colored")
    assert logs.take([Master]) == type(news)((), 0)
