"""What the generator believes about the masters' state.

The world follows the reference's answers so that the generator can aim: end
writes that are in progress, copy what exists, unmount what is mounted. It
decides nothing about correctness; where it is wrong, a call merely fails on
both masters alike.
"""

import re
from dataclasses import dataclass, field

from messages import ALL, CLIENT_OK, GRACEFULLY_UNMOUNTING, MEMORY, MIB, SEGMENT_OK, describe_replica, segment
from struct_pack import Err, Ok

CLIENTS = [(11, 1), (22, 2), (33, 3)]
STRANGER = (99, 9)
SEGMENT_SIZE = 256 * MIB


@dataclass(frozen=True)
class SegmentPlan:
    """A segment that the walk mounts and unmounts, always with these values."""

    identity: tuple
    name: str
    base: int
    endpoint: str
    owner: tuple
    host: str

    @property
    def message(self):
        return segment(self.identity, self.name, self.base, SEGMENT_SIZE, self.endpoint, "tcp", self.host)


def plan_segments(names_are_endpoints):
    """Three segments that are there most of the time, and two that come and go."""
    plans = []
    for number, owner in enumerate([*CLIENTS, CLIENTS[0], CLIENTS[1]], start=1):
        endpoint = f"10.1.0.{number}:700{number}"
        plans.append(
            SegmentPlan(
                identity=(0x5E60 + number, number),
                name=endpoint if names_are_endpoints else f"segment-{number}",
                base=0x1_0000_0000 * number,
                endpoint=endpoint,
                owner=owner,
                host=f"host-{owner[0]}",
            )
        )
    return plans


@dataclass
class Flight:
    """A copy or move in progress."""

    kind: str
    client: tuple
    source: str
    targets: list
    lease: tuple = (0, 0)
    epoch: int = 0


@dataclass
class Object:
    """An object as far as the generator knows."""

    owner: tuple
    size: int
    #: names of the segments with a replica, None when that became unsure
    replicas: list | None
    processing: bool = True
    leased: bool = False
    group: str = ""
    flight: Flight | None = None


