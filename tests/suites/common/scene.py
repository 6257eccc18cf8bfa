"""Masters that serve, real clients with memory, a probe, and everything that was done to them; and what is wrong after it.

What runs the masters, as processes or in pods, is a class with the few methods that this needs of them:
`cluster_id`, `addresses`, `compares_digests`, `wait_until_serving()`, which returns a master with `segments()` and
`http()`, `wait_until_redundant()` and `digests()`.
"""

import json
import time
from dataclasses import dataclass

from actors import Crowd, FaithfulReader, RawActor, StoreActor, note_replicas
from busy_actor import BusyActor
from checker import Violation, check
from clients import MIB, Client
from gaps import gap
from history import METADATA, OK, READ, SOMETHING, History
from messages import TENANT
from raw import NoAnswer, NotSent, Probe, Session
from struct_pack import Ok
from waiting import wait_until

# A client of this generation waits two minutes for a connection to a dead address, unless told so.
CLIENT_ENVIRONMENT = {"MC_RPC_CONNECT_TIMEOUT_MS": "1000"}
SWEEP_KEYS = 500
# Longer than a primary is stopped for, so that its clients are still there when it wakes up.
FAITHFUL_SECONDS = 15
# Bounds a hang; the reference needs up to half a minute after its etcd was away.
RECOVERY_SECONDS = 90


@dataclass
class Round:
    """What one fault did."""

    fault: str
    # Seconds from the fault to the first answer to a later call, and the longest time without any.
    first_answer: float
    silence: float
    # What each real client felt.
    clients: list
    acknowledged: int
    violations: list

    @property
    def client_silence(self):
        """The longest time in which no call of one real client succeeded, of the worst; None if there were none."""
        return max((each.seconds for each in self.clients if each.seconds is not None), default=None)

    @property
    def failed_calls(self):
        """Calls of real clients that failed."""
        return sum(each.failed for each in self.clients)


