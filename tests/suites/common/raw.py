"""Calls to whichever master serves, straight over the wire: fast enough for long histories and for timing."""

import bisect
import threading
import time

from rpc import Connection, RpcError
from struct_pack import CodecError, Err, Ok

# After this an answer does not come: the call's outcome is unknown.
ANSWER_SECONDS = 3.0
# A master that was stopped takes connections and does not answer.
PROBE_SECONDS = 0.5
PROBE_PAUSE_SECONDS = 0.004


class NotSent(Exception):
    """No master took the request: it has certainly not happened."""


class NoAnswer(Exception):
    """The request was sent and its outcome is unknown."""


class Session:
    """A connection to the primary, found by trying all masters, and found again when it breaks. Not for two threads."""

    def __init__(self, addresses, host, answer_seconds=ANSWER_SECONDS):
        self._addresses, self._host = list(addresses), host
        self._answer_seconds = answer_seconds
        self._connection = None

    def call(self, name, *arguments):
        """The decoded answer."""
        connection = self._connection or self._connect()
        try:
            return connection.call(name, *arguments)
        except (OSError, RpcError, CodecError) as error:
            self.close()
            raise NoAnswer(f"{name}: {error}") from None

    def _connect(self):
        for _ in self._addresses:
            # The one that failed last is tried last.
            address = self._addresses.pop(0)
            try:
                with self._host.inside():
                    self._connection = Connection(address, timeout=self._answer_seconds)
                self._addresses.insert(0, address)
                return self._connection
            except OSError:
                self._addresses.append(address)
        raise NotSent("no master takes connections")

    def close(self):
        if self._connection:
            self._connection.close()
            self._connection = None
            # It may be a master that takes connections and answers nothing.
            self._addresses.append(self._addresses.pop(0))


class Probe:
    """Asks every master all the time whether a key exists, and notes when one answers."""

    def __init__(self, addresses, host):
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._answers = []
        self._threads = [threading.Thread(target=self._run, args=[each, host], daemon=True) for each in addresses]
        for each in self._threads:
            each.start()

    def _run(self, address, host):
        connection = None
        while not self._stop.is_set():
            invoked = time.monotonic()
            try:
                if connection is None:
                    with host.inside():
                        connection = Connection(address, timeout=PROBE_SECONDS)
                if isinstance(connection.call("ExistKey", "probe", "default"), (Ok, Err)):
                    with self._lock:
                        bisect.insort(self._answers, (time.monotonic(), invoked, address))
            except (OSError, RpcError, CodecError):
                if connection is not None:
                    connection.close()
                connection = None
            self._stop.wait(PROBE_PAUSE_SECONDS)
        if connection is not None:
            connection.close()

    def first_after(self, moment, seconds):
        """Seconds from `moment` to the first answer to a call made after it, and who gave it; fails after `seconds`."""
        end = time.monotonic() + seconds
        while True:
            with self._lock:
                found = next(((at, who) for at, asked, who in self._answers if asked >= moment), None)
            if found:
                return found[0] - moment, found[1]
            assert time.monotonic() < end, f"no master answered within {seconds} s"
            time.sleep(0.002)

    def longest_silence(self, start, end):
        """The longest time without an answer that touches the time between the two moments."""
        with self._lock:
            moments = [at for at, _, _ in self._answers]
        first = bisect.bisect_right(moments, start) - 1
        inside = [moments[max(first, 0)] if moments else start, *(at for at in moments if start < at <= end), end]
        return max(later - earlier for earlier, later in zip(inside, inside[1:]))

    def stop(self):
        self._stop.set()
        for each in self._threads:
            each.join()
