"""The metadata server of a master (`--enable_http_metadata_server`), in which the transfer engines of real clients find
each other."""

import urllib.error
import urllib.parse
import urllib.request

import pytest

from one_master import Master, accepts, is_reference
from ports import free_port
from waiting import wait_until

# What the client's setup returns when another has its name.
NAME_TAKEN = -600
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class WithMetadata(Master):
    """A master with a metadata server."""

    def __init__(self, log_path, host="127.0.0.1", **flags):
        self.metadata_port = free_port()
        self.metadata = f"http://{host}:{self.metadata_port}/metadata"
        flags |= {
            "enable_http_metadata_server": "true",
            "http_metadata_server_host": host,
            "http_metadata_server_port": self.metadata_port,
        }
        super().__init__(log_path, **flags)
        wait_until(lambda: accepts(self.metadata_port, host), "the metadata server to open its port")

    def entry(self, kind, segment):
        """What a transfer engine has said of its segment, or None."""
        # The key is taken as it is written in the URL, and the engines write it encoded.
        key = urllib.parse.quote(f"mooncake/{kind}/{segment}", safe="")
        try:
            with _opener.open(f"{self.metadata}?key={key}", timeout=30) as answer:
                return answer.read()
        except urllib.error.HTTPError as error:
            with error:
                assert error.code == 404, error
                return None

    def entries(self, segment):
        """How many entries there are of a segment: its memory, and where its engine is reached."""
        return sum(self.entry(kind, segment) is not None for kind in ("ram", "rpc_meta"))


@pytest.fixture
def master(request, tmp_path):
    mark = request.node.get_closest_marker("master")
    master = WithMetadata(tmp_path / "master.log", **(mark.kwargs if mark else {}))
    yield master
    master.kill()


def test_clients_find_each_other(master, start_client):
    writer, reader = (start_client(metadata=master.metadata) for _ in range(2))
    assert [master.entries(each.segment) for each in (writer, reader)] == [2, 2]
    value = b"value" * 1000
    assert writer.put("here", value, config={"preferred_segments": [writer.segment]}) == 0
    assert writer.put("there", value, config={"preferred_segments": [reader.segment]}) == 0
    assert reader.get_batch(["here", "there"]) == [value, value]
    # One that leaves takes its entries along.
    assert writer.close() == 0
    assert [master.entries(each.segment) for each in (writer, reader)] == [0, 2]


@pytest.mark.parametrize("told, other", [("127.0.0.1", "127.0.0.2"), ("127.0.0.2", "127.0.0.1")])
def test_it_listens_where_it_is_told(tmp_path, told, other):
    master = WithMetadata(tmp_path / "master.log", host=told)
    try:
        assert accepts(master.metadata_port, told)
        # The reference listens everywhere: docs/metrics.md.
        assert accepts(master.metadata_port, other) == is_reference()
    finally:
        master.kill()


def test_there_is_none_unless_it_is_asked_for(tmp_path):
    port = free_port()
    master = Master(tmp_path / "master.log", http_metadata_server_host="127.0.0.1", http_metadata_server_port=port)
    try:
        assert not accepts(port)
    finally:
        master.kill()


def expire(master, dead, alive):
    dead.kill()
    wait_until(lambda: master.segments() == [alive.segment], "the dead client's segment to go")


@pytest.mark.master(client_ttl=5)
def test_entries_of_a_dead_client_stay(master, start_client):
    dead, alive = (start_client(metadata=master.metadata) for _ in range(2))
    expire(master, dead, alive)
    assert [master.entries(each.segment) for each in (dead, alive)] == [2, 2]


@pytest.mark.master(client_ttl=5, enable_metadata_cleanup_on_timeout="true")
def test_entries_of_a_dead_client_go_if_that_is_wanted(master, start_client):
    dead, alive = (start_client(metadata=master.metadata) for _ in range(2))
    expire(master, dead, alive)
    # The reference looks for names that are not encoded, which no client writes: docs/metrics.md.
    assert [master.entries(each.segment) for each in (dead, alive)] == [2 if is_reference() else 0, 2]


@pytest.mark.master(client_ttl=5, enable_metadata_cleanup_on_timeout="true")
def test_a_client_can_come_back_once_its_entries_are_gone(master, start_client):
    """While its old entries are there, its name is taken."""
    name = f"127.0.0.1:{free_port()}"
    other = start_client(metadata=master.metadata)
    expire(master, start_client(metadata=master.metadata, hostname=name), other)
    if is_reference():
        with pytest.raises(AssertionError, match=f"setup failed with {NAME_TAKEN}"):
            start_client(metadata=master.metadata, hostname=name)
        return
    again = start_client(metadata=master.metadata, hostname=name)
    assert other.put("key", b"value", config={"preferred_segments": [again.segment]}) == 0
    assert other.get("key") == b"value"
