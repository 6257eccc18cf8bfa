"""What a fault must change and what it must leave alone: who leads and why, what the operator has recorded, which containers
were started again, what was logged, and that all masters are back with one state. Everything is compared with how it stood
before."""

import datetime
import itertools
import re
from dataclasses import dataclass

from waiting import wait_until

# Why a master took over, in its own words.
DIED, LEASE_ENDED, HANDED_OVER = "the primary died", "the lease ran out", "switchover"
# The same in `lastFailover`.
RECORDED = {DIED: "ProcessDied", LEASE_ENDED: "LeaseExpired", HANDED_OVER: "HandOver"}
# How a master counts that it has thrown its state away once.
REBUILT = ("rebuilds of the state from the log", 1)
# A lease that no busy machine comes near.
LONG_LEASE_SECONDS = 30
# The last renewal may be as long ago as two of them are apart (`failover.keepAliveInterval`: 1s).
RENEWAL_SECONDS = 2
# Bounds a hang: what the operator and the kubelet write comes a little later than what it is about.
WRITTEN_SECONDS = 60
# Where the status of a pod has its containers, and the companion of a master, which is a sidecar and outlives every fault.
MAIN, SIDECARS = "containerStatuses", "initContainerStatuses"
# Whether a master has a companion that watches it.
WATCHED = "moonkeeper_companion_connected"
# A line of a log that asks for a person, or of a process that aborts.
_ALARM = re.compile(r'\sERROR\s|"level":"ERROR"|panicked at')


@dataclass(frozen=True)
class Expects:
    """What one fault has to come to."""

    # Why the primary of another term took over; None: the same primary goes on in the same term.
    promotion: str | None = None
    # Whether the operator records the change as a failover. A switchover that was asked for has its own record.
    recorded: bool = True
    # How many containers of masters are started again, and how many of their pods are replaced by others; whether it is
    # the primary's, where it is one.
    restarts: int = 0
    replaced: int = 0
    of_primary: bool = True
    # Whether the primary that was replaced may have applied records that never became durable: then it throws its state
    # away, and counts that.
    rebuilds: bool = False
    # Whether the operator's own pods stay as they are.
    operator_stays: bool = True
    # Whether a master answers, and every client has a success, before the lease of the old primary could have ended. Only
    # where that lease is long: a stall of a busy machine alone can make a short one expire.
    before_lease_ends: bool = False


@dataclass
class Standing:
    """How a cluster stood at one moment."""

    at: str
    primary: str
    term: int
    # uid and number of restarts by name, those of sidecars by uid.
    pods: dict
    sidecars: dict
    operators: dict
    failover: dict | None


def restarts(pod, kind=MAIN):
    return sum(each["restartCount"] for each in pod["status"].get(kind, []))


