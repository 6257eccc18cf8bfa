"""Random calls about objects: writes, reads, removals.

Placement is kept deterministic without asking for it to be: every write that
leaves bytes behind names all segments in its preference list, so that which
segment is chosen follows from the request. Writes without a preference happen
too, but in one breath with their removal, and their endpoints are not compared.
"""

from calls import Call
from choices import Choices
from messages import ALL, SEGMENT_OK, TENANT, config, meta


class ObjectCalls(Choices):
    """One method per RPC, named like it."""

    # Writes.

    def _PutStart(self):
        key = self._new_key() if self._chance(0.97) else ""
        client = self._client()
        if self._chance(0.04):
            return Call("PutStart", self._too_large(client, key))
        return Call("PutStart", (client, key, self._size(), self._config(self._groups(1)), self._tenant()))

    def _UpsertStart(self):
        key = self._key(self.world.keys(flight=False) if self._chance(0.9) else self.world.keys(flight=True), 0.7)
        key = key if self._room() else self._absent_key()
        client = self._client()
        if self._chance(0.04):
            # A fresh key: what becomes of an object that is there is `failed-upserts` in deliberate.py.
            return Call("UpsertStart", self._too_large(client, self._absent_key()))
        found = self._object(key)
        size = found.size if found and self._chance(0.5) else self._size()
        groups = self._groups(1)
        if found and found.group and self._chance(0.7):
            groups = [found.group]
        return Call("UpsertStart", (client, key, size, self._config(groups), self._tenant()))

    def _room(self):
        return SEGMENT_OK in self.world.mounted.values()

    def _absent_key(self):
        return f"fresh-{self.random.getrandbits(32)}"

    def _batch_sizes(self, keys):
        sizes = [self._size() for _ in keys]
        return sizes[1:] if sizes and self._chance(0.03) else sizes

    def _BatchPutStart(self):
        keys = [self._new_key() for _ in range(self.random.randrange(6))]
        plan = self._config(self._groups(len(keys)))
        if self.world.names_are_endpoints and self._chance(0.3):
            plan = config(1, preferred=self._preference(), same_node=True)
        return Call("BatchPutStart", (self._client(), keys, self._batch_sizes(keys), plan, self._tenant()))

    def _BatchUpsertStart(self):
        keys = self._keys(self.world.keys(flight=False), 0.6)
        keys = keys if self._room() else [self._absent_key() for _ in keys]
        sizes = self._batch_sizes(keys)
        for number, key in enumerate(keys[: len(sizes)]):
            if self._object(key) and self._chance(0.5):
                sizes[number] = self._object(key).size
        return Call(
            "BatchUpsertStart", (self._client(), keys, sizes, self._config(self._groups(len(keys))), self._tenant())
        )

    def _ending(self):
        return self.world.keys(processing=True)

    def _meta(self, key):
        return meta(key, self.random.choice([None, None, 7, 1 << 63]))

    def _end(self, name):
        key = self._key(self._ending(), 0.9)
        return Call(name, (self._owner(key), self._meta(key), self._kind(), self._tenant()))

    def _PutEnd(self):
        return self._end("PutEnd")

    def _UpsertEnd(self):
        return self._end("UpsertEnd")

    def _revoke(self, name):
        key = self._key(self._ending())
        return Call(name, (self._owner(key), key, self._kind(), self._tenant()))

    def _PutRevoke(self):
        return self._revoke("PutRevoke")

    def _UpsertRevoke(self):
        return self._revoke("UpsertRevoke")

    def _some_ending(self):
        """Keys of writes in progress, and a client that owns most of them."""
        keys = self._keys(self._ending(), 0.9)
        return keys, self._owner(keys[0]) if keys else self._client()

    def _BatchPutEnd(self):
        keys, client = self._some_ending()
        return Call("BatchPutEnd", (client, [self._meta(key) for key in keys], self._kind(), self._tenant()))

    def _BatchUpsertEnd(self):
        keys, client = self._some_ending()
        return Call("BatchUpsertEnd", (client, [self._meta(key) for key in keys], self._tenant()))

    def _BatchPutRevoke(self):
        keys, client = self._some_ending()
        return Call("BatchPutRevoke", (client, keys, self._kind(), self._tenant()))

    def _BatchUpsertRevoke(self):
        keys, client = self._some_ending()
        return Call("BatchUpsertRevoke", (client, keys, self._tenant()))

    def _free_placement(self):
        """An object whose placement is the master's own choice, and its end."""
        self._fresh += 1
        key, client = f"free-{self._fresh}", self._client()
        plan = config(self.random.choice([1, 1, 2, 3]), host=self.random.choice(["", "host-11", "host-22"]))
        # Whether a copy fits depends on nothing here: the object is small.
        calls = [
            Call("PutStart", (client, key, 1000, plan, TENANT), loose=True),
            Call("PutEnd", (client, meta(key), ALL, TENANT)),
            Call("GetReplicaList", (key, TENANT), loose=True),
            Call("UpsertStart", (client, key, 2000, plan, TENANT), loose=True),
            Call("UpsertEnd", (client, meta(key), ALL, TENANT)),
            Call("Remove", (key, True, TENANT)),
        ]
        return calls if self._chance(0.5) else [*calls[:3], calls[5]]

    # Reads.

    def _ExistKey(self):
        return Call("ExistKey", (self._key(self.world.keys()), self._tenant()))

    def _BatchExistKey(self):
        return Call("BatchExistKey", (self._keys(self.world.keys()), self._tenant()))

    def _GetReplicaList(self):
        return Call("GetReplicaList", (self._key(self.world.keys()), self._tenant()))

    def _BatchGetReplicaList(self):
        return Call("BatchGetReplicaList", (self._keys(self.world.keys()), self._tenant()))

    def _pattern(self):
        digit = self.random.randrange(10)
        return self.random.choice(
            [
                f"^k{digit % 3}{digit}$",
                f"{digit}$",
                f"[k]{digit % 3}[{digit}-9]",
                "^nothing",
                "schl.*ssel$",
                f"(k)(0|1){digit}",
                "k0[0-2]|k2[45]",
                f"^.{{{digit}}}$",
                "(unbalanced",
                "[",
            ]
        )

    def _GetReplicaListByRegex(self):
        return Call("GetReplicaListByRegex", (self._pattern(), self._tenant()))

    # Removal.

    def _removable(self):
        return self.world.keys(processing=False)

    def _Remove(self):
        return Call("Remove", (self._key(self._removable()), self._chance(0.4), self._tenant()))

    def _BatchRemove(self):
        return Call("BatchRemove", (self._keys(self._removable(), 0.6), self._chance(0.3), self._tenant()))

    def _RemoveByRegex(self):
        return Call("RemoveByRegex", (self._pattern(), self._chance(0.3), self._tenant()))

    def _RemoveAll(self):
        return Call("RemoveAll", (self._chance(0.15), self._tenant()))

    def _BatchReplicaClear(self):
        keys = self._keys(self.world.keys(processing=False, leased=False), 0.9)
        name = ""
        if keys and self._chance(0.6):
            found = self._object(keys[0])
            name = found.replicas[0] if found and found.replicas else self.random.choice(self._preference())
        return Call("BatchReplicaClear", (keys, self._owner(keys[0]) if keys else self._client(), name))
