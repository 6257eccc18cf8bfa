"""The process around one real Mooncake client whose threads call without a pause, and note when each call began, when it
ended and with which code. `tests/suites/common/clients.py` starts it in place of its own worker and speaks to it the same way.

Every thread goes through four calls: it puts a new key, reads the last key that was put into registered memory (this
read returns a code, where `get` returns only bytes), puts a second key and, if that succeeded, removes it. The second key
is never read, so that no lease of the thread's own stands in the way of its removal; and only what was acknowledged is
read or removed, so that "no such object" is a loss.

usage: tight_loop.py FILE_DESCRIPTOR
"""

import ctypes
import sys
import threading
import time
from multiprocessing.connection import Connection

from mooncake.store import MooncakeDistributedStore

VALUE_BYTES = 256


class Loop:
    """The client's own methods, and those below."""

    def __init__(self):
        self.store = MooncakeDistributedStore()
        self.stopping, self.threads = threading.Event(), []

    def call(self, method, args, kwargs):
        own = getattr(self, method, None)
        return own(*args, **kwargs) if own else getattr(self.store, method)(*args, **kwargs)

    def fill(self, prefix, count, batch):
        """Puts so many objects; returns how many are there."""
        value, there = bytes(VALUE_BYTES), 0
        for first in range(0, count, batch):
            keys = [f"{prefix}/{number}" for number in range(first, min(first + batch, count))]
            if self.store.put_batch(keys, [value] * len(keys)) == 0:
                there += len(keys)
        return there

    def start_calling(self, prefix, threads):
        """Starts the threads; their keys begin with `prefix`."""
        self.stopping.clear()
        # Of each thread: its calls, and the begin of the last one that succeeded.
        self.calls, self.successes = [[] for _ in range(threads)], [0.0] * threads
        buffers = [ctypes.create_string_buffer(VALUE_BYTES) for _ in range(threads)]
        for buffer in buffers:
            assert self.store.register_buffer(ctypes.addressof(buffer), VALUE_BYTES) == 0
        self.buffers = buffers
        self.threads = [
            threading.Thread(target=self._run, args=[number, f"{prefix}/{number}", ctypes.addressof(buffers[number])])
            for number in range(threads)
        ]
        for each in self.threads:
            each.start()

    def _run(self, thread, prefix, address):
        store, value, calls = self.store, bytes(VALUE_BYTES), self.calls[thread]
        number, last = 0, None

        def make(name, method, *args):
            began = time.monotonic()
            code = method(*args)
            calls.append((name, began, time.monotonic(), code))
            if code >= 0:
                self.successes[thread] = began
            return code >= 0

        while not self.stopping.is_set():
            kept, passing = f"{prefix}/{number}", f"{prefix}/{number}-passing"
            if make("put", store.put, kept, value):
                last = kept
            if last is not None:
                make("get", store.get_into, last, address, VALUE_BYTES)
            if make("put", store.put, passing, value):
                make("remove", store.remove, passing)
            number += 1

    def succeeded_since(self, moment):
        """Whether every thread has begun a call after `moment` that succeeded."""
        return all(each >= moment for each in self.successes)

    def stop_calling(self, since):
        """Waits for the calls that are under way; returns those of each thread that ended after `since`."""
        self.stopping.set()
        for each in self.threads:
            each.join()
        for buffer in self.buffers:
            self.store.unregister_buffer(ctypes.addressof(buffer))
        return [[each for each in calls if each[2] >= since] for calls in self.calls]


def main():
    connection, loop = Connection(int(sys.argv[1])), Loop()
    while True:
        try:
            method, args, kwargs = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("returned", loop.call(method, args, kwargs)))
        except Exception as error:
            connection.send(("raised", f"{type(error).__name__}: {error}"))


if __name__ == "__main__":
    main()
