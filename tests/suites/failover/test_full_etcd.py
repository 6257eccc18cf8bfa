"""An etcd whose quota is used up (NOSPACE): it is named before and when that happens, changes are refused, reads go on,
and nothing that was acknowledged is lost when space is there again."""

import base64
import json
import os
import re
import subprocess
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
# etcd compares the quota with the size at its last commit, which is up to 100 ms old: what was written since can be more
# than the space that is left. With a commit for each write the size is exact.
ETCD_FLAGS = ["--quota-backend-bytes", str(QUOTA_BYTES), "--backend-batch-limit", "1"]
# An answer that says "unknown" comes after ten seconds.
ANSWER_SECONDS = 45
WRITER = (7, 7)
# Small enough that there is a moment with little space left.
VALUE_BYTES = 64 << 10


def fill_up(etcd, until=None):
    """Another user of the same etcd writes until its file has so many bytes, or if none are named, until nothing more is
    taken."""
    for number in range(1000):
        if until and int(etcd.members[0].call("maintenance/status", {})["dbSize"]) >= until:
            return
        key, value = (base64.b64encode(each).decode() for each in (b"junk/%d" % number, os.urandom(VALUE_BYTES)))
        if etcd.members[0].call("kv/put", {"key": key, "value": value}) is None:
            assert until is None, f"etcd takes no more, and its file has not {until} bytes yet"
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
    world = start_world(clients=1, etcd_flags=ETCD_FLAGS, may_log=["etcd refuses to write the log"])
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
    # Reads by key go on.
    assert world.masters.primary() is primary
    assert all(each == Ok(True) for each in session.call("BatchExistKey", keys, TENANT))
    # A search rests on everything that was applied, and etcd has not taken all of that.
    told, _ = refused(session.call, "GetReplicaListByRegex", "^none$", TENANT)
    assert "unknown" in told, told
    code, body = primary.ready()
    assert code == 200 and names_the_cause(body), (code, body)
    assert names_the_cause((world.folder / f"{primary.name}-0.log").read_text()), "the log does not name the cause"

    world.etcd.delete("junk/")
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


def in_use(master):
    """What its status says about etcd: bytes in use, quota, alarms."""
    found = master.status()["etcd"] or {}
    return found.get("in_use_bytes"), found.get("quota_bytes"), found.get("alarms")


def gauges(master):
    """Its metrics about etcd, by name and label."""
    return dict(re.findall(r"^moonkeeper_etcd_(\S+) (\S+)$", master.http("/metrics"), re.MULTILINE))


def logged(master, text):
    """How many lines of its log have this text."""
    return sum(text in line for log in master.logs for line in log.read_text().splitlines())


def shown(world, *more):
    """What `moonkeeper status` prints."""
    command = [os.environ["MOONKEEPER_BIN"], "status", "--etcd_endpoints", world.etcd.endpoints]
    command += ["--cluster_id", world.masters.cluster_id, *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_space_is_named_before_it_is_gone(start_world):
    world = start_world(clients=0, etcd_flags=ETCD_FLAGS, may_log=["etcd refuses to write the log"])
    world.masters.wait_until_redundant()
    # The primary and both standbys, each for itself.
    masters, endpoint = world.masters.all, f'{{endpoint="http://{world.etcd.endpoints}"}}'
    wait_until(lambda: all(in_use(each)[1:] == (QUOTA_BYTES, []) for each in masters), "every master to know the quota")
    for each in masters:
        found = gauges(each)
        assert float(found[f"quota_bytes{endpoint}"]) == QUOTA_BYTES
        assert 0 < float(found[f"db_in_use_bytes{endpoint}"]) <= float(found[f"db_bytes{endpoint}"]) < QUOTA_BYTES / 2
        assert {name: value for name, value in found.items() if name.startswith("alarm")} == {
            'alarm{alarm="CORRUPT"}': "0",
            'alarm{alarm="NOSPACE"}': "0",
        }
        assert not logged(each, "little space left")
    assert "etcd: " in shown(world) and "nothing is wrong" in shown(world)

    fill_up(world.etcd, until=QUOTA_BYTES * 96 // 100)
    wait_until(lambda: all(logged(each, "etcd has little space left") for each in masters), "low space to be logged")
    for each in masters:
        used, quota, alarms = in_use(each)
        assert used > QUOTA_BYTES / 2 and (quota, alarms) == (QUOTA_BYTES, [])
        assert float(gauges(each)[f"db_bytes{endpoint}"]) > QUOTA_BYTES * 0.95
    assert "etcd has little space left: " in shown(world)
    assert json.loads(shown(world, "-o", "json"))["etcd"]["quota_bytes"] == QUOTA_BYTES
    assert world.masters.primary().ready()[0] == 200

    fill_up(world.etcd)
    wait_until(lambda: all(in_use(each)[2] == ["NOSPACE"] for each in masters), "the alarm to be known")
    for each in masters:
        assert gauges(each)['alarm{alarm="NOSPACE"}'] == "1"
        assert logged(each, "etcd is out of space (alarm NOSPACE)") == 1
    assert "etcd is out of space (alarm NOSPACE)" in shown(world)

    world.etcd.delete("junk/")
    world.etcd.reclaim()
    wait_until(lambda: all(in_use(each)[2] == [] for each in masters), "the alarm to be gone")
    for each in masters:
        assert gauges(each)['alarm{alarm="NOSPACE"}'] == "0"
        # Once for each change.
        assert logged(each, "enough space and no alarm again") == 1
        assert logged(each, "etcd has little space left") == 1
