"""The process around one real Mooncake client: reads calls from a pipe, makes them, sends back what they return.

The C++ client is one per process, owns threads and memory that others write into, and may hang; so each gets a process
of its own, which a test can kill like the machine it stands for.

usage: worker.py FILE_DESCRIPTOR
"""

import concurrent.futures
import ctypes
import sys
import threading
import time
from multiprocessing.connection import Connection

from mooncake.store import (
    MooncakeDistributedStore,
    QueryTaskResponse,
    ReplicaDescriptor,
    ReplicateConfig,
    SoftPinAction,
)


# Calls that may be under way at once in `start_asking`.
ASKERS = 500
# Objects in a batch of `start_writing`.
BATCH = 4


def build_config(settings):
    """A ReplicateConfig from its fields by name."""
    config = ReplicateConfig()
    for name, value in settings.items():
        setattr(config, name, getattr(SoftPinAction, value) if name == "soft_pin_action" else value)
    return config


def plain(value):
    """What the client returned, in types that the other side can read without the client's library."""
    if isinstance(value, (list, tuple)):
        return type(value)(plain(each) for each in value)
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, ReplicaDescriptor):
        buffer = value.get_memory_descriptor().buffer_descriptor
        return {
            "status": value.status.name,
            "endpoint": buffer.transport_endpoint,
            "address": buffer.buffer_address,
            "size": buffer.size,
        }
    if isinstance(value, QueryTaskResponse):
        return {"type": value.type.name, "status": value.status.name, "message": value.message}
    return value


class Worker:
    """The client's own methods, and a few that are more than one call of it."""

    def __init__(self):
        self.store = MooncakeDistributedStore()

    def call(self, method, args, kwargs):
        if "config" in kwargs:
            kwargs["config"] = build_config(kwargs["config"])
        own = getattr(self, method, None)
        return plain(own(*args, **kwargs) if own else getattr(self.store, method)(*args, **kwargs))

    def put_registered(self, keys, values, **kwargs):
        """Writes from memory registered with the client, as inference engines do."""
        return self._with_buffer([len(value) for value in values], self._put_from, keys, values, **kwargs)

    def get_registered(self, keys, sizes):
        """Reads into registered memory: the client's results, and the bytes that are there afterwards."""
        return self._with_buffer(sizes, self._get_into, keys, sizes)

    def start_asking(self, key, interval):
        """Asks for `key` every `interval` seconds, whether the calls before were answered or not, as an engine with many
        requests at hand does."""
        self.asking, self.asked = threading.Event(), []

        def ask():
            began = time.monotonic()
            result = self.store.is_exist(key)
            self.asked.append((began, time.monotonic(), result))

        def run():
            with concurrent.futures.ThreadPoolExecutor(ASKERS) as askers:
                while not self.asking.wait(interval):
                    askers.submit(ask)

        self.asker = threading.Thread(target=run)
        self.asker.start()

    def answers(self):
        """(asked, answered, result) of every call that has ended, by the clock that all processes share."""
        return list(self.asked)

    def stop_asking(self):
        """Waits for the calls that are under way."""
        self.asking.set()
        self.asker.join()

    def start_writing(self, threads, value):
        """Threads that put, every other one in batches, look and remove without ever pausing, as those of an engine do."""
        self.written, self.made = threading.Event(), [[] for _ in range(threads)]
        self.writers = [threading.Thread(target=self._write, args=(number, value)) for number in range(threads)]
        for each in self.writers:
            each.start()

    def calls(self):
        """For each thread (call, began, ended, result) of every call that has ended, by the clock that all processes share."""
        return [list(each) for each in self.made]

    def stop_writing(self):
        """Waits for the calls that are under way."""
        self.written.set()
        for each in self.writers:
            each.join()

    def _write(self, number, value):
        def call(method, *args):
            began = time.monotonic()
            result = getattr(self.store, method)(*args)
            self.made[number].append((method, began, time.monotonic(), result))
            return result

        count = 0
        while not self.written.is_set():
            keys = [f"writer-{number}-{count}-{nth}" for nth in range(BATCH)]
            count += 1
            # Another key: a look at an object grants a lease on it, and it could not be removed.
            call("is_exist", "no writer has this key")
            if number % 2 == 0:
                keys = keys[:1]
                done = call("put", keys[0], value)
            else:
                done = call("put_batch", keys, [value] * len(keys))
            for key in keys if done == 0 else []:
                call("remove", key)

    def _with_buffer(self, sizes, action, *args, **kwargs):
        memory = ctypes.create_string_buffer(sum(sizes))
        base = ctypes.addressof(memory)
        assert self.store.register_buffer(base, len(memory)) == 0
        try:
            pointers = [base + sum(sizes[:index]) for index in range(len(sizes))]
            return action(pointers, *args, **kwargs)
        finally:
            self.store.unregister_buffer(base)

    def _put_from(self, pointers, keys, values, **kwargs):
        for pointer, value in zip(pointers, values):
            ctypes.memmove(pointer, value, len(value))
        return self.store.batch_put_from(keys, pointers, [len(value) for value in values], **kwargs)

    def _get_into(self, pointers, keys, sizes):
        results = self.store.batch_get_into(keys, pointers, sizes)
        return results, [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes)]


def main():
    connection = Connection(int(sys.argv[1]))
    worker = Worker()
    while True:
        try:
            method, args, kwargs = connection.recv()
        except EOFError:
            return
        try:
            connection.send(("returned", worker.call(method, args, kwargs)))
        except Exception as error:
            connection.send(("raised", f"{type(error).__name__}: {error}"))


main()
