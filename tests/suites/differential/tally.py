"""Counts what was called and what was answered, and prints it as tables."""

from collections import Counter, defaultdict

from rpc import RPCS, RpcError
from struct_pack import Err, Ok

#: The error codes of the protocol description that a master without offload,
#: NoF, DFS allocator and tenants can answer, and why each one is possible.
#: Not among them is -714, with which an upsert is refused over a replica that
#: is in use: in use by a copy or move it is refused with -708 before that, and
#: nothing else but offloading and promotion uses one. That no way to end a copy
#: leaves its source in use is shown by test_copy_and_move.py.
APPLICABLE_CODES = {
    -1: "remount of a segment without base",
    -101: "segment not found",
    -200: "no memory for even one replica",
    -300: "dynamic copy with another epoch",
    -600: "invalid parameters",
    -601: "another client's write, copy or task",
    -700: "end or revoke without a write in progress",
    -703: "replica not ready",
    -704: "object not found",
    -705: "object exists",
    -706: "object has a lease",
    -708: "object has a copy or move in flight",
    -709: "object has none",
    -710: "source replica not found",
    -712: "source or target went away during a copy or move",
    -1010: "segment is unmounting, or no such dynamic replication",
    -1011: "NoF is not built in",
    -1300: "offloading is off",
    -1400: "task not found",
    -1401: "too many pending tasks",
    -1601: "no DFS allocator",
}


def is_success(answer):
    """A call counts as answered with success if any part of it succeeded; of an empty batch nothing did."""
    if isinstance(answer, (Err, RpcError)):
        return False
    if isinstance(answer, list):
        return any(isinstance(item, Ok) for item in answer)
    return True


def error_codes(answer):
    """Every error code inside an answer."""
    items = answer if isinstance(answer, list) else [answer]
    return [item.code for item in items if isinstance(item, Err)]


class Tally:
    """The counts of a whole run."""

    def __init__(self):
        self.calls = Counter()
        self.successes = Counter()
        self.differences = Counter()
        self.deliberate = Counter()
        self.codes = defaultdict(Counter)

    def record(self, call, answer, *, differs, kept):
        self.calls[call.name] += 1
        self.successes[call.name] += is_success(answer)
        self.differences[call.name] += differs
        if kept is not None:
            self.deliberate[kept.name] += 1
        for code in error_codes(answer):
            self.codes[code][call.name] += 1

    def add(self, other):
        for mine, theirs in (
            (self.calls, other.calls),
            (self.successes, other.successes),
            (self.differences, other.differences),
            (self.deliberate, other.deliberate),
        ):
            mine.update(theirs)
        for code, names in other.codes.items():
            self.codes[code].update(names)

    @property
    def total(self):
        return sum(self.calls.values())

    @property
    def success_share(self):
        return sum(self.successes.values()) / max(1, self.total)

    def missing_codes(self):
        return [code for code in APPLICABLE_CODES if code not in self.codes]

    def __str__(self):
        lines = [f"{'RPC':28}{'calls':>8}{'success':>9}{'differences':>13}"]
        for name in sorted(RPCS):
            lines.append(
                f"{name:28}{self.calls[name]:8}{self.successes[name]:9}{self.differences[name]:13}"
            )
        lines.append(
            f"{'all':28}{self.total:8}{sum(self.successes.values()):9}{sum(self.differences.values()):13}"
            f"   ({self.success_share:.0%} success)"
        )
        lines.append("")
        lines.append(f"{'code':>6}{'seen':>8}  meaning, and who answered it")
        for code in sorted(set(APPLICABLE_CODES) | set(self.codes), reverse=True):
            names = self.codes.get(code, {})
            who = ", ".join(f"{name} {count}" for name, count in sorted(names.items()))
            lines.append(f"{code:6}{sum(names.values()):8}  {APPLICABLE_CODES.get(code, '')}: {who}")
        for name, count in sorted(self.deliberate.items()):
            lines.append(f"deliberate difference {name}: {count}")
        return "\n".join(lines)
