"""What each real client felt: the time until a call of its own succeeded again, and how many of its calls failed."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Gap:
    """Of one client. `seconds` is its longest time without a success since the fault, None if it had none; `failed` are
    its calls that failed."""

    name: str
    seconds: float | None
    failed: int


@dataclass(frozen=True)
class Call:
    """One call of a client, which may be about many keys; it succeeded if it did for all of them."""

    began: float
    ended: float
    succeeded: bool


def gap(name, calls, struck, ended):
    """The gap of one client that made these calls, which touches the time between the two moments. Only a call that
    began after the fault shows that the client is served again."""
    good = [each for each in calls if each.succeeded and each.ended <= ended]
    failed = sum(not each.succeeded for each in calls if struck <= each.ended <= ended)
    if not any(each.began >= struck for each in good):
        return Gap(name, None, failed)
    last = max((each.ended for each in good if each.ended <= struck), default=struck)
    moments = [last, *sorted(each.ended for each in good if each.ended > struck), ended]
    return Gap(name, max(later - earlier for earlier, later in zip(moments, moments[1:])), failed)
