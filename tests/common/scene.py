"""Masters that serve, real clients with memory, a probe, and everything that was done to them; and what is wrong after it.

Whoever runs the masters, as processes or in pods, has a class with the few methods that this needs of them:
`cluster_id`, `addresses`, `compares_digests`, `wait_until_serving()`, which returns a master with `segments()`,
`wait_until_redundant()` and `digests()`.
"""

import time
from dataclasses import dataclass

from actors import Crowd, FaithfulReader, RawActor, StoreActor, note_replicas
from checker import Violation, check
from clients import MIB, Client
from history import OK, READ, SOMETHING, History
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
    # The longest time in which no call of a real client succeeded; None if there were none.
    client_silence: float | None
    acknowledged: int
    violations: list


class Scene:
    """`host` is where the clients run, `address` is how they find the primary."""

    def __init__(self, folder, masters, host, address, seed="1"):
        self.folder, self.masters, self.host, self.address, self.seed = folder, masters, host, address, seed
        self.history, self.published = History(), {"raw": [], "store": []}
        self.clients = []
        self.generation = 0

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

    def actors(self, raw=2):
        """New actors, whose keys nobody has used: raw ones, and one for every real client."""
        self.generation += 1
        name = f"g{self.generation}"
        made = [
            RawActor(f"raw{number}-{name}", self.seed, self.history, self.published["raw"], self.session())
            for number in range(raw)
        ]
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

    def round(self, fault, actors=None, warm_up=1.0):
        """Traffic, one fault, traffic, and then everything is looked at."""
        self.masters.wait_until_redundant()
        before = self.history.acknowledged()
        probe = Probe(self.masters.addresses, self.host)
        crowd = Crowd(actors or self.actors())
        try:
            time.sleep(warm_up)
            steps = fault(self)
            struck = next(steps)
            first_answer, _ = probe.first_after(struck, RECOVERY_SECONDS)
            next(steps, None)
            time.sleep(warm_up)
            ended = time.monotonic()
        finally:
            probe.stop()
            crowd.stop()
        silence = probe.longest_silence(struck, ended)
        client_silence = self._client_silence(struck, ended)
        violations = self.sweep()
        acknowledged = self.history.acknowledged() - before
        return Round(fault.__name__, first_answer, silence, client_silence, acknowledged, violations)

    def _client_silence(self, start, end):
        """The longest time without a success of a real client that touches the time between the two moments."""
        good = (each for each in self.history.operations if each.outcome == OK and each.actor.startswith("store"))
        moments = sorted(each.answered for each in good if each.answered <= end)
        if not moments:
            return None
        before = max((each for each in moments if each <= start), default=start)
        inside = [before, *(each for each in moments if each > start), end]
        return max(later - earlier for earlier, later in zip(inside, inside[1:]))

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
        keys = self.history.keys()
        for start in range(0, len(keys), SWEEP_KEYS):
            chunk = keys[start : start + SWEEP_KEYS]
            operations = [self.history.begin("sweep", READ, key) for key in chunk]
            for operation, answer in zip(operations, self.call("BatchGetReplicaList", chunk, TENANT)):
                note_replicas(operation, answer)
                # Where a real client's object is says nothing about what it holds.
                if operation.key.startswith("store") and isinstance(answer, Ok):
                    operation.value = SOMETHING
        self.read_back()
        unread = [each.key for each in self.history.operations[swept:] if each.outcome != OK]
        unread = [Violation("unread", key, "could not be read after the fault") for key in unread]
        return check(self.history) + unread + self._compare_digests()

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

    def end(self):
        """Ends the clients; a second time does nothing."""
        for each in self.clients:
            each.kill()
