"""What threads felt of a fault."""

import call_times
from call_times import EARLIER, LATER, MEANWHILE, UNDER_WAY


def steady(start, end, step=0.01, name="put"):
    """Calls without a pause, all of which succeed."""
    count = round((end - start) / step)
    return [(name, start + n * step, start + (n + 1) * step, 0) for n in range(count)]


def test_a_thread_is_without_a_success_from_its_last_one_to_its_next_one():
    calls = steady(9, 10) + [("put", 10, 12.5, -900)] + steady(12.5, 15)
    # The fault struck a little before the thread noticed.
    assert call_times.without_success(calls, struck=9.995, stopped=15) == 2510


def test_what_was_answered_after_the_fault_by_the_old_primary_hides_no_gap():
    calls = steady(9, 10.2) + [("put", 10.2, 13.2, -900)] + steady(13.2, 15)
    assert call_times.without_success(calls, struck=10, stopped=15) == 3010


def test_a_call_that_hangs_since_before_the_fault_counts_from_the_last_success():
    calls = steady(9, 10) + [("put", 10, 13, -900)] + steady(13, 14)
    assert call_times.without_success(calls, struck=12, stopped=14) == 3010


def test_a_gap_before_the_fault_does_not_count():
    calls = steady(1, 2) + steady(8, 10) + steady(10, 12)
    assert call_times.without_success(calls, struck=10, stopped=12) <= 11


def test_a_thread_that_never_succeeds_again_has_no_end():
    calls = steady(9, 10) + [("put", 10, 14, -900)]
    assert call_times.without_success(calls, struck=10.5, stopped=15) is None
    assert call_times.median_and_maximum([5, 7, None]) == (7, float("inf"))


def test_a_thread_that_fails_until_the_end_is_without_a_success_until_then():
    calls = steady(9, 11) + [("put", 11, 14.9, -900)]
    assert call_times.without_success(calls, struck=10, stopped=15) == 4000


def test_reads_that_work_do_not_hide_puts_that_do_not():
    calls = steady(9, 10) + steady(10, 11, name="get") + [("put", 11, 11.5, -200)] + steady(11.5, 13)
    assert call_times.without_success(calls, struck=10, stopped=13) == 510
    assert call_times.without_success(calls, struck=10, stopped=13, names=["put"]) == 1510


def test_the_longest_call_counts_whatever_its_result_and_whenever_it_began():
    threads = [steady(9, 12), [("get", 9.5, 12.75, -900)], [("get", 1, 8, 0)]]
    assert call_times.longest_call(threads, struck=10) == 3250


def test_failures_are_counted_by_when_they_began():
    good = steady(9, 10) + steady(12, 13)
    threads = [
        good,
        [("get", 9.9, 10.5, -900), ("put", 10.5, 11.0, -900), ("put", 11.0, 11.4, -900)],
        [("put", 12.2, 12.3, -200), ("remove", 9.0, 9.1, -706), ("remove", 9.55, 9.6, -706)],
    ]
    found = call_times.failures(threads, struck=9.5, stopped=13)
    assert {(each["call"], each["code"], each["cause"]): each["count"] for each in found} == {
        ("get", -900, UNDER_WAY): 1,
        ("put", -900, MEANWHILE): 2,
        ("put", -200, LATER): 1,
        ("remove", -706, EARLIER): 1,
    }


def test_a_wait_in_which_no_call_fails_is_no_interruption():
    """After a takeover reads succeed at once and puts wait for the client to rejoin."""
    turned_away = [("put", 10.001 + n * 0.01, 10.001 + (n + 1) * 0.01, -900) for n in range(6)]
    threads = [steady(9, 10) + turned_away + [("get", 10.06, 10.07, 0), ("put", 10.07, 10.5, 0)] + steady(10.5, 12)]
    found = call_times.failures(threads, struck=9.999, stopped=12)
    assert [(each["cause"], each["count"]) for each in found] == [(MEANWHILE, 6)]
    assert call_times.without_success(threads[0], struck=9.999, stopped=12) == 430


def test_a_round_is_summed_up():
    threads = [steady(9, 10) + [("get", 10, 10.5, -900)] + steady(10.5, 12), steady(9, 12)]
    found = call_times.summary(threads, struck=9.999, stopped=12)
    assert found["without_success_ms"] == [510, 10]
    assert found["longest_call_ms"] == 500
    assert found["calls"] == 353
    assert [each["count"] for each in found["failed"]] == [1]
