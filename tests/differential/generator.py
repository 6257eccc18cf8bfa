"""Plans random calls, one method per RPC.

Placement is kept deterministic without asking for it to be: every write that
leaves bytes behind names all segments in its preference list, so that which
segment is chosen follows from the request. Writes without a preference happen
too, but in one breath with their removal, and their endpoints are not compared.
"""

from calls import Call, TaskRef
from messages import (
    ALL,
    DFS,
    DISABLE,
    DISK,
    ENABLE,
    FAILED,
    LOCAL_DISK,
    MEMORY,
    MIB,
    NO_LEASE,
    NOF_SSD,
    PENDING,
    PRESERVE,
    PROCESSING,
    SUCCESS,
    TENANT,
    config,
    meta,
    segment,
)
from world import CLIENTS, SEGMENT_SIZE, STRANGER

KEYS = [f"k{number:02}" for number in range(26)] + ["schlüssel", "a\0b", "x" * 300, "with space/and+signs"]
UNDECODABLE_KEY = b"\xff\xfe".decode("utf-8", "surrogateescape")
ABSENT_KEY = "never-written"
SIZES = [1, 100, 4096, 65_536, 1_000_000]
# The time in which a background sweep after an unmount is certainly done.
SWEEP_SECONDS = 0.03
LONG_GRACE_MS = 3_600_000


