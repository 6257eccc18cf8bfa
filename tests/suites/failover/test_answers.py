"""Answers while etcd is stopped: what is not durable is told to no client (F9), and what cannot be written is not
taken (F10)."""

import re
import socket
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from messages import TENANT
from ports import free_port
from raw import Session
from raw_client import RawClient
from struct_pack import Ok
from waiting import DEADLINE_SECONDS, wait_until

pytestmark = pytest.mark.timeout(180)
# For so long an answer is waited for that must not come.
SILENCE_SECONDS = 1
SEGMENTS = 20
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def call(world, name, *arguments):
    session = Session(world.masters.addresses, world.host, DEADLINE_SECONDS)
    try:
        return session.call(name, *arguments)
    finally:
        session.close()


def test_a_search_does_not_see_an_unmount_that_is_not_durable(ask, start_world):
    world = start_world(masters=1, clients=0, client_ttl=3600, leader_lease_ttl="60s")
    clients = [RawClient(world) for _ in range(SEGMENTS)]
    try:
        for number, each in enumerate(clients):
            assert each.put([f"object-{number}"])
        world.etcd.pause()
        unmounts, searches = [], []
        for number, each in enumerate(clients):
            unmounts.append(ask(call, world, "UnmountSegment", each.id, each.id))
            time.sleep(0.002)
            searches.append(ask(call, world, "GetReplicaListByRegex", f"^object-{number}$", TENANT))
        done = wait(searches, SILENCE_SECONDS).done
        told = [each.result() for each in done]
        nothing = sum(isinstance(each, Ok) and not each.value for each in told)
        assert not nothing, f"{nothing} searches found nothing before the unmount was durable"
        world.etcd.resume()
        assert [each.result(DEADLINE_SECONDS) for each in unmounts] == [Ok(None)] * SEGMENTS
        assert all(isinstance(each.result(DEADLINE_SECONDS), Ok) for each in searches)
        assert not call(world, "GetReplicaListByRegex", "^object-", TENANT).value
    finally:
        world.etcd.resume()
        for each in clients:
            each.close()


class Metadata:
    """The metadata server of a master."""

    VALUE = b"v" * (190 << 10)

    def __init__(self, port):
        self._port = port
        self._url = f"http://127.0.0.1:{port}/metadata?key="

    def put(self, key, seconds=DEADLINE_SECONDS):
        """The status of the answer; None when there was none in time."""
        request = urllib.request.Request(self._url + key, self.VALUE, method="PUT")
        return self._ask(request, seconds)

    def get(self, key):
        return self._ask(urllib.request.Request(self._url + key), DEADLINE_SECONDS)

    def _ask(self, request, seconds):
        try:
            with _opener.open(request, timeout=seconds) as answer:
                answer.read()
                return answer.status
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return None

    def shout(self, key):
        """A caller that hangs up without waiting for its answer."""
        head = f"PUT /metadata?key={key} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(self.VALUE)}\r\n\r\n"
        with socket.create_connection(("127.0.0.1", self._port), timeout=DEADLINE_SECONDS) as connection:
            connection.sendall(head.encode() + self.VALUE)
            time.sleep(0.03)


def resident_bytes(master):
    with open(f"/proc/{master.process.pid}/status") as status:
        return int(re.search(r"^VmRSS:\s+(\d+) kB$", status.read(), re.MULTILINE)[1]) << 10


def test_metadata_is_refused_while_etcd_is_away(start_world):
    port, queue_bytes = free_port(), 8 << 20
    world = start_world(
        masters=1,
        clients=0,
        enable_http_metadata_server="true",
        http_metadata_server_host="127.0.0.1",
        http_metadata_server_port=port,
        oplog_queue_bytes=queue_bytes,
    )
    primary, metadata = world.masters.wait_until_serving(), Metadata(port)
    assert metadata.put("before") == 200
    world.etcd.pause()
    try:
        # While the lease lasts they are taken, until the queue is full.
        before = resident_bytes(primary)
        with ThreadPoolExecutor(16) as callers:
            list(callers.map(metadata.shout, [f"early-{number % 8}" for number in range(200)]))
        assert primary.status()["queue_bytes"] <= queue_bytes
        wait_until(lambda: primary.status()["lease_ms_left"] == 0, "the lease to run out")
        with ThreadPoolExecutor(16) as callers:
            list(callers.map(metadata.shout, [f"late-{number % 8}" for number in range(600)]))
        assert metadata.put("refused") == 503
        assert primary.status()["queue_bytes"] <= queue_bytes
        # 110 MiB were sent after the lease had run out.
        assert resident_bytes(primary) - before < 64 << 20
    finally:
        world.etcd.resume()
    world.masters.wait_until_serving()
    wait_until(lambda: metadata.get("before") == 200, "the metadata server")
    assert metadata.get("refused") == 404
    assert [metadata.get(f"late-{number}") for number in range(8)] == [404] * 8
