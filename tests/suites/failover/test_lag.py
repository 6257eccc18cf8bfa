"""A standby that cannot keep up says so (F8)."""

import json
import os
import signal
import subprocess
import threading
import time

import pytest

pytestmark = pytest.mark.timeout(240)
# What the standby gets of the processor.
STOPPED_SECONDS, RUNNING_SECONDS = 0.19, 0.01
# A standby may take what it heard within three seconds for the end of the log; one more for the look itself.
HEARSAY_SECONDS = 4
# Looks at a standby that is behind; enough that luck has no part in it.
LOOKS = 5
WATCH_SECONDS = 90


class SlowMotion:
    """Stops a process most of the time, until it is left."""

    def __init__(self, master):
        self._pid = master.process.pid
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._end.set()
        self._thread.join()

    def _run(self):
        while not self._end.is_set():
            os.killpg(self._pid, signal.SIGSTOP)
            self._end.wait(STOPPED_SECONDS)
            os.killpg(self._pid, signal.SIGCONT)
            self._end.wait(RUNNING_SECONDS)


def durable_before(looks, moment):
    """The durable prefix of the primary as of `moment` or a little earlier."""
    return max((durable for at, durable in looks if at <= moment), default=0)


def test_a_slow_standby_is_not_ready(start_world):
    world = start_world(masters=2, clients=0, client_ttl=3600)
    world.masters.wait_until_connected()
    primary, [standby] = world.masters.primary(), world.masters.standbys()
    command = [os.environ["MOONKEEPER_BIN"], "bench", "load", "--scenario", "batch-put", "--address", primary.address]
    command += ["--connections", "4", "--outstanding", "2", "--seconds", "600"]
    load = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    looks, behind, end = [], [], time.monotonic() + WATCH_SECONDS
    try:
        with SlowMotion(standby):
            while len(behind) < LOOKS:
                assert time.monotonic() < end, f"the standby was seen behind {len(behind)} times only"
                durable = primary.metric("moonkeeper_durable_prefix")
                if durable is not None:
                    looks.append((time.monotonic(), durable))
                asked = time.monotonic()
                told, ready = standby.http("/api/v1/status"), standby.ready()
                told = told and json.loads(told)
                # It is behind even what it was told long ago.
                told_long_ago = durable_before(looks, asked - HEARSAY_SECONDS)
                if told and ready and told["applied"] < told_long_ago:
                    behind.append(told)
                    shown = {name: told.get(name) for name in ("applied", "durable_prefix", "lag", "caught_up", "ready")}
                    shown = f"{shown}, readiness {ready}; {HEARSAY_SECONDS} s ago {told_long_ago:.0f} was durable"
                    # An unknown lag is not zero.
                    assert told.get("lag") is None or told["lag"] > 0, shown
                    assert not told["caught_up"] and not told["ready"], shown
                    assert ready[0] == 503, shown
                time.sleep(0.1)
    finally:
        load.kill()
        load.wait()
    # Once it may run again it catches up.
    world.masters.wait_until_connected()
    assert len(set(world.masters.digests().values())) == 1
