"""The harness itself: that it reads the wire right, and that it can fail."""

import os
import subprocess
import sys
import time
from pathlib import Path

import coverage
import pair as pairing
import processes
import pytest
import shrink as shrinking
import walk as walking
from calls import Call
from copies import Copies
from deliberate import DELIBERATE, deliberate
from ledger import Ledger
from both_masters import Master, MasterDied, ours_command
from messages import GRACEFULLY_UNMOUNTING, MIB, TENANT, config, segment
from normalise import Normaliser
from pair import Difference, Side
from rpc import RPCS, TABLE_PATH
from scenario import Scenario
from struct_pack import CodecError, Err, Message, Ok, parse_literal
from tally import Tally, error_codes, is_success
from waiting import wait_until

HERE = Path(__file__).resolve().parent


def test_codes_follow_from_the_literals():
    for line in TABLE_PATH.read_text().splitlines():
        if not line.startswith("mooncake::"):
            continue
        _, _, request_code, request, response_code, response = line.split("\t")
        for code, literal in ((request_code, request), (response_code, response)):
            if literal != "-":
                assert Message(bytes.fromhex(literal)).code == int(code, 16)


@pytest.mark.parametrize(
    ("literal", "value", "encoded"),
    [
        ("fd800c800cff", ("k1", "default"), "d81ef97c026b310764656661756c74"),
        ("87fa01", Ok(None), "cc6828af01"),
        ("87fa01", Err(-704), "cc6828af0040fdffff"),
        ("87fd0301ff01", Ok((7, 2)), "528f2a7401070000000000000002000000"),
        ("8487fa01", [Ok(None), Err(-704)], "ce52fc3902010040fdffff"),
        ("84fd04048989ff", [(1, 2)], "06a2eea10101000000000000000200000000000000"),
        ("800c", "x" * 300, "77facf9d082c01" + "78" * 300),
        ("03", -5, "34686686fbffffffffffffff"),
    ],
)
def test_samples(literal, value, encoded):
    message = Message(bytes.fromhex(literal))
    assert message.encode(value).hex() == encoded
    assert message.decode(bytes.fromhex(encoded)) == value
    assert message.decode(message.encode(value, with_literal=True)) == value


def test_truncated_and_foreign_bytes_are_refused():
    message = RPCS["ExistKey"].request
    body = message.encode(("abc", "d"))
    for bad in (body[:-1], body + b"x", b"\0" * 4 + body[4:]):
        with pytest.raises(CodecError):
            message.decode(bad)
    with pytest.raises(CodecError):
        parse_literal(bytes.fromhex("99"))


def _replica(identity, address, endpoint="e:1", size=100, status=3):
    return (identity, (0, ((size, address, "tcp", endpoint),)), status)


def test_ids_and_addresses_are_renamed_but_not_lost():
    left, right = Normaliser(), Normaliser()
    first = left("PutStart", Ok([_replica(1, 0x1000), _replica(2, 0x2000)]))
    assert first == right("PutStart", Ok([_replica(70, 0x9000), _replica(80, 0x8000)]))
    assert first != right("PutStart", Ok([_replica(70, 0x9000), _replica(70, 0x8000)]))
    again = left("GetReplicaList", Ok(([_replica(1, 0x1000)], 5, None)))
    assert again == right("GetReplicaList", Ok(([_replica(70, 0x9000)], 5, None)))
    assert left("CreateCopyTask", Ok((1, 1))) == right("CreateCopyTask", Ok((5, 5)))
    assert left("CreateCopyTask", Ok((2, 2))) != right("CreateCopyTask", Ok((5, 5)))
    assert again != right("GetReplicaList", Ok(([_replica(70, 0x9000, "other:1")], 5, None)))
    assert again != right("GetReplicaList", Ok(([_replica(70, 0x9000, status=2)], 5, None)))


def _put(ledger, key, address, name="PutStart"):
    return ledger.observe(Call(name, ((1, 1), key, 100, config(), TENANT)), Ok([_replica(1, address)]))


def test_bad_addresses_are_reported():
    ledger = Ledger()
    ledger.observe(Call("MountSegment", (segment((1, 1), "s", 0x1000, MIB, "e:1"), (1, 1))), Ok(None))
    assert _put(ledger, "a", 0x1000) == []
    assert "outside" in _put(ledger, "b", 0x1000 + MIB - 50)[0]
    assert "overlaps" in _put(ledger, "c", 0x1000 + 99)[0]
    assert _put(ledger, "d", 0x1000 + 1000) == []
    # In place is no overlap with itself, but what an upsert left behind counts.
    assert _put(ledger, "d", 0x1000 + 1000, "UpsertStart") == []
    assert _put(ledger, "d", 0x1000 + 2000, "UpsertStart") == []
    assert "abandoned" in _put(ledger, "e", 0x1000 + 1050)[0]
    ledger.observe(Call("Remove", ("a", True, TENANT)), Ok(None))
    ledger.observe(Call("Remove", ("c", True, TENANT)), Ok(None))
    assert _put(ledger, "f", 0x1000) == []


