"""A random walk: a deck of calls dealt to both masters, from one seed.

A walk starts with fresh masters. It stops at the first difference, which is
then shrunk: everything after it would only be its consequence.
"""

import random

from calls import Call
from generator import Generator
from pair import Difference, Pair
from rpc import RPCS
from believed_state import CLIENTS, World

#: Timeouts no walk lives long enough to see; expiry has tests of its own.
WALK_FLAGS = {
    "default_kv_lease_ttl": 3_600_000,
    "client_ttl": 3_600,
    "put_start_discard_timeout_sec": 3_000,
    "put_start_release_timeout_sec": 6_000,
}

#: Every RPC is dealt at least this often in a walk.
_EACH = 6

#: More of what builds state, so that the rest finds some.
_MORE = {
    "PutStart": 36,
    "PutEnd": 40,
    "UpsertStart": 14,
    "UpsertEnd": 14,
    "BatchPutStart": 12,
    "BatchPutEnd": 14,
    "CopyStart": 16,
    "CopyEnd": 10,
    "MoveStart": 12,
    "MoveEnd": 8,
    "CreateCopyTask": 8,
    "CreateMoveTask": 6,
    "FetchTasks": 10,
    "MarkTaskToComplete": 8,
    "MountSegment": 12,
    "ReMountSegment": 4,
    "BatchReplicaClear": 6,
    "_free_placement": 6,
}


def deal(generator_random):
    """The names of the calls of one walk, in order."""
    deck = [name for name in RPCS for _ in range(_EACH)]
    deck += [name for name, count in _MORE.items() for _ in range(count)]
    generator_random.shuffle(deck)
    return deck


def setup_calls(world):
    """Three clients mount their segments as real ones do."""
    calls = []
    for client in CLIENTS:
        plan = next(plan for plan in world.plans if plan.owner == client)
        calls += [
            Call("MountSegment", (plan.message, client)),
            Call("Ping", (client,)),
            Call("ReMountSegment", ([plan.message], client)),
            Call("Ping", (client,)),
        ]
    return calls


def closing_calls():
    """Looks at everything that is left."""
    return [Call("GetReplicaListByRegex", ("", "default")), Call("RemoveAll", (True, "default"))]


class Walked:
    """What a walk did: its calls, and the difference that ended it, if any."""

    def __init__(self, calls, difference):
        self.calls = calls
        self.difference = difference


def walk(seed, tally, **flags):
    """Walk once; the same seed gives the same walk as long as answers agree."""
    source = random.Random(seed)
    world = World(names_are_endpoints=bool(seed % 2))
    generator = Generator(world, source)
    made = []
    with Pair(tally, **{**WALK_FLAGS, **flags}) as pair:

        def make(call):
            made.append(call)
            world.observe(call, pair.call(call)[0])

        try:
            for call in setup_calls(world):
                make(call)
            for name in deal(source):
                for call in generator.plan(name.removeprefix("_")):
                    make(call)
            for call in closing_calls():
                make(call)
        except Difference as difference:
            return Walked(made, difference)
    return Walked(made, None)


def replay(calls, **flags):
    """Send a fixed list of calls to fresh masters; the first difference, if any."""
    with Pair(**{**WALK_FLAGS, **flags}) as pair:
        for number, call in enumerate(calls):
            try:
                pair.call(call)
            except Difference as difference:
                return number, difference
    return None
