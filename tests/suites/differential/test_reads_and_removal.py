"""Exist, Get, the removals, and what a lease does to them."""

from messages import ALL, TENANT
from scenario import A, B, STRANGER
from struct_pack import Err, Ok

OK = Ok(None)


def test_reads_of_every_state(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.start(A, "writing")
        s.put(A, "whole", replicas=2)
        s.put(A, "lost", preferred=["seg2"])
        s("UnmountSegment", (2, 2), B)
        for key in ("writing", "whole", "lost", "missing", ""):
            s("ExistKey", key, TENANT, expect=Ok(key == "whole"))
            assert isinstance(s.get(key), Ok) == (key == "whole"), key
        s("BatchExistKey", ["writing", "whole", "lost", "missing", "whole"], TENANT)
        s("BatchGetReplicaList", ["writing", "whole", "lost", "missing", "whole"], TENANT)
        s("GetReplicaListByRegex", "", TENANT)
        s.start(A, "lost")


def test_every_read_gives_a_lease(scenario):
    with scenario() as s:
        s.mount(1)
        for key in ("exist", "get", "batch exist", "batch get", "regex", "unread"):
            s.put(A, key)
        s("ExistKey", "exist", TENANT)
        s.get("get")
        s("BatchExistKey", ["batch exist"], TENANT)
        s("BatchGetReplicaList", ["batch get"], TENANT)
        s("GetReplicaListByRegex", "^regex$", TENANT)
        for key in ("exist", "get", "batch exist", "batch get", "regex"):
            s.remove(key, expect=Err(-706))
        s.remove("unread", expect=OK)
        s("RemoveByRegex", "e", False, TENANT, expect=Ok(0))
        s("RemoveAll", False, TENANT, expect=0)
        s("BatchReplicaClear", ["get", "exist"], A, "", expect=Ok([]))
        s("RemoveByRegex", "^batch", True, TENANT, expect=Ok(2))
        s.remove("get", True, expect=OK)
        s("RemoveAll", True, TENANT, expect=2)


def test_order_of_the_removal_checks(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "copying")
        s("CopyStart", A, "copying", TENANT, "seg1", ["seg2"])
        s.put(A, "task only")
        s("CopyStart", A, "task only", TENANT, "seg1", [])
        s.start(A, "writing")
        for key in ("copying", "task only", "writing", "missing"):
            s.remove(key)
            s.remove(key, True)
        s.get("copying")
        s.get("task only")
        for key in ("copying", "task only"):
            s.remove(key, expect=Err(-706))
        s("BatchRemove", ["copying", "task only", "writing", "missing", ""], True, TENANT)
        s("RemoveByRegex", ".", True, TENANT, expect=Ok(0))
        s("RemoveAll", True, TENANT, expect=0)


def test_batch_remove_sees_its_own_removals(scenario):
    with scenario() as s:
        s.mount(1)
        for key in ("a", "b", "leased"):
            s.put(A, key)
        s.get("leased")
        s("BatchRemove", ["a", "a", "missing", "leased", "b"], False, TENANT)
        s("BatchRemove", ["leased", "leased"], True, TENANT, expect=[OK, Err(-704)])
        s("BatchRemove", [], True, TENANT, expect=[])


def test_pins_do_not_stop_a_removal(scenario):
    with scenario() as s:
        s.mount(1)
        for number in range(4):
            s.put(A, f"hard{number}", hard_pin=True)
            s.put(A, f"soft{number}", soft_pin=1)
        s.remove("hard0", expect=OK)
        s("BatchReplicaClear", ["hard1", "soft1"], A, "")
        s("RemoveByRegex", "2$", False, TENANT, expect=Ok(2))
        s("RemoveAll", False, TENANT, expect=3)


def test_replica_clear(scenario):
    with scenario() as s:
        s.mount(1, 2)
        s.put(A, "two", replicas=2)
        s("BatchReplicaClear", ["two"], B, "", expect=Ok([]))
        s("BatchReplicaClear", ["two"], A, "10.0.0.1:7001", expect=Ok([]))
        s("BatchReplicaClear", ["two"], A, "nope", expect=Ok([]))
        s("BatchReplicaClear", ["two"], A, "seg1", expect=Ok(["two"]))
        s.get("two")
        s("BatchReplicaClear", ["two"], A, "seg2", expect=Ok([]))
        s.put(A, "last", replicas=1)
        s("BatchReplicaClear", ["last"], A, "seg1", expect=Ok(["last"]))
        s.get("last", expect=Err(-704))
        s.put(A, "mine")
        s.put(B, "theirs")
        s.start(A, "writing")
        s("BatchReplicaClear", ["mine", "mine", "missing", "theirs", "writing"], A, "", expect=Ok(["mine"]))
        s("BatchReplicaClear", ["writing"], A, "seg1")
        s("BatchReplicaClear", ["theirs"], STRANGER, "", expect=Ok([]))
        s("BatchReplicaClear", ["theirs"], (0, 0), "", expect=Ok([]))
        # The owner is whoever wrote last.
        s.start(A, "theirs", upsert=True)
        s.end(A, "theirs")
        s("BatchReplicaClear", ["theirs"], B, "", expect=Ok([]))
        s("BatchReplicaClear", ["theirs"], A, "", expect=Ok(["theirs"]))


def test_replica_clear_during_a_copy(scenario):
    with scenario() as s:
        s.mount(1, 2, 3)
        s.put(A, "k")
        s("CopyStart", B, "k", TENANT, "seg1", ["seg2"])
        s("BatchReplicaClear", ["k"], A, "", expect=Ok([]))
        s("BatchReplicaClear", ["k"], A, "seg2", expect=Ok([]))
        s("BatchReplicaClear", ["k"], A, "seg1", expect=Ok(["k"]))
        s.get("k", expect=Err(-703))
        s("UpsertStart", A, "k", 1000, (1, 0, 0, 0, None, False, [], "", [], False, 0, "", None), TENANT)
        s("CopyEnd", B, "k", TENANT, expect=Err(-712))
        s.get("k", expect=Err(-704))
        s.put(A, "m")
        s("CopyStart", B, "m", TENANT, "seg1", [])
        s("BatchReplicaClear", ["m"], A, "")
        s("CopyEnd", B, "m", TENANT)
        s.end(A, "m", ALL)


def test_objects_of_an_unmounted_segment_are_gone(scenario):
    with scenario() as s:
        s.mount(1, 2)
        for number in range(20):
            s.put(A, f"one{number}")
            s.put(A, f"both{number}", replicas=2)
        s("UnmountSegment", (1, 1), A)
        s.get("one0", expect=Err(-704))
        s.get("both0")
        s.end(A, "one1", expect=Err(-704))
        s.remove("one2", expect=Err(-704))
        s.start(A, "one3", preferred=["seg2"])
        s("BatchExistKey", ["one4", "both4"], TENANT)
        s.start(A, "one5", upsert=True, preferred=["seg2"])
        s("CopyStart", A, "both6", TENANT, "seg1", ["seg2"])
        s("CreateMoveTask", "both7", TENANT, "seg1", "seg2")