@dataclass
class World:
    """The generator's picture of both masters."""

    names_are_endpoints: bool
    plans: list = field(init=False)
    mounted: dict = field(default_factory=dict)
    ready_clients: set = field(default_factory=set)
    objects: dict = field(default_factory=dict)
    #: token -> [client it was assigned to, finished?]
    tasks: dict = field(default_factory=dict)

    def __post_init__(self):
        self.plans = plan_segments(self.names_are_endpoints)
        self._by_endpoint = {plan.endpoint: plan for plan in self.plans}
        self._by_identity = {plan.identity: plan for plan in self.plans}
        self._by_name = {plan.name: plan for plan in self.plans}

    # What the generator asks.

    def keys(self, **wanted):
        """Keys of objects with these attributes, e.g. processing=True."""
        return [
            key
            for key, found in self.objects.items()
            if all(bool(getattr(found, name)) == value for name, value in wanted.items())
        ]

    def moves_the_last_copy(self, key):
        """Whether a move of this object, which had nothing to write, may have no copy left but its source."""
        found = self.objects.get(key)
        if not found or not found.flight or found.flight.kind != "move" or found.flight.targets:
            return False
        return all(name == found.flight.source for name in found.replicas or ())

    def mounted_names(self):
        return [plan.name for plan in self.plans if self.mounted.get(plan.identity) == SEGMENT_OK]

    def owner_of(self, name):
        return self._by_name[name].owner

    # What happened.

    def observe(self, call, answer):
        handler = getattr(self, f"_on_{call.name}", None)
        if handler:
            handler(answer, *call.arguments, **({"token": call.token} if call.token is not None else {}))

    def _drop(self, key):
        self.objects.pop(key, None)

    def _on_PutStart(self, answer, client, key, size, config, _tenant):
        if isinstance(answer, Ok):
            group = (config[12] or [""])[0]
            self.objects[key] = Object(client, size, self._names(answer.value), group=group)

    def _on_UpsertStart(self, answer, client, key, size, config, tenant):
        if isinstance(answer, Err):
            if answer.code == -200:
                self._drop(key)
            return
        old = self.objects.get(key)
        self._on_PutStart(answer, client, key, size, config, tenant)
        if old:
            new = self.objects[key]
            new.group = old.group or new.group
            new.leased = old.leased and old.size == size

    def _on_BatchPutStart(self, answer, client, keys, sizes, config, tenant):
        self._each_start(self._on_PutStart, answer, client, keys, sizes, config, tenant)

    def _on_BatchUpsertStart(self, answer, client, keys, sizes, config, tenant):
        self._each_start(self._on_UpsertStart, answer, client, keys, sizes, config, tenant)

    @staticmethod
    def _each_start(one, answer, client, keys, sizes, config, tenant):
        for number, (key, item) in enumerate(zip(keys, answer)):
            groups = config[12]
            own = (*config[:12], [groups[number]] if groups and number < len(groups) else None)
            one(item, client, key, sizes[number] if number < len(sizes) else 0, own, tenant)

    def _names(self, descriptors):
        return [self._by_endpoint[describe_replica(descriptor)[1]].name for descriptor in descriptors]

    def _on_PutEnd(self, answer, _client, object_meta, kind, _tenant):
        found = self.objects.get(object_meta[0])
        if found and isinstance(answer, Ok) and kind in (MEMORY, ALL):
            found.processing = False
        self._gone(object_meta[0], answer)

    _on_UpsertEnd = _on_PutEnd

    def _on_BatchPutEnd(self, answer, client, metas, kind, tenant):
        for object_meta, item in zip(metas, answer):
            self._on_PutEnd(item, client, object_meta, kind, tenant)

    def _on_BatchUpsertEnd(self, answer, client, metas, tenant):
        self._on_BatchPutEnd(answer, client, metas, ALL, tenant)

    def _on_PutRevoke(self, answer, _client, key, kind, _tenant):
        if isinstance(answer, Ok) and kind in (MEMORY, ALL):
            self._drop(key)
        self._gone(key, answer)

    _on_UpsertRevoke = _on_PutRevoke

    def _on_BatchPutRevoke(self, answer, client, keys, kind, tenant):
        for key, item in zip(keys, answer):
            self._on_PutRevoke(item, client, key, kind, tenant)

    def _on_BatchUpsertRevoke(self, answer, client, keys, tenant):
        self._on_BatchPutRevoke(answer, client, keys, ALL, tenant)

    def _gone(self, key, answer):
        if answer == Err(-704):
            self._drop(key)

    def _lease(self, key):
        found = self.objects.get(key)
        if found:
            found.leased = True
            for other in self.objects.values():
                if found.group and other.group == found.group:
                    other.leased = True

    def _on_ExistKey(self, answer, key, _tenant):
        if answer == Ok(True):
            self._lease(key)

    def _on_BatchExistKey(self, answer, keys, tenant):
        for key, item in zip(keys, answer):
            self._on_ExistKey(item, key, tenant)

    def _on_GetReplicaList(self, answer, key, _tenant):
        if isinstance(answer, Ok):
            self._lease(key)
        self._gone(key, answer)

    def _on_BatchGetReplicaList(self, answer, keys, tenant):
        for key, item in zip(keys, answer):
            self._on_GetReplicaList(item, key, tenant)

    def _on_GetReplicaListByRegex(self, answer, _pattern, _tenant):
        if isinstance(answer, Ok):
            for key, _ in answer.value:
                self._lease(key)

    def _on_Remove(self, answer, key, _force, _tenant):
        if isinstance(answer, Ok):
            self._drop(key)
        self._gone(key, answer)

    def _on_BatchRemove(self, answer, keys, force, tenant):
        for key, item in zip(keys, answer):
            self._on_Remove(item, key, force, tenant)

    def _on_RemoveAll(self, _answer, force, _tenant):
        self._remove_many(force, lambda key: True)

    def _on_RemoveByRegex(self, answer, pattern, force, _tenant):
        if isinstance(answer, Ok):
            self._remove_many(force, lambda key: re.search(pattern, key))

    def _remove_many(self, force, matches):
        for key, found in list(self.objects.items()):
            if matches(key) and not found.processing and not found.flight and (force or not found.leased):
                self._drop(key)

    def _on_BatchReplicaClear(self, answer, _keys, _client, name):
        for key in answer.value if isinstance(answer, Ok) else ():
            found = self.objects.get(key)
            if not name:
                self._drop(key)
            elif found and found.replicas is not None:
                found.replicas = [own for own in found.replicas if own != name]
                if not found.replicas and not found.flight:
                    self._drop(key)

    def _on_CopyStart(self, answer, client, key, _tenant, source, targets, lease=(0, 0), epoch=0):
        if isinstance(answer, Ok) and key in self.objects:
            names = self._names(answer.value[1])
            self.objects[key].flight = Flight("copy", client, source, names, lease, epoch)

    _on_DynamicReplicaCopyStart = _on_CopyStart

    def _on_MoveStart(self, answer, client, key, _tenant, source, _target):
        if isinstance(answer, Ok) and key in self.objects:
            names = self._names([answer.value[1]]) if answer.value[1] is not None else []
            self.objects[key].flight = Flight("move", client, source, names)

    def _on_CopyEnd(self, answer, _client, key, _tenant, *_dynamic):
        self._landed(key, answer, commit=True)

    _on_DynamicReplicaCopyEnd = _on_MoveEnd = _on_CopyEnd

    def _on_CopyRevoke(self, answer, _client, key, _tenant, *_dynamic):
        self._landed(key, answer, commit=False)

    _on_DynamicReplicaCopyRevoke = _on_MoveRevoke = _on_CopyRevoke

    def _landed(self, key, answer, commit):
        found = self.objects.get(key)
        if found and found.flight and isinstance(answer, Ok):
            if commit and found.replicas is not None:
                kept = [own for own in found.replicas if found.flight.kind == "copy" or own != found.flight.source]
                found.replicas = kept + found.flight.targets
            found.flight = None
        elif found and answer == Err(-712):
            found.flight, found.replicas = None, None
        self._gone(key, answer)

    def _on_MountSegment(self, answer, message, _client):
        if isinstance(answer, Ok) and message[0] in self._by_identity:
            self.mounted.setdefault(message[0], SEGMENT_OK)

    def _on_ReMountSegment(self, answer, messages, client):
        if isinstance(answer, Ok):
            if client not in self.ready_clients:
                for message in messages:
                    self._on_MountSegment(answer, message, client)
            self.ready_clients.add(client)

    def _on_UnmountSegment(self, answer, identity, _client):
        plan = self._by_identity.get(identity)
        if not isinstance(answer, Ok) or self.mounted.pop(identity, None) is None:
            return
        for key, found in list(self.objects.items()):
            if found.replicas is not None:
                found.replicas = [own for own in found.replicas if own != plan.name]
                if not found.replicas and not found.flight:
                    self._drop(key)

    def _on_GracefulUnmountSegment(self, answer, identity, client, grace):
        if isinstance(answer, Ok) and identity in self.mounted:
            if grace:
                self.mounted[identity] = GRACEFULLY_UNMOUNTING
            else:
                self._on_UnmountSegment(answer, identity, client)

    def _on_Ping(self, answer, client):
        if isinstance(answer, Ok):
            (self.ready_clients.add if answer.value[1] == CLIENT_OK else self.ready_clients.discard)(client)

    def _on_CreateCopyTask(self, answer, key, _tenant, _targets, token=None):
        if isinstance(answer, Ok) and key in self.objects and self.objects[key].replicas:
            self.tasks[token] = [self.owner_of(self.objects[key].replicas[0]), False]

    def _on_CreateMoveTask(self, answer, _key, _tenant, source, _target, token=None):
        if isinstance(answer, Ok):
            self.tasks[token] = [self.owner_of(source), False]

    def _on_MarkTaskToComplete(self, answer, _client, request):
        if isinstance(answer, Ok) and getattr(request[0], "token", None) in self.tasks:
            self.tasks[request[0].token][1] = True
