"""A client that speaks the wire only: it mounts memory that does not exist and pings, until it is told to fall silent."""

import itertools
import threading

from messages import ALL, MIB, NEED_REMOUNT, TENANT, config, meta, segment
from raw import NoAnswer, NotSent, Session
from struct_pack import Ok
from waiting import DEADLINE_SECONDS, wait_until

# How often real clients ping.
PING_SECONDS = 1
OBJECT_BYTES = 256
_numbers = itertools.count(1)


class RawClient:
    """Its id is also that of its segment. To be closed by the test that made it."""

    def __init__(self, world, size=64 * MIB):
        number = next(_numbers)
        self.id = (number, number)
        self.name = f"raw-client-{number}"
        # Every segment has an endpoint of its own, so that no two share a byte.
        self._segment = segment(self.id, self.name, 1 << 32, size, f"127.0.0.1:{10_000 + number}")
        self._session = Session(world.masters.addresses, world.host, DEADLINE_SECONDS)
        self._pings = Session(world.masters.addresses, world.host)
        self._silent = threading.Event()
        self._thread = threading.Thread(target=self._ping, daemon=True)
        wait_until(self._mounted, "a segment to be mounted")
        self._thread.start()

    def _mounted(self):
        try:
            mounted = self._session.call("MountSegment", self._segment, self.id)
            return isinstance(mounted, Ok) and isinstance(self._remount(self._session), Ok)
        except (NoAnswer, NotSent):
            return False

    def _remount(self, session):
        return session.call("ReMountSegment", [self._segment], self.id)

    def _ping(self):
        while not self._silent.wait(PING_SECONDS):
            try:
                answer = self._pings.call("Ping", self.id)
                if isinstance(answer, Ok) and answer.value[1] == NEED_REMOUNT:
                    self._remount(self._pings)
            except (NoAnswer, NotSent):
                pass

    def put(self, keys):
        """Puts into its own segment and returns the keys that were acknowledged."""
        plan = config(preferred=[self.name])
        sizes = [OBJECT_BYTES] * len(keys)
        answers = self._session.call("BatchPutStart", self.id, keys, sizes, plan, TENANT)
        begun = [key for key, answer in zip(keys, answers) if isinstance(answer, Ok)]
        answers = self._session.call("BatchPutEnd", self.id, [meta(key) for key in begun], ALL, TENANT)
        return [key for key, answer in zip(begun, answers) if isinstance(answer, Ok)]

    def fall_silent(self):
        """No ping from here on."""
        self._silent.set()
        if self._thread.is_alive():
            self._thread.join()

    def close(self):
        self.fall_silent()
        self._session.close()
        self._pings.close()