def test_only_what_was_freed_is_forgotten():
    ledger = Ledger()
    ledger.observe(Call("MountSegment", (segment((1, 1), "s", 0x1000, MIB, "e:1"), (1, 1))), Ok(None))
    assert _put(ledger, "whole", 0x1000) == [] and _put(ledger, "writing", 0x2000) == []
    ledger.observe(Call("PutEnd", ((1, 1), ("whole", None), 6, TENANT)), Ok(None))
    for name, arguments, answer in (
        ("Remove", ("whole", False, TENANT), Err(-706)),
        ("BatchRemove", (["other", "whole"], False, TENANT), [Ok(None), Err(-706)]),
        ("BatchReplicaClear", (["whole"], (1, 1), ""), Ok([])),
        ("PutRevoke", ((1, 1), "whole", 6, TENANT), Err(-600)),
        ("RemoveByRegex", ("(", True, TENANT), Err(-600)),
        ("RemoveByRegex", ("x", True, TENANT), Ok(0)),
        ("RemoveAll", (False, TENANT), 0),
    ):
        ledger.observe(Call(name, arguments), answer)
        assert "overlaps" in _put(ledger, "new", 0x1000)[0], name
        ledger.observe(Call("Remove", ("new", True, TENANT)), Ok(None))
    # What a removal of many took is not said, but it takes nothing that is being written.
    ledger.observe(Call("RemoveAll", (True, TENANT)), 1)
    assert _put(ledger, "new", 0x1000) == []
    assert "overlaps" in _put(ledger, "newer", 0x2000)[0]
    ledger.observe(Call("Remove", ("new", True, TENANT)), Err(-704))
    assert _put(ledger, "newest", 0x1000) == []


def test_a_segment_that_never_goes_is_reported(monkeypatch):
    monkeypatch.setattr(pairing, "_UNMOUNT_DEADLINE_SECONDS", 0.2)

    class Connection:
        def call(self, name, identity):
            return Ok(GRACEFULLY_UNMOUNTING)

    side = type("Stuck", (), {"connection": Connection(), "master": type("M", (), {"label": "ours"})})
    assert "ours: a segment" in pairing.Pair._await_unmounted(side, (1, 1))[0]


def test_outcomes_that_are_no_longer_met():
    tally = Tally()
    for (name, outcome), count in coverage.recorded().items():
        if outcome == coverage.SUCCESS:
            tally.successes[name] = count
        else:
            tally.codes[int(outcome)][name] = count
    assert coverage.too_rare(tally) == []
    tally.successes["PutStart"] //= 3
    del tally.codes[-704]["Remove"]
    assert {rare[:2] for rare in coverage.too_rare(tally)} == {("PutStart", "success"), ("Remove", "-704")}


def test_what_counts_as_success():
    assert is_success(Ok(False)) and is_success(3) and is_success([Err(-1), Ok(None)])
    assert not is_success(Err(-1)) and not is_success([Err(-1)]) and not is_success([])
    assert error_codes([Err(-1), Ok(None), Err(-2)]) == [-1, -2]


