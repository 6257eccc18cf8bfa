"""An upsert over a write that is still under way: what of the object stays.

The unfinished write leaves its bytes and its configuration behind. What the
object had before that write is another matter: a soft pin stays until the new
write says otherwise, a hard pin and a group do not.
"""

import pytest
from messages import DISABLE, ENABLE, MIB, TENANT, config
from scenario import A, B
from struct_pack import Err, Ok

LEASE_MS = 300
REST = 0.5


def test_a_group_has_to_be_named_again(scenario):
    with scenario() as s:
        s.mount(1)
        for key, written in (("unfinished", False), ("written", True)):
            s.start(A, key, groups=["g"])
            if written:
                s.end(A, key)
                s.start(B, key, upsert=True)
            for groups in (["h"], [""]):
                s("UpsertStart", B, key, 1000, config(groups=groups), TENANT, expect=Err(-600))
            s.start(B, key, upsert=True)
            s("UpsertStart", B, key, 1000, config(groups=["g"]), TENANT, expect=Err(-600))
            s.start(B, key, upsert=True, groups=[""])
            s.end(B, key)


@pytest.mark.parametrize("size", [MIB, MIB // 2], ids=["in place", "elsewhere"])
def test_pins(scenario, size):
    with scenario(default_kv_lease_ttl=LEASE_MS, client_ttl=3600) as s:
        s.mount(1, size=20 * MIB)
        before = {"hard": {"hard_pin": True}, "soft": {"soft_pin": ENABLE}, "loosened": {"soft_pin": ENABLE}, "plain": {}}
        for key, options in before.items():
            s.put(A, key, MIB, **options)
            s.start(A, key, size, upsert=True)
            s.start(B, key, MIB, upsert=True, **({"soft_pin": DISABLE} if key == "loosened" else {}))
            s.end(B, key)
        # Pins that an unfinished first write asked for were never there.
        for key, options in (("never hard", {"hard_pin": True}), ("never soft", {"soft_pin": ENABLE})):
            s.start(A, key, MIB, **options)
            s.start(B, key, MIB, upsert=True)
            s.end(B, key)
        # Bytes that were pushed aside stay reserved, so a few more objects cross the line, and again.
        for number in range(12):
            s("PutStart", A, f"straw{number}", MIB, config(1), TENANT, loose=True)
            s("PutEnd", A, (f"straw{number}", None), 0, TENANT, loose=True)
            s.rest(REST)
        kept = [key for key in [*before, "never hard", "never soft"] if s("ExistKey", key, TENANT) == Ok(True)]
        assert kept == ["soft"]
