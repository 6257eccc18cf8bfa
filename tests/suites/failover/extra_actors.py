"""Actors for deployments of their own: what they do would make others' objects look lost."""

import http.client

from actors import Actor, RawActor
from checker import Violation
from history import ABSENT, METADATA, OK, PUT, READ, REFUSED, REMOVE, UNKNOWN, finish
from messages import ENABLE, TENANT, config
from raw import ANSWER_SECONDS, NotSent

GROUP_SIZE = 4


class RemovingActor(RawActor):
    """Now and then removes all objects. It is the only one that writes, so all of them are its own."""

    def step(self):
        choices = [self.put, self.put_batch, self.read, self.remove, self.remove_all]
        self.random.choices(choices, [18, 4, 8, 2, 1])[0]()

    def remove_all(self):
        keys, self.live = self.live, []
        doubtful = sum(each.outcome == UNKNOWN and each.kind in (PUT, REMOVE) for each in self.history.operations)
        operations = [self.history.begin(self.name, REMOVE, key) for key in keys]
        removed = self._ask(operations, "RemoveAll", True, TENANT)
        if removed is None:
            return
        for each in operations:
            finish(each, OK)
        # What is in doubt may have been there to be removed.
        if not len(keys) <= removed <= len(keys) + doubtful:
            text = f"{removed} objects removed, {len(keys)} to {len(keys) + doubtful} were there"
            self.history.complaints.append(Violation("count", "RemoveAll", text))


class CrowdingActor(RawActor):
    """Puts more than there is memory for and reads some of it again; removes nothing. `most_pinned` bounds what can never
    be evicted."""

    def __init__(self, *arguments, object_bytes, most_pinned, **more):
        super().__init__(*arguments, **more)
        self.object_bytes, self.most_pinned = object_bytes, most_pinned
        self.groups = self.pinned = 0

    def step(self):
        choices = [self.put_some, self.put_pinned, self.put_soft, self.put_group, self.read]
        self.random.choices(choices, [8, 1, 2, 2, 4])[0]()

    def put_some(self):
        self._put(self.batch, config())

    def put_soft(self):
        self._put(1, config(soft_pin=ENABLE))

    def put_pinned(self):
        if self.pinned < self.most_pinned:
            self.pinned += 1
            self._put(1, config(hard_pin=True), pinned=True)

    def put_group(self):
        self.groups += 1
        group = f"{self.name}-{self.groups}"
        self._put(GROUP_SIZE, config(groups=[group] * GROUP_SIZE), group=group)

    def _put(self, count, plan, pinned=False, group=None):
        first = len(self.history.operations)
        try:
            started = self.start_keys(self.new_keys(count), plan, self.object_bytes)
        finally:
            for each in self.history.operations[first:]:
                if each.actor == self.name:
                    each.pinned, each.group = pinned, group
        if started:
            self.end_batch(started)


class MetadataActor(Actor):
    """Puts, replaces, reads and deletes entries of the metadata server, over HTTP, at the master that serves."""

    def __init__(self, name, seed, history, masters):
        super().__init__(METADATA + name, seed, history, [])
        self.masters = masters
        self.versions = 0

    def step(self):
        self.random.choices([self.put, self.replace, self.read, self.delete], [4, 3, 4, 2])[0]()

    def put(self):
        self._put(self.new_keys(1)[0])

    def replace(self):
        for key in self.some_live(1):
            self._put(key, was_there=True)

    def _put(self, key, was_there=False):
        self.versions += 1
        operation = self.history.begin(self.name, PUT, key, f"{key} version {self.versions}")
        status = self._change(operation, "PUT", operation.value, was_there)
        if status is not None:
            self.note_put(operation, OK if status == 200 else UNKNOWN)

    def delete(self):
        for key in self.some_live(1):
            operation = self.history.begin(self.name, REMOVE, key)
            status = self._change(operation, "DELETE", None, True)
            if status == 404:
                finish(operation, REFUSED)
                finish(self.history.begin(self.name, READ, key), OK, ABSENT)
            elif status is not None:
                finish(operation, OK if status == 200 else UNKNOWN)

    def read(self):
        for key in self.random.sample(self.live, min(4, len(self.live))):
            self.read_key(key)

    def read_key(self, key):
        operation = self.history.begin(self.name, READ, key)
        try:
            status, body = self._request("GET", key)
        except (NotSent, OSError, http.client.HTTPException):
            return
        if status == 200:
            finish(operation, OK, body)
        elif status == 404:
            finish(operation, OK, ABSENT)

    def _change(self, operation, method, value, was_there):
        """The status of the answer; None if the outcome is noted already."""
        try:
            status, body = self._request(method, operation.key, value)
        except NotSent:
            self._refused(operation, was_there)
            raise
        except (OSError, http.client.HTTPException):
            return None
        if status == 503 and "unknown" not in body:
            return self._refused(operation, was_there)
        return status

    def _refused(self, operation, was_there):
        finish(operation, REFUSED)
        if was_there:
            self.live.append(operation.key)

    def _request(self, method, key, value=None):
        """Of the first master whose metadata server is at work; what was sent to one is sent to no other."""
        for master in self.masters.all:
            connection = http.client.HTTPConnection(master.host.address, master.metadata_port, timeout=ANSWER_SECONDS)
            try:
                with master.host.inside():
                    connection.connect()
            except OSError:
                connection.close()
                continue
            try:
                connection.request(method, f"/metadata?key={key}", value)
                answer = connection.getresponse()
                status, body = answer.status, answer.read().decode()
            finally:
                connection.close()
            if status != 503 or "not active" not in body:
                return status, body
        raise NotSent("no metadata server is at work")
