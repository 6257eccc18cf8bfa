"""Switchovers under a real client whose threads never pause: what its calls return until it has rejoined."""

import collections
import re

import pytest

from waiting import wait_until

pytestmark = pytest.mark.timeout(240)

THREADS = 8
SWITCHOVERS = 5
VALUE = b"x" * 1024
RPC_FAIL = -900
# Engines read -200 as memory pressure; -706 says that a reader may still hold the object.
NEVER = {-200, -706}


def wait_for_success(client, moment):
    """Until every thread has put something that it began after this moment."""

    def all_have():
        puts = ([each for each in calls if each[0] in ("put", "put_batch")] for calls in client.calls())
        return all(any(began > moment and result == 0 for _, began, _, result in each) for each in puts)

    wait_until(all_have, "every thread to put again")


def causes(log):
    """What the client says of calls that the master did not answer (-900), with the number of times."""
    said = re.findall(r"RPC call failed: (.*)$", log.read_text(errors="replace"), re.MULTILINE)
    return collections.Counter(said)


def test_no_put_of_a_client_that_never_pauses_finds_no_memory(start_world, capsys):
    world = start_world(clients=1)
    [client] = world.clients
    client.start_writing(THREADS, VALUE)
    for _ in range(SWITCHOVERS):
        world.masters.wait_until_connected()
        primary = world.masters.primary()
        status, body = primary.try_switchover()
        assert status == 200, body
        world.wait_for_another(primary)
        wait_for_success(client, max(each[1] for calls in client.calls() for each in calls))
    client.stop_writing()
    results = collections.Counter((call, result) for calls in client.calls() for call, _, _, result in calls)
    failed = {each: count for each, count in results.items() if each[1] < 0}
    with capsys.disabled():
        print(f"\n{SWITCHOVERS} switchovers, {results.total()} calls, failed: {failed}")
        print(f"causes of {RPC_FAIL}: {dict(causes(client.log_path))}")
    unexpected = {(call, code): count for (call, code), count in failed.items() if code != RPC_FAIL}
    assert not {code for _, code in unexpected} & NEVER, unexpected
    assert not unexpected
    now, ever, resumed, starved = (
        sum(each.metric(f"moonkeeper_parked_puts{name}") for each in world.masters.all)
        for name in ("", "_total", "_resumed_total", "_starved_total")
    )
    assert ever > 0, "no put came before the client had rejoined: this shows nothing"
    assert (now, starved) == (0, 0) and resumed > 0
