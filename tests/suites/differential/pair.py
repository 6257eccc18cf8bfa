"""Two masters that are sent the same calls.

``Pair.call`` sends one planned call to both, compares the answers, checks the
addresses in each, and keeps the tallies. The left one is the reference.
"""

import os
import time

from calls import Call, resolve
from copies import Copies
from deliberate import deliberate
from ledger import Ledger
from both_masters import Master, ours_command, reference_command
from messages import GRACEFULLY_UNMOUNTING, UNMOUNTING
from normalise import Normaliser
from rpc import RpcError
from struct_pack import Ok


# An unmount takes segments away at once, but what lay on them is swept behind
# it, and some calls can tell: a count of removals, a put over an unfinished
# one. Calls about objects are kept this long behind.
_SWEEP_SECONDS = 0.1
# Far above what it takes: meeting it is a failure.
_UNMOUNT_DEADLINE_SECONDS = 30.0


class Difference(AssertionError):
    """The masters disagree; carries the call and both answers.

    ``left`` and ``right`` are the comparable forms, ``answers`` what came.
    """

    def __init__(self, call, answers, left, right, complaints=()):
        self.call = call
        self.answers = answers
        self.left = left
        self.right = right
        self.complaints = list(complaints)
        super().__init__(str(self))

    def __str__(self):
        lines = [f"{self.call}", f"  reference: {self.left!r}", f"  ours:      {self.right!r}"]
        return "\n".join(lines + [f"  {complaint}" for complaint in self.complaints])


def self_comparison():
    """Whether the reference is compared with itself, to test the harness."""
    return os.environ.get("DIFFERENTIAL_SELF") == "1"


class Side:
    """One master with everything the harness remembers about it."""

    def __init__(self, master):
        self.master = master
        self.connection = master.connect()
        self.normaliser = Normaliser()
        self.ledger = Ledger()
        self.tasks = {}

    def send(self, call):
        try:
            answer = self.connection.call(call.name, *resolve(call.arguments, self.tasks))
        except RpcError as error:
            return error
        if call.token is not None and isinstance(answer, Ok):
            self.tasks[call.token] = answer.value
        return answer


class Pair:
    """The reference and ours, started with the same flags."""

    def __init__(self, tally=None, **flags):
        right = reference_command() if self_comparison() else ours_command()
        masters = [Master("reference", reference_command(), flags), Master("ours", right, flags)]
        try:
            # Side by side: most of a start is waiting.
            for master in masters:
                master.launch()
            for master in masters:
                master.wait_until_ready()
            self.left, self.right = (Side(master) for master in masters)
        except BaseException:
            for master in masters:
                master.stop()
            raise
        self.tally = tally
        self.copies = Copies()
        self._swept = True

    @property
    def sides(self):
        return (self.left, self.right)

    def call(self, call):
        """Send one call to both; returns the raw answers or raises Difference."""
        if not self._swept and call.keys() != set():
            time.sleep(_SWEEP_SECONDS)
            self._swept = True
        answers = [side.send(call) for side in self.sides]
        stuck = self._settle(call, answers)
        left, right = (
            side.normaliser(call.name, answer, call.loose) for side, answer in zip(self.sides, answers)
        )
        complaints = stuck + [
            f"{side.master.label}: {complaint}"
            for side, answer in zip(self.sides, answers)
            if not isinstance(answer, RpcError)
            for complaint in side.ledger.observe(call, answer)
        ]
        kept = deliberate(call, left, right, self.copies) if left != right else None
        self.copies.observe(call, answers[0])
        if self.tally:
            self.tally.record(call, answers[0], differs=left != right and kept is None, kept=kept)
        if complaints or (left != right and kept is None):
            raise Difference(call, answers, left, right, complaints)
        return answers

    def _settle(self, call, answers):
        """Wait for what the masters do after they have answered; returns complaints about what they do not do."""
        if call.name in ("UnmountSegment", "GracefulUnmountSegment"):
            self._swept &= not self.left.ledger.has_mounted(call.arguments[0])
        if call.name == "GracefulUnmountSegment" and call.arguments[2] == 0:
            asked = [side for side, answer in zip(self.sides, answers) if isinstance(answer, Ok)]
            return [complaint for side in asked for complaint in self._await_unmounted(side, call.arguments[0])]
        return []

    @staticmethod
    def _await_unmounted(side, identity):
        """A grace period of zero ends soon, but not before the answer. Returns a complaint if it does not."""
        deadline = time.monotonic() + _UNMOUNT_DEADLINE_SECONDS
        while time.monotonic() < deadline:
            status = side.connection.call("QuerySegmentStatusById", identity)
            if status not in (Ok(GRACEFULLY_UNMOUNTING), Ok(UNMOUNTING)):
                return []
            time.sleep(0.005)
        return [f"{side.master.label}: a segment without a grace period is still {status!r}"]

    def both(self, name, *arguments, **options):
        """Send one call to both and return the reference's answer."""
        return self.call(Call(name, arguments, **options))[0]

    def stop(self):
        for side in self.sides:
            side.master.stop()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.stop()
