"""The master under test: Moonkeeper, or the reference when MOONKEEPER_TEST_MASTER=reference.

Both take the same flags, so one suite runs against either; run against the reference it shows that the suite is right.
"""

import json
import os
import signal
import socket
import urllib.request

import processes
from ports import free_port
from waiting import wait_until


def is_reference():
    which = os.environ.get("MOONKEEPER_TEST_MASTER", "moonkeeper")
    assert which in ("moonkeeper", "reference"), f"MOONKEEPER_TEST_MASTER={which}: moonkeeper or reference"
    return which == "reference"


def _command():
    return [os.environ["MOONCAKE_MASTER"]] if is_reference() else [os.environ["MOONKEEPER_BIN"], "master"]


def accepts(port, address="127.0.0.1"):
    """Whether somebody listens there."""
    try:
        socket.create_connection((address, port), timeout=5).close()
        return True
    except ConnectionRefusedError:
        return False


class Master:
    """A running master; `flags` are the reference's, by name."""

    def __init__(self, log_path, rpc_port=None, **flags):
        self.rpc_port = rpc_port or free_port()
        self.metrics_port = free_port()
        self.address = f"127.0.0.1:{self.rpc_port}"
        self.log_path = log_path
        flags = {
            "rpc_address": "127.0.0.1",
            "rpc_port": self.rpc_port,
            "metrics_host": "127.0.0.1",
            "metrics_port": self.metrics_port,
        } | flags
        self.process = processes.spawn(_command() + [f"--{name}={value}" for name, value in flags.items()], log_path)
        wait_until(self._serves, "the master to open its ports")

    def _serves(self):
        assert self.process.poll() is None, f"the master ended with {self.process.returncode}: {self.log_path}"
        return accepts(self.rpc_port) and accepts(self.metrics_port)

    def http(self, path):
        """The text that the HTTP port answers to GET `path`."""
        url = f"http://127.0.0.1:{self.metrics_port}{path}"
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
            return answer.read().decode()

    def segments(self):
        """Names of the mounted segments."""
        return sorted(each["segment_name"] for each in json.loads(self.http("/get_segments_detail"))["segments"])

    def keys(self):
        """All keys that the master knows."""
        return set(self.http("/get_all_keys").splitlines())

    def stop(self, how=signal.SIGTERM):
        """Asks it to end and returns its exit code."""
        self.process.send_signal(how)
        return self.process.wait(timeout=60)

    def kill(self):
        processes.kill(self.process)