def test_timestamps_have_to_be_of_now():
    now = int(time.time() * 1000)

    def state(created, updated):
        return Normaliser()("QueryTask", Ok(((1, 1), 0, 3, created, updated, (1, 1), "")))

    def fetched(created):
        return Normaliser()("FetchTasks", Ok([((1, 1), 0, "{}", created, 10)]))

    assert state(now, now + 5) == state(now - 1000, now - 7)
    for wrong in (0, now // 1000, now * 1000, now - 3_600_000):
        assert state(wrong, now) != state(now, now)
        assert state(now, wrong) != state(now, now)
        assert fetched(wrong) != fetched(now) == fetched(now - 5)
    assert state(now, now - 1) != state(now, now)


def _copies(*unmounted):
    """A copy of "k" to two segments, some of which are gone."""
    copies = Copies()
    for number in (1, 2, 3):
        message = segment((number, number), f"s{number}", 0x1000, MIB, f"e:{number}")
        copies.observe(Call("MountSegment", (message, (1, 1))), Ok(None))
    written = [_replica(2, 0x1000, "e:2"), _replica(3, 0x1000, "e:3")]
    copies.observe(Call("CopyStart", ((1, 1), "k", TENANT, "s1", ["s2", "s3"])), Ok((_replica(1, 0x1000), written)))
    for number in unmounted:
        copies.observe(Call("UnmountSegment", ((number, number), (1, 1))), Ok(None))
    return copies


def test_a_copy_is_stranded_when_all_its_targets_are_gone():
    assert not _copies().stranded("k") and not _copies(2).stranded("k") and not _copies(1, 2).stranded("k")
    copies = _copies(2, 3)
    assert copies.stranded("k") and not copies.stranded("other")
    copies.observe(Call("CopyEnd", ((1, 1), "k", TENANT)), Err(-601))
    assert copies.stranded("k")
    copies.observe(Call("CopyEnd", ((1, 1), "k", TENANT)), Err(-712))
    assert not copies.stranded("k")


def test_only_listed_differences_are_tolerated():
    here = _copies(2, 3)
    remove, batch = Call("Remove", ("k", True, TENANT)), Call("BatchRemove", (["k", "l"], True, TENANT))
    incomplete, copied = Err(-703), Err(-708)
    assert deliberate(batch, [incomplete, Ok(None)], [copied, Ok(None)], here).name == "removal-beside-a-copy"
    for copies, call, left, right in (
        (here, batch, [copied, Ok(None)], [incomplete, Ok(None)]),
        (here, batch, [incomplete, incomplete], [copied, copied]),
        (here, batch, [incomplete, Ok(None)], [copied, Err(-704)]),
        (here, batch, [incomplete, Ok(None)], [copied]),
        (here, batch, [incomplete, Ok(None)], ("rpc error", 10, "")),
        (here, remove, incomplete, copied),
        (_copies(2), batch, [incomplete, Ok(None)], [copied, Ok(None)]),
    ):
        assert deliberate(call, left, right, copies) is None, (call, left, right)
    # What only test_deliberate.py meets is accepted nowhere else, not even as documented.
    long_key = Call("PutStart", ((1, 1), "k" * 5000, 10, config(), TENANT))
    assert deliberate(long_key, Ok([]), Err(-600), here) is None


def test_a_scenario_says_what_both_answer(monkeypatch):
    send = Side.send

    def lying(side, call):
        answer = send(side, call)
        return Ok(True) if side is s.pair.right and call.name == "ExistKey" else answer

    monkeypatch.setattr(Side, "send", lying)
    # As if any difference were one that is kept on purpose.
    monkeypatch.setattr(pairing, "deliberate", lambda *_: DELIBERATE[0])
    with pytest.raises(AssertionError, match="expected: Ok\\(False\\)"), Scenario() as s:
        s("ExistKey", "k", TENANT, expect=Ok(False))


def test_a_master_that_dies_is_not_started_again(monkeypatch):
    starts = []
    spawn = processes.spawn
    monkeypatch.setattr(processes, "spawn", lambda *arguments: starts.append(spawn(*arguments)) or starts[-1])
    with pytest.raises(MasterDied, match="no_such_flag"):
        Master("ours", ours_command(), {"no_such_flag": 1}).start()
    assert len(starts) == 1


def test_masters_die_with_the_run_even_if_it_is_killed(tmp_path):
    code = "import both_masters; m = both_masters.Master('m', both_masters.reference_command(), {}).start(); print(m.process.pid, m.log)"
    code += "; import sys, time; sys.stdout.flush(); time.sleep(100)"
    path = os.pathsep.join(str(folder) for folder in (HERE, HERE.parent / "common"))
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}
    ) as run:
        try:
            pid, log = run.stdout.readline().split()
        finally:
            run.kill()
    Path(log).unlink()
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), "the master to end")


def test_a_wrong_answer_ends_a_walk(monkeypatch):
    send = Side.send

    def lying(side, call):
        answer = send(side, call)
        return Err(-704) if side.master.label == "ours" and call.name == "QueryTask" else answer

    monkeypatch.setattr(Side, "send", lying)
    tally = Tally()
    walked = walking.walk(4242, tally)
    assert walked.difference is not None
    assert walked.difference.call is walked.calls[-1]
    assert sum(tally.differences.values()) == 1


def test_shrinking_keeps_what_matters(monkeypatch):
    calls = [Call("ExistKey", (f"k{number}", TENANT)) for number in range(40)]
    calls[7] = Call("PutStart", ((1, 1), "k", 1, config(), TENANT))
    calls.append(Call("GetReplicaList", ("k", TENANT)))

    def replay(candidate, **_flags):
        if calls[7] in candidate and calls[-1] in candidate:
            return len(candidate) - 1, Difference(candidate[-1], (), Ok(1), Ok(2))
        return None

    monkeypatch.setattr(shrinking, "replay", replay)
    shrunk, difference = shrinking.shrink(calls, Difference(calls[-1], (), Ok(1), Ok(2)))
    assert shrunk == [calls[7], calls[-1]]
    assert difference.call is calls[-1]
