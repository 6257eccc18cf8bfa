"""Those who use the store while faults happen, and write down everything that they do.

A raw actor speaks the wire itself: many small objects, no data behind them; what an object is, is the place that the
master gave it. A store actor is a real client: its objects have data, which is read back. The memory of the real
clients is where the objects of both go.
"""

import random
import threading
import time

from gaps import Call
from history import (
    ABSENT,
    NOT_READY,
    OK,
    PUT,
    READ,
    REFUSED,
    REMOVE,
    RESERVE,
    SOMETHING,
    UNKNOWN,
    Range,
    finish,
    reserve,
)
from messages import ALL, TENANT, config, describe_replica, meta
from raw import NoAnswer, NotSent
from struct_pack import Err, Ok

NO_AVAILABLE_HANDLE = -200
REPLICA_IS_NOT_READY = -703
OBJECT_NOT_FOUND = -704
OBJECT_ALREADY_EXISTS = -705
OBJECT_HAS_LEASE = -706
# Errors that say that nothing happened. All others leave it open.
REFUSALS = (NO_AVAILABLE_HANDLE, REPLICA_IS_NOT_READY, OBJECT_NOT_FOUND, OBJECT_ALREADY_EXISTS, OBJECT_HAS_LEASE)
# What these answers to a read say about the object.
FOUND_NOTHING = {OBJECT_NOT_FOUND: ABSENT, REPLICA_IS_NOT_READY: NOT_READY}
OBJECT_BYTES = 256
# While no master serves, an actor does not fill the history with calls that were not sent.
REST_SECONDS = 0.02


class Actor:
    """One thread of work on keys of its own. Subclasses say how to put, remove, read."""

    # Seconds between two steps, for a scene that lasts long: everything that was written is read again at its end.
    pace = 0

    def __init__(self, name, seed, history, published):
        self.name, self.history, self.published = name, history, published
        self.random = random.Random(f"{seed} {name}")
        self.written = 0
        # Keys that are there for certain.
        self.live = []

    def new_keys(self, count):
        self.written += count
        return [f"{self.name}/{number}" for number in range(self.written - count, self.written)]

    def some_live(self, count):
        """Takes keys out of the live ones: the caller knows their state from then on."""
        count = min(count, len(self.live))
        chosen = self.random.sample(range(len(self.live)), count)
        keys = [self.live[index] for index in chosen]
        for index in sorted(chosen, reverse=True):
            self.live[index] = self.live[-1]
            self.live.pop()
        return keys

    def some_published(self, count):
        recent = self.published[-2000:]
        return self.random.sample(recent, min(count, len(recent)))

    def note_put(self, operation, outcome, **more):
        finish(operation, outcome, **more)
        if outcome == OK:
            self.live.append(operation.key)
            self.published.append(operation.key)

    def note_removal(self, operation, outcome, code):
        """A key that stays goes back to the live ones; one that is already gone was lost."""
        finish(operation, outcome)
        if code in FOUND_NOTHING:
            finish(self.history.begin(self.name, READ, operation.key), OK, FOUND_NOTHING[code])
        elif outcome == REFUSED:
            self.live.append(operation.key)

    def work(self, stop):
        while not stop.is_set():
            try:
                self.step()
                stop.wait(self.pace)
            except NotSent:
                stop.wait(REST_SECONDS)


