"""An actor that makes every kind of change to objects: upserts, several replicas, copies, moves, groups, pins, patterns."""

from actors import OBJECT_BYTES, OBJECT_NOT_FOUND, REFUSALS, RawActor, places
from checker import Violation
from history import ABSENT, COPY, MOVE, OK, PUT, READ, REFUSED, REMOVE, UNKNOWN, UPSERT, finish, reserve
from messages import ALL, DISABLE, ENABLE, TENANT, config, meta
from struct_pack import Err, Ok

SEGMENT_NOT_FOUND = -101
HAS_REPLICATION_TASK = -708
REPLICA_NOT_FOUND = -710
UNAVAILABLE = -1010
REPLICA_BUSY = -714
# Of a start: nothing was begun.
NOT_BEGUN = (*REFUSALS, SEGMENT_NOT_FOUND, HAS_REPLICATION_TASK, REPLICA_NOT_FOUND, UNAVAILABLE, REPLICA_BUSY)
# An upsert of another size takes other places.
OTHER_BYTES = 2 * OBJECT_BYTES
GROUP_SIZE = 4


class BusyActor(RawActor):
    """`segments` are the names of the segments by their endpoints."""

    def __init__(self, *arguments, segments, **more):
        super().__init__(*arguments, **more)
        self.segments = segments
        # Where its live objects are, and of how many bytes.
        self.places, self.sizes = {}, {}
        self.groups = self.patterns = 0

    def step(self):
        plain = [self.put, self.put_batch, self.read, self.remove, self.remove_batch, self.reserve]
        busy = [self.put_pinned, self.put_group, self.upsert, self.upsert_new, self.search, self.remove_by_pattern]
        weights = [14, 2, 8, 4, 1, 1] + [3, 1, 4, 1, 1, 1]
        if len(self.segments) > 1:
            busy += [self.put_replicas, self.copy, self.move]
            weights += [3, 2, 3]
        self.random.choices(plain + busy, weights)[0]()

    def note_put(self, operation, outcome, **more):
        super().note_put(operation, outcome, **more)
        if outcome == OK:
            self.places[operation.key] = operation.value

    def put_replicas(self):
        self.put(config(2))

    def put_pinned(self):
        """With a pin of either kind, or with one taken off."""
        plans = [config(soft_pin=ENABLE), config(soft_pin=ENABLE, soft_pin_ttl=60_000), config(hard_pin=True)]
        self.put(self.random.choice([*plans, config(soft_pin=DISABLE)]))

    def put_group(self):
        self.groups += 1
        started = self.start_keys(self.new_keys(GROUP_SIZE), config(groups=[f"{self.name}-{self.groups}"] * GROUP_SIZE))
        if started:
            self.end_batch(started)

    def upsert_new(self):
        """Of a key that is not there: a put."""
        self._upsert(self.new_keys(1)[0], OBJECT_BYTES, PUT)

    def upsert(self):
        """In place, or of another size. Some keys are of a group, whose name may be left out."""
        for key in self.some_live(1):
            self._upsert(key, self.random.choice([self.sizes.get(key, OBJECT_BYTES), OBJECT_BYTES, OTHER_BYTES]))

    def _upsert(self, key, size, kind=UPSERT):
        operation = self.history.begin(self.name, kind, key)
        started = self._ask([operation], "UpsertStart", self.client, key, size, self.plan, TENANT)
        if isinstance(started, Err):
            return self._not_begun(operation, started)
        if started is None:
            return
        reserve(operation, places(started.value))
        operation.value = operation.ranges
        ended = self._ask([operation], "UpsertEnd", self.client, meta(key), ALL, TENANT)
        if isinstance(ended, Ok):
            self.sizes[key] = size
        self.note_put(operation, OK if isinstance(ended, Ok) else UNKNOWN)

    def copy(self):
        self._replicate(COPY)

    def move(self):
        self._replicate(MOVE)

    def _replicate(self, kind):
        """To a segment that has none of the object."""
        for key in self.some_live(1):
            old = self.places[key]
            held = [self.segments.get(place.endpoint) for place in old]
            free = sorted(set(self.segments.values()) - set(held))
            if not free or None in held:
                self.live.append(key)
                return
            source, target = self.random.choice(held), self.random.choice(free)
            operation = self.history.begin(self.name, kind, key)
            name, to = ("CopyStart", [target]) if kind == COPY else ("MoveStart", target)
            started = self._ask([operation], name, self.client, key, TENANT, source, to)
            if isinstance(started, Err):
                return self._not_begun(operation, started)
            if started is None:
                return
            told = started.value[1] if kind == COPY else [started.value[1]]
            new = places(told)
            reserve(operation, new)
            left = old if kind == COPY else tuple(each for each in old if self.segments[each.endpoint] != source)
            operation.value = tuple(sorted((*left, *new), key=lambda each: (each.endpoint, each.address)))
            ended = self._ask([operation], "CopyEnd" if kind == COPY else "MoveEnd", self.client, key, TENANT)
            if isinstance(ended, Ok):
                finish(operation, OK, ranges=operation.value)
                self.places[key] = operation.value
                self.live.append(key)
            else:
                finish(operation, UNKNOWN)

    def _not_begun(self, operation, answer):
        """A start that was refused; the key is as it was, if it was there."""
        finish(operation, REFUSED if answer.code in NOT_BEGUN else UNKNOWN)
        if operation.outcome == UNKNOWN:
            self.history.complaints.append(Violation("answer", operation.key, f"{operation.kind}: {answer}"))
        elif answer.code == OBJECT_NOT_FOUND:
            finish(self.history.begin(self.name, READ, operation.key), OK, ABSENT)
        elif operation.kind != PUT:
            self.live.append(operation.key)

    def search(self):
        """Finds its own objects by a pattern: those that it knows to be there, and where."""
        if not self.live:
            return
        self.patterns += 1
        # One key in ten.
        digit = self.random.randrange(10)
        mine = [key for key in self.live if key.endswith(str(digit))]
        operations = {key: self.history.begin(self.name, READ, key) for key in mine}
        pattern = f"^{self.name}/[0-9]*{digit}$"
        answer = self._ask(list(operations.values()), "GetReplicaListByRegex", pattern, TENANT)
        if not isinstance(answer, Ok):
            return
        found = dict(answer.value)
        for key, operation in operations.items():
            where = places(found[key]) if key in found else None
            finish(operation, OK, value=where or ABSENT, ranges=where or ())
        for key in found:
            if not key.startswith(f"{self.name}/") or not key.endswith(str(digit)):
                self.history.complaints.append(Violation("count", key, f"does not match {pattern}"))

    def remove_by_pattern(self):
        """Puts objects under a name of their own and removes them by a pattern, which is not atomic."""
        self.patterns += 1
        prefix = f"{self.name}-pattern{self.patterns}/"
        keys = [f"{prefix}{number}" for number in range(self.random.randrange(1, 2 * self.batch))]
        started = self.start_keys(keys, self.plan)
        if not started:
            return
        self.end_batch(started)
        mine = [each.key for each in started if each.outcome == OK]
        self.live = [key for key in self.live if not key.startswith(prefix)]
        if not mine:
            return
        operations = [self.history.begin(self.name, REMOVE, key) for key in mine]
        answer = self._ask(operations, "RemoveByRegex", f"^{prefix}", True, TENANT)
        if not isinstance(answer, Ok):
            return
        for each in operations:
            finish(each, OK)
        # A put in doubt may have been there to be removed.
        if not len(mine) <= answer.value <= len(keys):
            text = f"{answer.value} objects removed, {len(mine)} to {len(keys)} were there"
            self.history.complaints.append(Violation("count", prefix, text))
