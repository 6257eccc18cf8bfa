"""Random calls about copies, moves and the tasks that ask for them."""

from calls import Call, TaskRef
from choices import ABSENT_KEY, KEYS, UNDECODABLE_KEY, Choices
from messages import FAILED, NO_LEASE, PENDING, PROCESSING, SUCCESS


class ReplicationCalls(Choices):
    """One method per RPC, named like it."""

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
        call = self._land("MoveEnd", "move")
        # Walks stay away from `moves-of-the-last-copy`: the reference would have no such object any more.
        last = self.world.moves_the_last_copy(call.arguments[1])
        return Call("MoveRevoke", call.arguments) if last else call

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
