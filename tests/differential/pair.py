"""Two masters that are sent the same calls.

``Pair.call`` sends one planned call to both, compares the answers, checks the
addresses in each, and keeps the tallies. The left one is the reference.
"""

import os
import time
from concurrent.futures import ThreadPoolExecutor

from calls import Call, resolve
from deliberate import deliberate
from ledger import Ledger
from masters import Master, ours_command, reference_command
from normalise import Normaliser
from rpc import RpcError
from struct_pack import Ok


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
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(Master.start, masters))
            self.left, self.right = (Side(master) for master in masters)
        except BaseException:
            for master in masters:
                master.stop()
            raise
        self.tally = tally

    @property
    def sides(self):
        return (self.left, self.right)

    def call(self, call):
        """Send one call to both; returns the raw answers or raises Difference."""
        answers = [side.send(call) for side in self.sides]
        if call.settle:
            time.sleep(call.settle)
        left, right = (
            side.normaliser(call.name, answer, call.loose) for side, answer in zip(self.sides, answers)
        )
        complaints = [
            f"{side.master.label}: {complaint}"
            for side, answer in zip(self.sides, answers)
            if not isinstance(answer, RpcError)
            for complaint in side.ledger.observe(call, answer)
        ]
        kept = deliberate(call, left, right) if left != right else None
        if self.tally:
            self.tally.record(call, answers[0], differs=left != right and kept is None, kept=kept)
        if complaints or (left != right and kept is None):
            raise Difference(call, answers, left, right, complaints)
        return answers

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
