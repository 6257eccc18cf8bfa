"""Makes answers of two masters comparable.

Only what the two may choose freely is taken out: addresses, replica ids, task
ids and timestamps. Ids are not thrown away but renamed in the order in which
they are first seen: task ids over the whole life of a master, replica ids
within one answer. Maps and sets are sorted, and so are the replicas of an
existing object: where one was dropped, the reference moves another into its
place at a moment of its own choosing. A timestamp has to be one: milliseconds,
and of these minutes. Everything else is compared as it came.
"""

import time

from rpc import RpcError
from struct_pack import Err, Ok

_NEW_REPLICAS = {"PutStart", "BatchPutStart"}
# Longer than any test, and far below what a wrong unit or another clock would make of it.
_TIMELY_MS = 600_000


class Labels:
    """Renames ids to small numbers in order of first appearance."""

    def __init__(self):
        self._names = {}

    def __call__(self, value):
        return self._names.setdefault(value, len(self._names))


class Normaliser:
    """The renamings of one master."""

    def __init__(self):
        self.replicas = Labels()
        self.tasks = Labels()

    def __call__(self, name, answer, loose=False):
        """The comparable form of one answer; ``loose`` hides endpoints too."""
        self.replicas = Labels()
        if isinstance(answer, RpcError):
            return ("rpc error", answer.code, answer.message)
        return self._answer(name, answer, loose)

    def _answer(self, name, answer, loose):
        if name in ("PutStart", "UpsertStart"):
            return self._mapped(answer, lambda value: self._listed(name, value, loose))
        if name in ("BatchPutStart", "BatchUpsertStart"):
            return [self._mapped(item, lambda value: self._listed(name, value, loose)) for item in answer]
        if name == "GetReplicaList":
            return self._mapped(answer, lambda value: self._replica_answer(value, loose))
        if name == "BatchGetReplicaList":
            return [self._mapped(item, lambda value: self._replica_answer(value, loose)) for item in answer]
        if name == "GetReplicaListByRegex":
            return self._mapped(
                answer,
                lambda found: [
                    (key, self._listed(name, value, loose)) for key, value in sorted(found, key=lambda i: i[0])
                ],
            )
        if name in ("CopyStart", "DynamicReplicaCopyStart"):
            return self._mapped(
                answer, lambda value: (self._replica(value[0], loose), self._replicas(value[1], loose))
            )
        if name == "MoveStart":
            return self._mapped(
                answer,
                lambda value: (
                    self._replica(value[0], loose),
                    None if value[1] is None else self._replica(value[1], loose),
                ),
            )
        if name == "PromotionAllocStart":
            return self._mapped(answer, lambda value: (self._replica(value[0], loose),))
        if name == "BatchQueryIp":
            return self._mapped(answer, lambda value: sorted((client, sorted(ips)) for client, ips in value))
        if name in ("CreateCopyTask", "CreateMoveTask"):
            return self._mapped(answer, self.tasks)
        if name == "QueryTask":
            return self._mapped(answer, self._task_state)
        if name == "FetchTasks":
            return self._mapped(answer, lambda value: [self._assignment(item) for item in value])
        return answer

    @staticmethod
    def _mapped(answer, change):
        return answer if isinstance(answer, Err) else Ok(change(answer.value))

    def _replica(self, descriptor, loose):
        replica_id, (alternative, body), status = descriptor
        label = self.replicas(replica_id)
        if alternative == 0:
            ((size, _address, protocol, endpoint),) = body
            body = (size, protocol, "*" if loose else endpoint)
        return (label, alternative, body, status)

    def _replicas(self, descriptors, loose):
        return [self._replica(item, loose) for item in descriptors]

    def _listed(self, name, descriptors, loose):
        if name not in _NEW_REPLICAS:
            descriptors = sorted(descriptors, key=_place)
        return self._replicas(descriptors, loose)

    def _replica_answer(self, value, loose):
        replicas, lease_ttl, checksum = value
        return (self._listed("GetReplicaList", replicas, loose), lease_ttl, checksum)

    def _task_state(self, value):
        task, kind, status, created, updated, client, message = value
        order = "in order" if created <= updated else "REVERSED"
        return (self.tasks(task), kind, status, _timely(created), _timely(updated), order, client, message)

    def _assignment(self, value):
        task, kind, payload, created, retries = value
        return (self.tasks(task), kind, payload, _timely(created), retries)


def _timely(timestamp):
    """Hides a timestamp if it can be one of this test run."""
    return "timely" if abs(timestamp - time.time() * 1000) < _TIMELY_MS else timestamp


def _place(descriptor):
    """Sorts replicas by kind and place; by address last, which keeps ids apart."""
    _, (alternative, body), status = descriptor
    if alternative == 0:
        ((_size, address, _protocol, endpoint),) = body
        return (alternative, endpoint, status, address)
    return (alternative, repr(body), status, 0)
