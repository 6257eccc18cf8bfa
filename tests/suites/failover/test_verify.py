"""`moonkeeper verify`: real masters with the same state are equal, also while they change it; a byte that changes in the
memory of one of them is found, and a master that does not answer is named."""

import json
import os
import subprocess

import pytest

import memory
from actors import Crowd, RawActor
from waiting import wait_until

pytestmark = pytest.mark.timeout(240)
KEYS = 600
VICTIM, CHANGED = "verify/an-object-whose-key-is-nowhere-else/a", "verify/an-object-whose-key-is-nowhere-else/b"


def put(world, name, keys=None):
    """Puts some objects, all of them acknowledged."""
    actor = RawActor(name, world.seed, world.history, world.published["raw"], world.session())
    started = actor.start_keys(keys or actor.new_keys(KEYS), actor.plan)
    assert len(started) == len(keys or range(KEYS))
    actor.end_batch(started)


def verify(world, *arguments, code, source=None):
    """Runs `moonkeeper verify` and returns what it prints."""
    source = source or ("--etcd_endpoints", world.etcd.endpoints, "--cluster_id", world.masters.cluster_id)
    token = ("--admin_token_file", world.folder / "token")
    run = [os.environ["MOONKEEPER_BIN"], "verify", *map(str, (*source, *token, *arguments))]
    done = subprocess.run(run, capture_output=True, text=True, timeout=150)
    assert done.returncode == code, done
    assert done.stderr == "", done
    return done.stdout


def found(world, code, **more):
    return json.loads(verify(world, "-o", "json", code=code, **more))


def names(world):
    return {each.name for each in world.masters.all}


def mismatches(world):
    return {each.metric("moonkeeper_digest_mismatch_total") for each in world.masters.all}


def test_masters_are_equal_at_one_record_whether_they_rest_or_not(start_world):
    world = start_world(clients=1)
    put(world, "raw")
    world.masters.wait_until_redundant()
    shown = verify(world, code=0)
    assert "\n  objects: 600, equal\n" in shown and "\nall masters have the same state, digest " in shown, shown
    primary = world.masters.primary()
    answer = found(world, 0, source=("--http", primary.host.at(primary.metrics_port)))
    assert answer["equal"] and answer["difference"] is None and answer["notes"] == []
    assert {each["name"] for each in answer["members"] if each["compared"]} == names(world)
    assert len({each["computed"] for each in answer["members"]} | {each["kept"] for each in answer["members"]}) == 1
    assert {kind["kind"]: kind["members"][primary.name]["count"] for kind in answer["kinds"]}["object"] == KEYS

    # Clients put, read and remove all the time.
    before = primary.status()["applied"]
    crowd = Crowd(world.actors())
    try:
        for _ in range(3):
            answer = found(world, 0)
            assert answer["equal"] and answer["at"]["sequence_id"] > before
            before = answer["at"]["sequence_id"]
    finally:
        crowd.stop()
    assert mismatches(world) == {0}


@pytest.mark.parametrize("role", ["standby", "primary"])
def test_a_byte_that_changes_in_memory_is_found(start_world, role):
    world = start_world(clients=1)
    put(world, "raw")
    put(world, "victim", [VICTIM])
    world.masters.wait_until_redundant()
    primary = world.masters.primary()
    wrong = primary if role == "primary" else world.masters.standbys()[0]
    right = names(world) - {wrong.name}
    assert memory.replace(wrong.process.pid, VICTIM.encode(), CHANGED.encode()) > 0

    answer = found(world, 1)
    difference = answer["difference"]
    assert difference, json.dumps(answer)
    assert (difference["kind"], difference["name"]) in {("object", VICTIM), ("object", CHANGED)}, answer
    having = {name for name, fields in difference["members"].items() if fields}
    assert having == (right if difference["name"] == VICTIM else {wrong.name}), difference
    [kind] = [kind["kind"] for kind in answer["kinds"] if not kind["equal"]]
    assert kind == "object"
    # The masters themselves cannot know: no record says it.
    assert mismatches(world) == {0}
    [note] = answer["notes"]
    assert note.startswith(f"{wrong.name} keeps the digest ") and note.endswith("its memory changed without a record")
    shown = verify(world, code=1)
    assert "\n  objects: DIFFERENT\n" in shown and ": not there\n" in shown and "same state" not in shown, shown

    # It builds its state anew from the log.
    wrong.kill()
    wrong.start()
    world.masters.wait_until_redundant()
    world.masters.wait_until_serving()
    assert found(world, 0)["equal"]


def test_a_master_that_does_not_answer_is_named(start_world):
    world = start_world(clients=1)
    put(world, "raw")
    world.masters.wait_until_redundant()
    stopped = world.masters.standbys()[0]
    stopped.pause()
    try:
        answer = found(world, 1)
        compared = {each["name"]: (each["compared"], each["error"]) for each in answer["members"]}
        assert answer["equal"] and not compared[stopped.name][0], answer
        assert "no answer from" in compared[stopped.name][1]
        assert {name for name, (done, _) in compared.items() if done} == names(world) - {stopped.name}
    finally:
        stopped.resume()
    world.masters.wait_until_redundant()
    wait_until(lambda: found(world, 0)["equal"], "all masters to be equal")