class RawActor(Actor):
    """Speaks the wire itself."""

    def __init__(self, name, seed, history, published, session, batch=32):
        super().__init__(name, seed, history, published)
        self.session, self.batch = session, batch
        self.client = (self.random.getrandbits(64), self.random.getrandbits(64))
        self.plan = config()

    def step(self):
        choices = [self.put, self.put_batch, self.read, self.remove, self.remove_batch, self.reserve]
        self.random.choices(choices, [18, 2, 8, 4, 1, 1])[0]()

    def put(self, plan=None, size=OBJECT_BYTES):
        [key] = self.new_keys(1)
        operation = self.history.begin(self.name, PUT, key)
        started = self._ask([operation], "PutStart", self.client, key, size, plan or self.plan, TENANT)
        if not isinstance(started, Ok):
            return self._not_started(operation, started)
        reserve(operation, places(started.value))
        operation.value = operation.ranges
        operation.ending = time.monotonic()
        ended = self._ask([operation], "PutEnd", self.client, meta(key), ALL, TENANT)
        # An error of End is no promise that the object is not there.
        self.note_put(operation, OK if isinstance(ended, Ok) else UNKNOWN)

    def put_batch(self, count=None):
        started = self.start_batch(count or self.batch)
        if started:
            self.end_batch(started)

    def start_batch(self, count):
        """The puts that got their place; `end_batch` ends them."""
        return self.start_keys(self.new_keys(count), self.plan)

    def start_keys(self, keys, plan, size=OBJECT_BYTES):
        """As `start_batch`, for keys that are new."""
        operations = [self.history.begin(self.name, PUT, key) for key in keys]
        sizes = [size] * len(keys)
        answers = self._ask(operations, "BatchPutStart", self.client, keys, sizes, plan, TENANT)
        started = []
        for operation, answer in zip(operations, answers or []):
            if isinstance(answer, Ok):
                reserve(operation, places(answer.value))
                operation.value = operation.ranges
                started.append(operation)
            else:
                self._not_started(operation, answer)
        return started

    def end_batch(self, started):
        metas = [meta(each.key) for each in started]
        ending = time.monotonic()
        for each in started:
            each.ending = ending
        answers = self._ask(started, "BatchPutEnd", self.client, metas, ALL, TENANT)
        for operation, answer in zip(started, answers or []):
            self.note_put(operation, OK if isinstance(answer, Ok) else UNKNOWN)

    def reserve(self):
        """A client that got its place and is never heard from again: no other client may be given those bytes."""
        [key] = self.new_keys(1)
        operation = self.history.begin(self.name, RESERVE, key)
        answer = self._ask([operation], "PutStart", self.client, key, OBJECT_BYTES, self.plan, TENANT)
        if isinstance(answer, Ok):
            finish(operation, OK, ranges=places(answer.value))
        elif answer is not None:
            finish(operation, REFUSED)

    def remove(self):
        force = self.random.random() < 0.7
        for key in self.some_live(1):
            operation = self.history.begin(self.name, REMOVE, key)
            answer = self._ask([operation], "Remove", key, force, TENANT)
            if answer is not None:
                self._note_removal(operation, answer)

    def remove_batch(self, count=None):
        keys = self.some_live(count or self.batch)
        operations = [self.history.begin(self.name, REMOVE, key) for key in keys]
        for operation, answer in zip(operations, self._ask(operations, "BatchRemove", keys, True, TENANT) or []):
            self._note_removal(operation, answer)

    def _note_removal(self, operation, answer):
        if isinstance(answer, Ok):
            self.note_removal(operation, OK, 0)
        else:
            self.note_removal(operation, REFUSED if answer.code in REFUSALS else UNKNOWN, answer.code)

    def read(self):
        keys = self.some_published(self.random.choice([1, 8]))
        if keys:
            self.read_keys(keys)

    def read_keys(self, keys):
        """Reads and notes where the objects are."""
        operations = [self.history.begin(self.name, READ, key) for key in keys]
        answers = self._ask(operations, "BatchGetReplicaList", keys, TENANT)
        for operation, answer in zip(operations, answers or []):
            note_replicas(operation, answer)

    def _not_started(self, operation, answer):
        if answer is None:
            return
        finish(operation, REFUSED if answer.code in REFUSALS else UNKNOWN)
        if answer.code == OBJECT_ALREADY_EXISTS:
            finish(self.history.begin(self.name, READ, operation.key), OK, SOMETHING)

    def _ask(self, operations, name, *arguments):
        """The answer; None when there is none, which leaves the operations unknown. What was not sent has not
        happened."""
        try:
            return self.session.call(name, *arguments)
        except NoAnswer:
            return None
        except NotSent:
            # The first request of an operation; a later one leaves behind what the first has done.
            for each in operations:
                if not each.ranges:
                    finish(each, REFUSED)
                    if each.kind not in (PUT, READ, RESERVE):
                        self.live.append(each.key)
            raise


