"""Real Mooncake clients, each in a process of its own, driven from the test."""

import os
import pathlib
import socket
from multiprocessing.connection import Connection

import processes

MIB = 1 << 20
# Above the 30 s after which the client itself gives up on a call.
CALL_SECONDS = 60


class ClientError(Exception):
    """The client raised; the text is its own."""


class Client:
    """A client process. Every method of MooncakeDistributedStore, and those of worker.py, can be called on it;
    `config` is given as a dict of ReplicateConfig's fields."""

    def __init__(self, log_path, environment=None, wrap=lambda command: command):
        """`environment` is added to that of the tests; `wrap` puts the command into a network namespace."""
        ours, theirs = socket.socketpair()
        with theirs:
            # Settings of the shell that the tests run in are not part of them.
            inherited = {name: value for name, value in os.environ.items() if not name.startswith(("MC_", "MOONCAKE_"))}
            worker = str(pathlib.Path(__file__).with_name("worker.py"))
            command = [os.environ["MOONCAKE_PYTHON"], worker, str(theirs.fileno())]
            self.process = processes.spawn(
                wrap(command), log_path, pass_fds=[theirs.fileno()], env=inherited | (environment or {})
            )
        self.log_path = log_path
        self.segment = None
        self._connection = Connection(ours.detach())

    def connect(
        self, master, segment_size=64 * MIB, buffer_size=32 * MIB, hostname="127.0.0.1", metadata="P2PHANDSHAKE"
    ):
        """The client's setup with all data on TCP; mounts one segment, or none of size 0. `metadata` is the address of a
        metadata server; without one clients ask each other."""
        result = self.setup(hostname, metadata, segment_size, buffer_size, "tcp", "", master.address)
        assert result == 0, f"setup failed with {result}: {self.log_path}"
        self.segment = self.get_hostname()
        return self

    def call(self, method, *args, **kwargs):
        """Makes the call and returns what it returned."""
        self.begin(method, *args, **kwargs)
        return self.finish()

    def begin(self, method, *args, **kwargs):
        """Starts a call without waiting for it, so that several clients can be at work at once."""
        self._connection.send((method, args, kwargs))

    def finish(self):
        """The result of the call that `begin` started."""
        if not self._connection.poll(CALL_SECONDS):
            raise TimeoutError(f"the client does not answer: {self.log_path}")
        try:
            outcome, value = self._connection.recv()
        except (EOFError, ConnectionError):
            raise ClientError(f"the client process ended with {self.process.wait()}: {self.log_path}") from None
        if outcome == "raised":
            raise ClientError(value)
        return value

    def __getattr__(self, method):
        if method.startswith("_"):
            raise AttributeError(method)
        return lambda *args, **kwargs: self.call(method, *args, **kwargs)

    def running(self):
        return self.process.poll() is None

    def kill(self):
        """Ends the client as a crash does: nothing is closed, nothing is unmounted."""
        processes.kill(self.process)
        self._connection.close()