class Judge:
    """Compares how a cluster stands with how it stood. Without an operator there is no `resource`. `lease_seconds` is what
    the masters were told, if not the default."""

    def __init__(self, masters, resource=None, operator=None, lease_seconds=None):
        self.masters, self.resource, self.operator, self.lease_seconds = masters, resource, operator, lease_seconds

    def look(self):
        """How it stands now."""
        primary = self.masters.wait_until_serving()
        return Standing(
            at=datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            primary=primary.name,
            term=primary.status()["term"],
            pods=self._pods(),
            sidecars={each.uid: restarts(each.pod, SIDECARS) for each in self.masters.all()},
            operators=self._operators(),
            failover=self.resource and self.resource.status().get("lastFailover"),
        )

    def _pods(self):
        return {each.name: (each.uid, restarts(each.pod)) for each in self.masters.all()}

    def _operators(self):
        pods = self.operator.pods() if self.operator else []
        return {each["metadata"]["uid"]: restarts(each) for each in pods}

    def compare(self, before, expects):
        """What is not as expected, as sentences."""
        self.masters.wait_until_redundant()
        found = [*self._leadership(before, expects), *self._processes(before, expects), *self._masters(before, expects)]
        found += self._logs(before)
        if self.resource:
            self.resource.wait_until_settled(self.masters)
            found += self._records(before, expects)
        return found

    def late(self, expects, silence, client):
        """What was answered too late, as sentences: `silence` is of the masters, `client` of the worst client."""
        if not expects.before_lease_ends or (self.lease_seconds or 0) < LONG_LEASE_SECONDS:
            return
        limit = self.lease_seconds - RENEWAL_SECONDS
        for whose, seconds in (("no master answered", silence), ("a client had no success", client)):
            if seconds is not None and seconds >= limit:
                yield f"{whose} for {seconds:.1f} s; the lease could have ended after {limit} s"

    def _leadership(self, before, expects):
        primary = self.masters.wait_until_serving()
        status = primary.status()
        if expects.promotion is None:
            if (primary.name, status["term"]) != (before.primary, before.term):
                reason = (status.get("promotion") or {}).get("reason")
                yield (
                    f"{before.primary} was to go on in term {before.term}, but {primary.name} leads in term "
                    f"{status['term']}: {reason}"
                )
            return
        promotion = status.get("promotion") or {}
        if status["term"] <= before.term or promotion.get("term") != status["term"]:
            yield f"no new term after {before.term}: {primary.name} says {status['term']}, promoted {promotion}"
        elif promotion["reason"] != expects.promotion:
            yield f"{primary.name} took over because of {promotion['reason']!r}, not {expects.promotion!r}"

    def _processes(self, before, expects):
        """Kubernetes writes down a little later that a container was started again."""

        def changes():
            again, others, now = {}, [], self._pods()
            for name in sorted(before.pods.keys() & now.keys()):
                (was, count), (uid, later) = before.pods[name], now[name]
                if uid != was:
                    others.append(name)
                elif later != count:
                    again[name] = later - count
            return again, others

        def as_expected():
            again, others = changes()
            return sum(again.values()) == expects.restarts and len(others) == expects.replaced

        try:
            wait_until(as_expected, "pods", WRITTEN_SECONDS if expects.restarts or expects.replaced else 0)
        except AssertionError:
            again, others = changes()
            wanted = f"{expects.restarts} restarts and {expects.replaced} new pods were expected"
            yield f"{wanted}; restarted: {again}, new: {others}"
        again, others = changes()
        if expects.of_primary and expects.restarts + expects.replaced == 1 and {*again, *others} - {before.primary}:
            yield f"{before.primary} was to be restarted or replaced, not {[*again, *others]}"
        for each in self.masters.all():
            if restarts(each.pod, SIDECARS) != before.sidecars.get(each.uid, 0):
                yield f"the companion of {each.name} was started again"
        if expects.operator_stays and self._operators() != before.operators:
            yield f"the operator's pods were {before.operators} and are {self._operators()}"

    def _masters(self, before, expects):
        """All of them, and no others, are ready and have found nothing wrong with themselves."""
        found = self.masters.all()
        if {each.name for each in found} != set(before.pods):
            yield f"the masters were {sorted(before.pods)} and are {sorted(each.name for each in found)}"
        for each in found:
            faults = (each.status() or {}).get("faults")
            allowed = REBUILT if expects.rebuilds and each.name == before.primary else None
            if faults is None or [one for one in faults if (one["what"], one["count"]) != allowed]:
                yield f"{each.name} says that something is wrong: {faults}"
            try:
                # A master that was started again finds its companion a moment later.
                wait_until(lambda each=each: self._is_watched(each), "the companion", WRITTEN_SECONDS)
            except AssertionError:
                yield f"{each.name} has no companion that watches it"

    @staticmethod
    def _is_watched(master):
        """Whether its companion watches it. Masters that are set up by hand have no container for one."""
        return not master.pod["status"].get(SIDECARS) or master.metric(WATCHED) == 1

    def _logs(self, before):
        """Lines of masters and companions since then that ask for a person, those of containers that have ended as well."""
        for each in self.masters.all():
            _, count = before.pods.get(each.name, ("", 0))
            for kind, earlier in [(MAIN, count), (SIDECARS, before.sidecars.get(each.uid, 0))]:
                runs = [[], ["--previous"]] if restarts(each.pod, kind) > earlier else [[]]
                for container, options in itertools.product(each.pod["status"].get(kind, []), runs):
                    lines = self._log(each.name, container["name"], before.at, options)
                    said = f"{container['name']} of {each.name} logged"
                    yield from (f"{said}: {line.strip()}" for line in lines if _ALARM.search(line))

    def _log(self, pod, container, since, options):
        words = ["logs", "-n", self.masters.namespace, pod, "-c", container, f"--since-time={since}", *options]
        done = None

        def shown():
            nonlocal done
            done = self.masters.cluster.kubectl(*words, check=False)
            return "is waiting to start" not in done.stderr

        try:
            # A container may run before its kubelet has written so, and shows no log until then.
            wait_until(shown, f"the log of {pod}", WRITTEN_SECONDS)
        except AssertionError:
            pass
        # Nothing could be said about a log that cannot be read.
        if done.returncode:
            return [f" ERROR the log of {pod} cannot be read: {done.stderr.strip()}"]
        return done.stdout.splitlines()

    def _records(self, before, expects):
        if expects.promotion is None or not expects.recorded:
            now = self.resource.status().get("lastFailover")
            if now != before.failover:
                yield f"no failover was to be recorded; it was {before.failover} and is {now}"
            return
        reason, to = RECORDED[expects.promotion], self.masters.primary().name

        def recorded():
            now = self.resource.status().get("lastFailover")
            return now and now != before.failover and (now["reason"], now["to"]) == (reason, to)

        try:
            wait_until(recorded, "the record of the failover", WRITTEN_SECONDS)
        except AssertionError:
            yield f"a failover to {to} ({reason}) was to be recorded; it is {self.resource.status().get('lastFailover')}"
