"""Random work of several clients at once, every read checked.

A value can be told from its key, so a reader knows what it must get, whichever client wrote it. An object may be missing,
because it was evicted or its client died: then a read finds nothing. It must never find anything else. What was written
and not removed, and is missing all the same, is counted: where memory is free and all clients live, there is none.
"""

import random
import threading

OK = 0
NO_AVAILABLE_HANDLE = -200
OBJECT_NOT_FOUND = -704
OBJECT_HAS_LEASE = -706
TRANSFER_FAIL = -800
# A write may find no room, or pick the segment of a client that has just died. When that segment is gone before the writer
# gives up, an upsert says that there is no such object; a put says that the transfer failed.
WRITE_RESULTS = (OK, NO_AVAILABLE_HANDLE, TRANSFER_FAIL)
UPSERT_RESULTS = (*WRITE_RESULTS, OBJECT_NOT_FOUND)
REMOVE_RESULTS = (OK, OBJECT_NOT_FOUND, OBJECT_HAS_LEASE)
LARGEST_VALUE = 256 << 10


def value_of(key, version=0):
    """The only bytes that may ever be read under `key` (in that version); their number follows from the key too."""
    size = random.Random(key).randrange(1, LARGEST_VALUE)
    stamp = f"<{key} {version}>".encode()
    return (stamp * (size // len(stamp) + 1))[:size]


class Actor:
    """One client at work. Its keys are its own to write and remove; it reads those of all. `removed` has the keys that a
    client has begun to remove, of all clients."""

    def __init__(self, name, client, seed, published, removed):
        self.name, self.client, self.published, self.removed = name, client, published, removed
        self.random = random.Random(f"{seed} {name}")
        self.written, self.versions = 0, {}
        self.hits = self.misses = 0
        self.missing = []

    def step(self):
        """One random piece of work."""
        self.random.choice([self._write, self._write, self._read, self._read, self._read, self._upsert, self._remove])()

    def _check(self, key, read, expected):
        if read == b"":
            self.misses += 1
            if key not in self.removed:
                self.missing.append(key)
            return
        self.hits += 1
        assert read == expected, f"{key}: read {len(read)} bytes, {read[:60]!r}, expected {expected[:60]!r}"

    def _write(self):
        keys = [f"{self.name}/{self.written + offset}" for offset in range(self.random.choice([1, 1, 4]))]
        self.written += len(keys)
        results = self.client.put_registered(keys, [value_of(key) for key in keys])
        assert all(result in WRITE_RESULTS for result in results), results
        self.published.extend(key for key, result in zip(keys, results) if result == OK)

    def _read(self):
        # The newest are likely to be there still, in a store that forgets the oldest.
        recent = self.published[-100:]
        if recent:
            keys = self.random.sample(recent, min(len(recent), self.random.choice([1, 1, 8])))
            for key, read in zip(keys, self.client.get_batch(keys)):
                self._check(key, read, value_of(key))

    def _upsert(self):
        # Only its writer reads such a key: a value of the same size is replaced in place, under the eyes of readers.
        key = f"{self.name}/changing/{self.random.randrange(4)}"
        version = self.versions.get(key, 0) + 1
        result = self.client.upsert(key, value_of(key, version))
        assert result in UPSERT_RESULTS, result
        self.versions[key] = version
        if result == OK:
            self._check(key, self.client.get(key), value_of(key, version))

    def _remove(self):
        if self.written:
            key = f"{self.name}/{self.random.randrange(self.written)}"
            # Before the call: a read beside it may find the key gone already.
            self.removed.add(key)
            result = self.client.remove(key)
            assert result in REMOVE_RESULTS, result


def run(actors, keep_going, meanwhile=lambda: None):
    """Each actor works in a thread of its own while `keep_going(steps it has made)`, and this one does `meanwhile`;
    the first failure is raised."""
    failures = []

    def work(actor):
        steps = 0
        try:
            while not failures and keep_going(steps):
                actor.step()
                steps += 1
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=[actor], daemon=True) for actor in actors]
    for each in threads:
        each.start()
    meanwhile()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]