def places(descriptors):
    """The bytes of all memory replicas."""
    found = (describe_replica(each) for each in descriptors)
    return tuple(sorted((Range(*each[1:]) for each in found if each), key=lambda each: (each.endpoint, each.address)))


def note_replicas(operation, answer):
    """Notes an answer of GetReplicaList as a read."""
    if isinstance(answer, Ok):
        found = places(answer.value[0])
        finish(operation, OK, value=found, ranges=found)
    elif isinstance(answer, Err) and answer.code in FOUND_NOTHING:
        finish(operation, OK, value=FOUND_NOTHING[answer.code])


class FaithfulReader(RawActor):
    """Reads from one master only, on one connection for as long as that lasts: a master that was deposed while it could
    not notice must not answer it from the past."""

    def work(self, stop):
        while not stop.is_set():
            try:
                self.read()
            except NotSent:
                pass
            stop.wait(REST_SECONDS)


class StoreActor(Actor):
    """A real client at work."""

    LARGEST_VALUE = 16 << 10

    def __init__(self, name, seed, history, published, client):
        super().__init__(name, seed, history, published)
        self.client = client
        # What it was asked and whether that went well, for what it felt.
        self.calls = []

    def _call(self, method, *arguments, **more):
        """Makes a call and notes it; `method` returns a code, codes, or codes and data."""
        began = time.monotonic()
        result = method(*arguments, **more)
        codes = result[0] if isinstance(result, tuple) else result
        codes = codes if isinstance(codes, list) else [codes]
        # An object that is not there, or that a reader holds, is an answer of the master as well.
        good = all(code >= 0 or code in FOUND_NOTHING or code == OBJECT_HAS_LEASE for code in codes)
        self.calls.append(Call(began, time.monotonic(), good))
        return result

    def value_of(self, key):
        """The only bytes that may ever be read under the key."""
        size = random.Random(key).randrange(1, self.LARGEST_VALUE)
        stamp = f"<{key}>".encode()
        return (stamp * (size // len(stamp) + 1))[:size]

    def step(self):
        self.random.choices([self.put, self.read, self.remove], [4, 4, 1])[0]()

    def put(self, count=None, **config):
        keys = self.new_keys(count or self.random.choice([1, 1, 8, 32]))
        values = [self.value_of(key) for key in keys]
        operations = [self.history.begin(self.name, PUT, key, value) for key, value in zip(keys, values)]
        codes = self._call(self.client.put_registered, keys, values, config=config)
        for operation, code in zip(operations, codes):
            self.note_put(operation, OK if code == 0 else REFUSED if code == NO_AVAILABLE_HANDLE else UNKNOWN)

    def remove(self):
        for key in self.some_live(1):
            operation = self.history.begin(self.name, REMOVE, key)
            code = self._call(self.client.remove, key, force=True)
            outcome = OK if code == 0 else REFUSED if code in REFUSALS else UNKNOWN
            self.note_removal(operation, outcome, code)

    def read(self):
        self.read_keys(self.some_published(self.random.choice([1, 4, 8])))

    def read_keys(self, keys):
        """Reads the data."""
        if not keys:
            return
        sizes = [len(self.value_of(key)) for key in keys]
        operations = [self.history.begin(self.name, READ, key) for key in keys]
        codes, found = self._call(self.client.get_registered, keys, sizes)
        for operation, code, data in zip(operations, codes, found):
            if code >= 0:
                finish(operation, OK, value=data[:code])
            elif code in FOUND_NOTHING:
                finish(operation, OK, value=FOUND_NOTHING[code])


class Crowd:
    """Actors at work in the background."""

    def __init__(self, actors):
        self.actors, self._failures = actors, []
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[each], daemon=True) for each in actors]
        for each in self._threads:
            each.start()

    def _run(self, actor):
        try:
            actor.work(self._stop)
        except BaseException as failure:
            self._failures.append(failure)

    def stop(self):
        """Waits for what is under way; raises what an actor failed with."""
        self._stop.set()
        for each in self._threads:
            each.join()
        if self._failures:
            raise self._failures[0]