class Generator:
    """Draws calls from one seeded source of randomness."""

    def __init__(self, world, random):
        self.world = world
        self.random = random
        self._tokens = 0
        self._fresh = 0

    def plan(self, name):
        """The calls to make for one card of the deck (nearly always one)."""
        planned = getattr(self, f"_{name}")()
        return planned if isinstance(planned, list) else [planned]

    # Small choices.

    def _chance(self, probability):
        return self.random.random() < probability

    def _client(self, likely=None, probability=0.85):
        if likely is not None and self._chance(probability):
            return likely
        return self.random.choice([*CLIENTS, *CLIENTS, STRANGER])

    def _tenant(self):
        return self.random.choices([TENANT, "", "another", "_odd"], [90, 4, 3, 3])[0]

    def _any_key(self):
        return self.random.choices([self.random.choice(KEYS), UNDECODABLE_KEY, ABSENT_KEY], [92, 3, 5])[0]

    def _key(self, candidates, probability=0.8):
        """One of the candidates most of the time, any key otherwise."""
        if candidates and self._chance(probability):
            return self.random.choice(candidates)
        return self._any_key()

    def _new_key(self):
        return self._key([key for key in KEYS if key not in self.world.objects])

    def _keys(self, candidates, probability=0.8):
        return [self._key(candidates, probability) for _ in range(self.random.choice([0, 1, 2, 3, 3, 4, 5]))]

    def _object(self, key):
        return self.world.objects.get(key)

    def _owner(self, key):
        found = self._object(key)
        return self._client(found.owner if found else None)

    def _preference(self):
        names = [plan.name for plan in self.world.plans]
        self.random.shuffle(names)
        if self._chance(0.1):
            names.insert(0, "no-such-segment")
        return names

    def _kind(self):
        return self.random.choices([ALL, MEMORY, DISK, LOCAL_DISK, NOF_SSD, DFS, 7], [60, 25, 4, 3, 3, 3, 2])[0]

    def _config(self, groups=None, replicas=None):
        if replicas is None:
            replicas = self.random.choices([1, 2, 3, 5], [60, 25, 10, 5])[0]
        soft_pin = self.random.choices([PRESERVE, ENABLE, DISABLE], [70, 22, 8])[0]
        options = dict(
            soft_pin=soft_pin,
            soft_pin_ttl=self.random.choice([None, 60_000]) if soft_pin == ENABLE else None,
            hard_pin=self._chance(0.1),
            preferred=self._preference(),
            data_type=self.random.randrange(10),
            groups=groups,
        )
        if self._chance(0.08):
            options.update(
                self.random.choice(
                    [
                        {"soft_pin": PRESERVE, "soft_pin_ttl": 5},
                        {"soft_pin": DISABLE, "soft_pin_ttl": 5},
                        {"soft_pin": ENABLE, "soft_pin_ttl": 86_400_001},
                        {"soft_pin": 3},
                        {"dfs": 1},
                        {"dfs": 2},
                        {"nof": 1},
                        {"groups": ["one", "too many"] * 4},
                    ]
                )
            )
        if self._chance(0.03):
            replicas = 0
        return config(replicas, **options)

    def _size(self):
        return self.random.choices([self.random.choice(SIZES), 0], [97, 3])[0]

    def _groups(self, count):
        if self._chance(0.8):
            return None
        return [self.random.choice(["", "red", "blue"]) for _ in range(count)]

    def _too_large(self, client, key):
        # More replicas than segments: the refusal must not start an eviction,
        # whose moment would differ between the masters.
        return client, key, 2 * SEGMENT_SIZE, config(9, preferred=self._preference()), TENANT

    # Writes.

    def _PutStart(self):
        key = self._new_key() if self._chance(0.97) else ""
        client = self._client()
        if self._chance(0.04):
            return Call("PutStart", self._too_large(client, key))
        return Call("PutStart", (client, key, self._size(), self._config(self._groups(1)), self._tenant()))

    def _UpsertStart(self):
        key = self._key(self.world.keys(flight=False) if self._chance(0.9) else self.world.keys(flight=True), 0.7)
        client = self._client()
        if self._chance(0.04):
            return Call("UpsertStart", self._too_large(client, key))
        found = self._object(key)
        size = found.size if found and self._chance(0.5) else self._size()
        groups = self._groups(1)
        if found and found.group and self._chance(0.7):
            groups = [found.group]
        return Call("UpsertStart", (client, key, size, self._config(groups), self._tenant()))

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

    # Segments and clients.

    def _mount_arguments(self):
        plans = self.world.plans
        missing = [plan for plan in plans if plan.identity not in self.world.mounted]
        plan = self.random.choice(missing if missing and self._chance(0.75) else plans)
        return plan, plan.owner if self._chance(0.93) else self._client()

    def _MountSegment(self):
        plan, owner = self._mount_arguments()
        # Somebody else's client id only where it cannot take the segment over.
        if plan.identity not in self.world.mounted:
            owner = plan.owner
        message = plan.message
        if self._chance(0.06):
            message = segment((0xBAD, 1), "bad", *self.random.choice([(0, MIB), (4096, 0)]), "10.9.9.9:1")
        return Call("MountSegment", (message, owner))

    def _ReMountSegment(self):
        if self._chance(0.1):
            self._fresh += 1
            newcomer = (0xC0DE, self._fresh)
            bad = segment((0xBAD, 2), "bad", *self.random.choice([(0, MIB), (4096, 0)]), "10.9.9.9:1")
            return Call("ReMountSegment", (self.random.choice([[], [bad]]), newcomer))
        client = self._client()
        if client == STRANGER:
            return Call("ReMountSegment", ([], client))
        messages = [
            plan.message
            for plan in self.world.plans
            if plan.owner == client and (plan.identity in self.world.mounted or self._chance(0.6))
        ]
        if messages and self._chance(0.12):
            changed = list(messages[0])
            field = self.random.choice([1, 2, 3, 4])
            changed[field] = {1: "renamed", 2: 0xABCD0000, 3: 5 * MIB, 4: "10.8.8.8:8"}[field]
            if changed[0] in self.world.mounted:
                messages[0] = tuple(changed)
        return Call("ReMountSegment", (messages, client))

    def _victim(self):
        """A segment to take away: mostly one of the two that come and go."""
        spare = [plan for plan in self.world.plans[3:] if plan.identity in self.world.mounted]
        if spare and self._chance(0.7):
            return self.random.choice(spare).identity
        if self._chance(0.5):
            return self.random.choice(self.world.plans).identity
        return (0xBAD, 3)

    def _UnmountSegment(self):
        return Call("UnmountSegment", (self._victim(), self._client()), settle=SWEEP_SECONDS)

    def _GracefulUnmountSegment(self):
        identity = self._victim()
        owner = next((plan.owner for plan in self.world.plans if plan.identity == identity), None)
        grace = self.random.choices([LONG_GRACE_MS, 0], [60, 40])[0]
        settle = 0.1 if grace == 0 else 0.0
        return Call("GracefulUnmountSegment", (identity, self._client(owner), grace), settle=settle)

    def _QuerySegmentStatus(self):
        return Call("QuerySegmentStatus", (self.random.choice(self._preference()),))

    def _QuerySegmentStatusById(self):
        identity = self.random.choice([*(plan.identity for plan in self.world.plans), (0xBAD, 4)])
        return Call("QuerySegmentStatusById", (identity,))

    def _Ping(self):
        return Call("Ping", (self._client(),))

    def _BatchQueryIp(self):
        return Call("BatchQueryIp", ([self._client() for _ in range(self.random.randrange(5))],))

    # Copies and moves.

    def _copyable(self):
        return [
            key for key in self.world.keys(processing=False, flight=False) if self.world.objects[key].replicas
        ]

    def _route(self, key, targets):
        """A source that holds a replica, and targets that mostly do not."""
        found = self._object(key)
        held = (found.replicas or []) if found else []
        source = self.random.choice(held) if held and self._chance(0.9) else self.random.choice(self._preference())
        free = [name for name in self.world.mounted_names() if name not in held]
        self.random.shuffle(free)
        chosen = free[:targets] if free and self._chance(0.85) else self._preference()[:targets]
        return source, chosen

    def _CopyStart(self):
        key = self._key(self._copyable(), 0.85)
        source, targets = self._route(key, self.random.choice([0, 1, 1, 1, 2, 2]))
        return Call("CopyStart", (self._client(), key, self._tenant(), source, targets))

    def _DynamicReplicaCopyStart(self):
        key = self._key(self._copyable(), 0.85)
        source, targets = self._route(key, self.random.choice([1, 1, 2]))
        lease = self.random.choices([NO_LEASE, (5, 6)], [75, 25])[0]
        epoch = self.random.choice([0, 0, 3])
        return Call("DynamicReplicaCopyStart", (self._client(), key, self._tenant(), source, targets, lease, epoch))

    def _MoveStart(self):
        key = self._key(self._copyable(), 0.85)
        source, targets = self._route(key, 1)
        target = targets[0] if targets and self._chance(0.95) else source
        return Call("MoveStart", (self._client(), key, self._tenant(), source, target))

    def _landing(self, kind):
        """A key with a copy or move in flight, and who may end it."""
        flying = [key for key in self.world.keys(flight=True) if self.world.objects[key].flight.kind == kind]
        key = self._key(flying if self._chance(0.9) else self.world.keys(flight=True), 0.9)
        found = self._object(key)
        flight = found.flight if found else None
        return key, self._client(flight.client if flight else None), flight

    def _land(self, name, kind):
        key, client, _ = self._landing(kind)
        return Call(name, (client, key, self._tenant()))

    def _CopyEnd(self):
        return self._land("CopyEnd", "copy")

    def _CopyRevoke(self):
        return self._land("CopyRevoke", "copy")

    def _MoveEnd(self):
        return self._land("MoveEnd", "move")

    def _MoveRevoke(self):
        return self._land("MoveRevoke", "move")

    def _land_dynamic(self, name):
        key, client, flight = self._landing("copy")
        epoch = flight.epoch if flight and self._chance(0.85) else self.random.choice([0, 3, 4])
        lease = self.random.choices([NO_LEASE, (5, 6)], [90, 10])[0]
        return Call(name, (client, key, self._tenant(), lease, epoch))

    def _DynamicReplicaCopyEnd(self):
        return self._land_dynamic("DynamicReplicaCopyEnd")

    def _DynamicReplicaCopyRevoke(self):
        return self._land_dynamic("DynamicReplicaCopyRevoke")

    # Tasks.

    def _token(self):
        self._tokens += 1
        return self._tokens

    def _CreateCopyTask(self):
        # With several replicas the source is drawn by lot, so only objects
        # with one are used, and absent ones.
        single = [
            key
            for key, found in self.world.objects.items()
            if found.replicas and len(found.replicas) == 1 and not found.flight and key != UNDECODABLE_KEY
        ]
        absent = [key for key in [*KEYS, ABSENT_KEY] if key not in self.world.objects]
        key = self.random.choice(single if single and self._chance(0.85) else absent or [ABSENT_KEY])
        _, targets = self._route(key, self.random.choice([0, 1, 1, 2]))
        return Call("CreateCopyTask", (key, self._tenant(), targets), token=self._token())

    def _CreateMoveTask(self):
        key = self._key([key for key in self._copyable() if key != UNDECODABLE_KEY], 0.9)
        if key == UNDECODABLE_KEY:
            key = ABSENT_KEY
        source, targets = self._route(key, 1)
        target = targets[0] if targets else source
        return Call("CreateMoveTask", (key, self._tenant(), source, target), token=self._token())

    def _task(self, finished=None):
        tokens = [token for token, (_, done) in self.world.tasks.items() if finished is None or done == finished]
        if tokens and self._chance(0.85):
            token = self.random.choice(tokens)
            return TaskRef(token), self.world.tasks[token][0]
        return TaskRef(1_000_000 + self.random.randrange(9)), self._client()

    def _QueryTask(self):
        return Call("QueryTask", (self._task()[0],))

    def _FetchTasks(self):
        return Call("FetchTasks", (self._client(), self.random.choice([0, 1, 1, 2, 16])))

    def _MarkTaskToComplete(self):
        task, client = self._task(finished=False if self._chance(0.8) else None)
        status = self.random.choices([SUCCESS, FAILED, PENDING, PROCESSING, 9], [50, 35, 5, 5, 5])[0]
        return Call("MarkTaskToComplete", (self._client(client), (task, status, self.random.choice(["", "done"]))))

    # What is answered with the features of it switched off.

    def _EvictDiskReplica(self):
        return Call(
            "EvictDiskReplica", (self._client(), self._key(self.world.keys()), self._tenant(), self._disk_kind())
        )

    def _BatchEvictDiskReplica(self):
        keys = self._keys(self.world.keys())
        return Call("BatchEvictDiskReplica", (self._client(), keys, self._tenant(), self._disk_kind()))

    def _disk_kind(self):
        return self.random.choices([DISK, LOCAL_DISK, MEMORY, ALL], [40, 40, 10, 10])[0]

    def _PromotionAllocStart(self):
        key = self._key(self.world.keys())
        return Call("PromotionAllocStart", (self._client(), key, self._tenant(), self._size(), self._preference()))

    def _NotifyPromotionSuccess(self):
        return Call("NotifyPromotionSuccess", (self._client(), self._key(self.world.keys()), self._tenant()))

    def _NotifyPromotionFailure(self):
        return Call("NotifyPromotionFailure", (self._client(), self._key(self.world.keys()), self._tenant()))

    def _NotifyOffloadSuccess(self):
        items, metadatas = self.random.choice([(0, 0), (0, 0), (1, 0), (0, 2)])
        return Call(
            "NotifyOffloadSuccess",
            (self._client(), [(TENANT, self._any_key(), 5)] * items, [(1, 2, 3, 4, "10.1.0.1:7001")] * metadatas),
        )

    def _MountLocalDiskSegment(self):
        return Call("MountLocalDiskSegment", (self._client(), self._chance(0.5)))

    def _UnmountLocalDiskSegment(self):
        return Call("UnmountLocalDiskSegment", (self._client(),))

    def _OffloadObjectHeartbeat(self):
        return Call("OffloadObjectHeartbeat", (self._client(), self._chance(0.5)))

    def _ReportSsdCapacity(self):
        return Call("ReportSsdCapacity", (self._client(), self.random.choice([0, 1, 1 << 40, -1])))

    def _PromotionObjectHeartbeat(self):
        return Call("PromotionObjectHeartbeat", (self._client(),))

    def _PollRemoveAll(self):
        return Call("PollRemoveAll", (self._client(),))

    def _nof_segment(self):
        return ((0x40F, 1), "nof", self.random.choice([0, 4096]), MIB, "10.1.0.9:9")

    def _MountNoFSegment(self):
        return Call("MountNoFSegment", (self._nof_segment(), self._client()))

    def _ReMountNoFSegment(self):
        return Call("ReMountNoFSegment", ([self._nof_segment()] * self.random.randrange(3), self._client()))

    def _UnmountNoFSegment(self):
        return Call("UnmountNoFSegment", ((0x40F, 1), self._client()))

    def _GetNoFSegmentsByName(self):
        return Call("GetNoFSegmentsByName", (self.random.choice(["", "nof", "segment-1"]),))

    def _GetAllNoFSegments(self):
        return Call("GetAllNoFSegments", ())

    def _GetFsdir(self):
        return Call("GetFsdir", ())

    def _GetStorageConfig(self):
        return Call("GetStorageConfig", ())

    def _ServiceReady(self):
        return Call("ServiceReady", ())