class Scene:
    """`host` is where the clients run, `address` is how they find the primary."""

    def __init__(self, folder, masters, host, address, seed="1"):
        self.folder, self.masters, self.host, self.address, self.seed = folder, masters, host, address, seed
        self.history, self.published = History(), {"raw": [], "store": []}
        self.clients = []
        self.generation = 0
        # Where memory is short: what the checker has to know of that.
        self.evicting = None

    def start_client(self, segment_size=256 * MIB, hostname=None, **environment):
        """A real client that finds the primary through etcd."""
        log = self.folder / f"client-{len(self.clients)}.log"
        environment = CLIENT_ENVIRONMENT | {"MC_STORE_CLUSTER_ID": self.masters.cluster_id} | environment
        self.clients.append(Client(log, environment, self.host.wrap))
        return self.clients[-1].connect(self, segment_size, hostname=hostname or self.host.address)

    def session(self):
        return Session(self.masters.addresses, self.host)

    def call(self, name, *arguments, seconds=RECOVERY_SECONDS):
        """A call that changes nothing, made until a master answers."""
        session = self.session()

        def ask():
            try:
                return [session.call(name, *arguments)]
            except (NoAnswer, NotSent):
                return None

        try:
            return wait_until(ask, f"an answer to {name}", seconds)[0]
        finally:
            session.close()

    def wait_until_answered(self):
        """Until some master answers."""
        self.call("ExistKey", "probe", TENANT)

    def segments(self):
        """The names of the clients' segments by their endpoints."""
        found = self.masters.wait_until_serving().http("/get_segments_detail")
        return {each["te_endpoint"]: each["segment_name"] for each in json.loads(found)["segments"]} if found else {}

    def raw_actor(self, name, kind=RawActor, **more):
        """An actor that speaks the wire; `name` is new."""
        return kind(name, self.seed, self.history, self.published["raw"], self.session(), **more)

    def actors(self, raw=2):
        """New actors with keys of their own: raw ones, and one for every real client."""
        self.generation += 1
        name = f"g{self.generation}"
        made = [self.busy_actor(f"raw{number}-{name}") for number in range(raw)]
        made += [
            FaithfulReader(
                f"faithful{number}-{name}",
                self.seed,
                self.history,
                self.published["raw"],
                Session([address], self.host, FAITHFUL_SECONDS),
            )
            for number, address in enumerate(self.masters.addresses)
        ]
        return made + [
            StoreActor(f"store{number}-{name}", self.seed, self.history, self.published["store"], client)
            for number, client in enumerate(self.clients)
        ]

    def busy_actor(self, name):
        """An actor that makes every kind of change."""
        return self.raw_actor(name, BusyActor, segments=self.segments())

    def round(self, fault, actors=None, warm_up=1.0, least=0):
        """Traffic, one fault, traffic, and then everything is looked at. At least `least` changes are acknowledged, half
        of them before the fault, however slow the machine is."""
        self.masters.wait_until_redundant()
        acknowledged = self.history.acknowledged()
        probe = Probe(self.masters.addresses, self.host)
        actors = actors or self.actors()
        crowd = Crowd(actors)
        stores = [each for each in actors if isinstance(each, StoreActor)]
        try:
            time.sleep(warm_up)
            self._wait_for_traffic(acknowledged + least / 2)
            before = self.look()
            steps = fault(self)
            struck = next(steps)
            first_answer, _ = probe.first_after(struck, RECOVERY_SECONDS)
            next(steps, None)
            time.sleep(warm_up)
            self._wait_for_traffic(acknowledged + least)
            self._wait_for_clients(stores, struck)
            ended = time.monotonic()
        finally:
            probe.stop()
            crowd.stop()
        silence = probe.longest_silence(struck, ended)
        clients = [gap(each.name, each.calls, struck, ended) for each in stores]
        violations = self.sweep() + self.judge(fault, before, silence, clients)
        acknowledged = self.history.acknowledged() - acknowledged
        return Round(fault.__name__, first_answer, silence, clients, acknowledged, violations)

    def look(self):
        """How the masters stand right before a fault, for `judge`."""

    def judge(self, fault, before, silence, clients):
        """What a fault has done that it may not do."""
        starved = [each for each in clients if each.seconds is None]
        return [Violation("starved", each.name, f"no success, {each.failed} calls failed") for each in starved]

    def _wait_for_traffic(self, count):
        wait_until(lambda: self.history.acknowledged() >= count, f"{count:.0f} acknowledged changes", RECOVERY_SECONDS)

    @staticmethod
    def _wait_for_clients(stores, struck):
        """Until every real client had a success of its own in a call that began after the fault, or is past the time."""
        end = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < end:
            if all(any(call.succeeded and call.began >= struck for call in reversed(each.calls)) for each in stores):
                return
            time.sleep(0.05)

    def settle(self):
        """Until there is a primary, and every client has found it and mounted its memory there."""
        primary = self.masters.wait_until_serving()
        alive = [each for each in self.clients if each.running()]
        for each in alive:
            wait_until(lambda: each.is_exist("probe") >= 0, "a client to find the primary", RECOVERY_SECONDS)
        segments = {each.segment for each in alive}
        wait_until(lambda: segments <= set(primary.segments()), "the clients' memory", RECOVERY_SECONDS)

    def sweep(self):
        """Reads everything that was ever written: where it is, and what it holds; returns what is wrong."""
        self.settle()
        swept = len(self.history.operations)
        keys = [key for key in self.history.keys() if not key.startswith(METADATA)]
        for start in range(0, len(keys), SWEEP_KEYS):
            chunk = keys[start : start + SWEEP_KEYS]
            operations = [self.history.begin("sweep", READ, key) for key in chunk]
            for operation, answer in zip(operations, self.call("BatchGetReplicaList", chunk, TENANT)):
                note_replicas(operation, answer)
                # Where a real client's object is says nothing about what it holds.
                if operation.key.startswith("store") and isinstance(answer, Ok):
                    operation.value = SOMETHING
        self.read_back()
        self.read_metadata()
        unread = [each.key for each in self.history.operations[swept:] if each.outcome != OK]
        unread = [Violation("unread", key, "could not be read after the fault") for key in unread]
        return check(self.history, self.evicting) + unread + self._compare_digests()

    def _compare_digests(self):
        """All masters have the same state at the same record (INV-8)."""
        if not self.masters.compares_digests:
            return []
        digests = self.masters.digests()
        same = len(set(digests.values())) == 1
        return [] if same else [Violation("digest", "", f"masters differ: {digests}")]

    def read_back(self):
        """Real clients read every object of real clients; between them they take turns."""
        keys = [key for key in self.history.keys() if key.startswith("store")]
        alive = [each for each in self.clients if each.running()]
        readers = [StoreActor(f"reader{n}", self.seed, self.history, [], each) for n, each in enumerate(alive)]
        for start in range(0, len(keys), 64):
            readers[start // 64 % len(readers)].read_keys(keys[start : start + 64])

    def read_metadata(self):
        """Reads all entries of the metadata server, where there is one."""

    def end(self):
        """Ends the clients; a second time does nothing."""
        for each in self.clients:
            each.kill()
