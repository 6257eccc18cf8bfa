"""An etcd whose quota is used up (NOSPACE): changes are refused, reads go on, the cause is named, and nothing that was
acknowledged is lost when space is there again."""

import base64
import json
import os
import re
import time

import pytest

from actors import RawActor
from checker import summary
from messages import ALL, TENANT, config, meta
from raw import NoAnswer, Session
from struct_pack import Ok
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)
QUOTA_BYTES = 16 << 20
# An answer that says "unknown" comes after ten seconds.
ANSWER_SECONDS = 45
WRITER = (7, 7)


def fill_up(etcd):
    """Another user of the same etcd writes until nothing more is taken."""
    for number in range(200):
        key, value = (base64.b64encode(each).decode() for each in (b"junk/%d" % number, os.urandom(256 << 10)))
        if etcd.members[0].call("kv/put", {"key": key, "value": value}) is None:
            return
    raise AssertionError("etcd takes more than its quota")


def names_the_cause(text):
    return re.search(r"nospace|no space|out of space|quota|\bfull\b", text, re.IGNORECASE) is not None


def put_start(session, key):
    return session.call("PutStart", WRITER, key, 256, config(), TENANT)


def refused(call, *arguments):
    """What a call is told that fails with an RPC error, and how long that took. One without any answer is not told why."""
    began = time.monotonic()
    with pytest.raises(NoAnswer) as error:
        call(*arguments)
    assert names_the_cause(str(error.value)), error.value
    return str(error.value), time.monotonic() - began


def test_a_full_etcd_says_so(start_world):
    flags = ["--quota-backend-bytes", str(QUOTA_BYTES)]
    world = start_world(clients=1, etcd_flags=flags, may_log=["etcd refuses to write the log"])
    actor = RawActor("raw0", world.seed, world.history, world.published["raw"], world.session())
    actor.put_batch(200)
    keys = world.history.keys()
    world.masters.wait_until_redundant()
    primary = world.masters.wait_until_serving()
    session = Session(world.masters.addresses, world.host, ANSWER_SECONDS)

    fill_up(world.etcd)
    # One that was let in before a write was refused has an unknown outcome, and is told so.
    told, took = refused(put_start, session, "first")
    assert "unknown" in told or "nothing was changed" in told, told
    wait_until(lambda: names_the_cause(json.dumps(primary.status()["faults"])), "status to name the cause")
    # New ones are refused without waiting, before anything is applied.
    told, refused_took = refused(put_start, session, "refused")
    assert "nothing was changed" in told, told
    assert refused_took < max(took, 1)
    refused(session.call, "Remove", keys[0], True, TENANT)
    # Reads go on.
    assert world.masters.primary() is primary
    assert all(each == Ok(True) for each in session.call("BatchExistKey", keys, TENANT))
    code, body = primary.ready()
    assert code == 200 and names_the_cause(body), (code, body)
    assert names_the_cause((world.folder / f"{primary.name}-0.log").read_text()), "the log does not name the cause"

    world.etcd.take_away("junk/")
    world.etcd.reclaim()

    def put_works():
        try:
            answer = put_start(session, "refused")
        except NoAnswer:
            return False
        # What was refused was not applied: the key is free.
        assert isinstance(answer, Ok) or answer.code not in (-703, -705), answer
        return isinstance(answer, Ok)

    wait_until(put_works, "puts to be taken again", 60)
    assert isinstance(session.call("PutEnd", WRITER, meta("refused"), ALL, TENANT), Ok)
    wait_until(lambda: not names_the_cause(primary.ready()[1]), "the cause to go from readiness")
    session.close()
    violations = world.sweep()
    assert not violations, summary(violations)
