"""Faults in the middle of a planned hand-over; see faults.py for what a fault is."""

import os
import threading
import time

from bench_load import fill, reading
from expectations import EITHER, HANDED_OVER, LEASE_ENDED, SAME, expects
from faults import PLANNED, PROCESS_DIED
from messages import TENANT
from raw import NoAnswer, NotSent, Session
from struct_pack import Ok
from waiting import wait_until

# Longer than a hand-over takes before it is given up.
ABORT_SECONDS = 12
# Objects that a slow search looks at.
SEARCHED_OBJECTS = 60_000
# Objects that are read while the primary hands over.
READ_OBJECTS = int(os.environ.get("MOONKEEPER_FAULT_OBJECTS", "2000000"))
READ_SECONDS = 3
# Look-ahead takes a search out of the linear engine: with these it takes some seconds.
SLOW = "^" + "(?=.*0)" * 8
# Keys of `moonkeeper bench` only.
NO_KEY, EVERY_KEY = SLOW + "moonkeeper.*QQQ", SLOW + "moonkeeper"
# Longer than a master searches.
SEARCH_SECONDS = 60


def documented(answer):
    """Whether a switchover was answered as docs/admin-api.md says: done, or an error with its code."""
    status, body = answer
    return status == 200 or (status in (404, 409, 503) and body["code"] and body["message"])


def _hand_over_to_a_stalled_target(world, seconds):
    primary = world.masters.wait_until_serving()
    target = world.random.choice(world.masters.standbys())
    answers = []
    asked = threading.Thread(target=lambda: answers.append(primary.try_switchover(target.name)))
    struck = time.monotonic()
    target.pause()
    asked.start()
    time.sleep(seconds)
    target.resume()
    asked.join()
    assert answers and documented(answers[0]), f"a switchover was answered with {answers}"
    yield struck


@expects(SAME, elections=0)
def aborted_handover(world):
    """The target hangs until the hand-over is given up."""
    yield from _hand_over_to_a_stalled_target(world, ABORT_SECONDS)


@expects(EITHER, (HANDED_OVER, LEASE_ENDED), rebuilds=1)
def stalled_target(world):
    """The target hangs for about as long as leases last, in the middle of a hand-over."""
    yield from _hand_over_to_a_stalled_target(world, world.random.uniform(3, 9))


def remove_by_regex(world, pattern):
    """The number of objects that were removed; None when the answer did not come."""
    session = Session(world.masters.addresses, world.host, SEARCH_SECONDS)
    try:
        answer = session.call("RemoveByRegex", pattern, True, TENANT)
        return answer.value if isinstance(answer, Ok) else None
    except (NoAnswer, NotSent):
        return None
    finally:
        session.close()


@expects(EITHER, (HANDED_OVER,), rebuilds=2)
def slow_removal(world):
    """Two switchovers, a slow removal by pattern under way in each. Needs a world of raw clients."""
    # What an earlier round of this left.
    wait_until(lambda: remove_by_regex(world, "^moonkeeper/bench/") is not None, "an empty index")
    fill(world, SEARCHED_OBJECTS)
    struck = time.monotonic()
    for pattern in (NO_KEY, EVERY_KEY):
        world.masters.wait_until_connected()
        search = threading.Thread(target=remove_by_regex, args=[world, pattern])
        search.start()
        time.sleep(1)
        assert documented(world.masters.wait_until_serving().try_switchover())
        search.join()
        # Its connection may have gone before it has ended.
        time.sleep(world.random.uniform(0, 10))
    yield struck


def fill_for_reads(world):
    """Puts the objects that are read, once in a world."""
    if not world.filled:
        world.filled = world.objects
        fill(world, world.filled)
        world.masters.wait_until_connected()


def _check_filled(world):
    after = world.masters.wait_until_serving().metric("moonkeeper_objects")
    assert after >= world.filled, f"{after:,.0f} of {world.filled:,} objects are left"


@expects(PLANNED)
def switchover_under_reads(world):
    """A switchover while all of many objects are read. Needs a world of raw clients that says how many."""
    fill_for_reads(world)
    with reading(world, world.filled) as primary:
        time.sleep(READ_SECONDS)
        struck = time.monotonic()
        status, body = primary.try_switchover()
        assert status == 200, f"a switchover was answered with {body}"
        yield struck
    _check_filled(world)


@expects(PROCESS_DIED)
def kill_under_reads(world):
    """SIGKILL of the primary while all of many objects are read. Needs a world of raw clients that says how many."""
    fill_for_reads(world)
    with reading(world, world.filled) as primary:
        time.sleep(READ_SECONDS)
        struck = time.monotonic()
        primary.kill()
        yield struck
    _check_filled(world)
    primary.start()
