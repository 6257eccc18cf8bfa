"""A call as the harness plans it: symbolic where a master must choose.

A planned call can be sent to any master at any time, which is what lets a
failing sequence be replayed and shrunk. The only symbolic value is a task id,
which every master invents for itself.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class TaskRef:
    """Stands for the id of the task that the call with this token created."""

    token: int

    def unknown_id(self):
        """What is sent when that task does not exist on a master."""
        return (0xDEAD, self.token)


@dataclass(frozen=True)
class Call:
    """One planned call."""

    name: str
    arguments: tuple
    #: name under which the id of the task created by this call is remembered
    token: int | None = None
    #: the placement of replicas was left to the master and is not compared
    loose: bool = False

    def __str__(self):
        shown = ", ".join(_short(argument) for argument in self.arguments)
        return f"{self.name}({shown})" + (f" -> task {self.token}" if self.token is not None else "")

    def keys(self):
        """The object keys the call names; None if it may touch any key."""
        return _KEYS.get(self.name, lambda arguments: set())(self.arguments)

    def clients(self):
        """Every UUID-shaped argument: clients, segments and tasks alike."""
        return {argument for argument in self.arguments if isinstance(argument, tuple) and len(argument) == 2}


def resolve(value, tasks):
    """The arguments with every TaskRef replaced by this master's id."""
    if isinstance(value, TaskRef):
        return tasks.get(value.token, value.unknown_id())
    if isinstance(value, tuple):
        return tuple(resolve(item, tasks) for item in value)
    if isinstance(value, list):
        return [resolve(item, tasks) for item in value]
    return value


def _short(value):
    text = repr(value)
    return text if len(text) <= 160 else f"{text[:140]}...({len(text)} chars)"


def _first(arguments):
    return {arguments[0]}


def _second(arguments):
    return {arguments[1]}


def _all_keys(arguments):
    return None


_KEYS = {
    "RemoveAll": _all_keys,
    "RemoveByRegex": _all_keys,
    "GetReplicaListByRegex": _all_keys,
    "FetchTasks": _all_keys,
    **dict.fromkeys(["ExistKey", "GetReplicaList", "Remove", "CreateCopyTask", "CreateMoveTask"], _first),
    **dict.fromkeys(["BatchExistKey", "BatchGetReplicaList", "BatchRemove", "BatchReplicaClear"], lambda a: set(a[0])),
    **dict.fromkeys(
        [
            "PutStart",
            "PutRevoke",
            "UpsertStart",
            "UpsertRevoke",
            "CopyStart",
            "CopyEnd",
            "CopyRevoke",
            "DynamicReplicaCopyStart",
            "DynamicReplicaCopyEnd",
            "DynamicReplicaCopyRevoke",
            "MoveStart",
            "MoveEnd",
            "MoveRevoke",
            "EvictDiskReplica",
            "PromotionAllocStart",
            "NotifyPromotionSuccess",
            "NotifyPromotionFailure",
        ],
        _second,
    ),
    **dict.fromkeys(["PutEnd", "UpsertEnd"], lambda a: {a[1][0]}),
    **dict.fromkeys(["BatchPutEnd", "BatchUpsertEnd"], lambda a: {item[0] for item in a[1]}),
    **dict.fromkeys(
        ["BatchPutStart", "BatchUpsertStart", "BatchPutRevoke", "BatchUpsertRevoke", "BatchEvictDiskReplica"],
        lambda a: set(a[1]),
    ),
}
