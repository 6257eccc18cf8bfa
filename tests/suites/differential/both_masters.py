"""Starts and stops the two masters on free loopback ports.

``MOONCAKE_MASTER`` names the reference's binary, ``MOONKEEPER_BIN`` ours. Both
get the same flags in the same spelling: that our binary takes them is part of
what is tested.
"""

import os
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import processes
from ports import free_port
from rpc import Connection

_START_DEADLINE_SECONDS = 30.0


class MasterDied(Exception):
    """A master exited before it served; carries the tail of its log."""


def reference_command():
    return [_required("MOONCAKE_MASTER")]


def ours_command():
    return [_required("MOONKEEPER_BIN"), "master"]


def _required(name):
    value = os.environ.get(name)
    if not value:
        raise RuntimeError(f"{name} is not set: it must name the binary to test")
    return value


@dataclass
class Master:
    """One running master process."""

    label: str
    command: list
    flags: dict
    rpc_port: int = 0
    metrics_port: int = 0
    process: subprocess.Popen = None
    log: Path = None
    connections: list = field(default_factory=list)

    def start(self):
        self.launch()
        self.wait_until_ready()
        return self

    def launch(self):
        """Starts the process. From the main thread only, as ``processes.spawn`` wants it."""
        self.rpc_port = free_port()
        self.metrics_port = free_port()
        flags = {
            "rpc_address": "127.0.0.1",
            "rpc_port": self.rpc_port,
            "metrics_host": "127.0.0.1",
            "metrics_port": self.metrics_port,
            **self.flags,
        }
        arguments = [f"--{name}={_spell(value)}" for name, value in flags.items()]
        handle, name = tempfile.mkstemp(prefix=f"master-{self.label}-", suffix=".log")
        os.close(handle)
        self.log = Path(name)
        self.process = processes.spawn(self.command + arguments, self.log)

    def wait_until_ready(self):
        """Returns when the master takes connections. One that ends before is not started again, whatever the reason:
        that would hide a master of ours that dies at its start."""
        deadline = time.monotonic() + _START_DEADLINE_SECONDS
        while self.process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.label} did not open its ports\n{self._stopped()}")
            try:
                for port in (self.metrics_port, self.rpc_port):
                    Connection(("127.0.0.1", port), timeout=5.0).close()
            except OSError:
                time.sleep(0.02)
                continue
            return
        raise MasterDied(f"{self.label} exited with {self.process.returncode}\n{self._stopped()}")

    def _stopped(self):
        """Stop, and return the last lines of the log."""
        text = self.log.read_text(errors="replace")
        self.stop()
        return "\n".join(text.splitlines()[-20:])

    def connect(self):
        connection = Connection(("127.0.0.1", self.rpc_port))
        self.connections.append(connection)
        return connection

    def stop(self):
        for connection in self.connections:
            connection.close()
        self.connections.clear()
        # Killed, not asked: nothing of a test master is worth keeping, and the
        # reference takes most of a second to stop on its own.
        if self.process:
            processes.kill(self.process)
        if self.log:
            self.log.unlink(missing_ok=True)

    def __enter__(self):
        return self.start()

    def __exit__(self, *exc):
        self.stop()


def _spell(value):
    return str(value).lower() if isinstance(value, bool) else value
