"""Masters on an etcd other than the usual one: an older release, and one that is reached by TLS and whose certificates are
replaced under them."""

import json
import os
import subprocess
import urllib.request

import pytest

import etcd
from certificates import Authority
from ports import free_port
from waiting import wait_until

pytestmark = pytest.mark.timeout(180)
FOUND_SECONDS = 90


def written(client, name, count=200):
    values = {f"{name}-{number}": f"{name} {number} ".encode() * 50 for number in range(count)}
    assert client.put_batch(list(values), list(values.values())) == 0
    return values


def replaced(world):
    """Kills the primary; returns the next one, when the clients have found it."""
    world.masters.wait_until_redundant()
    old = world.masters.wait_until_serving()
    old.kill()
    new = world.wait_for_another(old)
    for each in world.clients:
        wait_until(lambda: each.is_exist("probe") >= 0, "a client to find it", FOUND_SECONDS)
    old.start()
    return new


def test_an_older_etcd(start_world, monkeypatch):
    usual = os.environ["ETCD_BIN"]
    monkeypatch.setenv("ETCD_BIN", os.environ["ETCD_DEBIAN_BIN"])
    world = start_world(clients=1)
    url = f"http://{world.etcd.members[0].endpoint}/version"
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=10) as answer:
        version = json.loads(answer.read())["etcdserver"]
    known = subprocess.run([usual, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"etcd Version: {version}" not in known, "that is the usual one"
    [client] = world.clients
    values = written(client, "before")
    replaced(world)
    assert client.get_batch(list(values)) == list(values.values())
    # And on purpose.
    world.masters.wait_until_connected()
    world.masters.wait_until_serving().switchover()
    wait_until(lambda: client.get_batch(list(values)) == list(values.values()), "the client to follow", FOUND_SECONDS)
    assert len(set(world.masters.digests().values())) == 1


@pytest.fixture
def tls(tmp_path, monkeypatch):
    """Makes members of etcd serve TLS on a second port, and ask for certificates there; the tests use the first."""

    class Tls:
        port = free_port()
        ca, cert, key = (tmp_path / name for name in ("etcd-ca.crt", "etcd.crt", "etcd.key"))
        trusted = tmp_path / "trusted-by-etcd.crt"
        own_cert, own_key = tmp_path / "masters.crt", tmp_path / "masters.key"

    class Member(etcd.Member):
        def start(self, initial_cluster):
            urls = f"http://{self.endpoint},https://{self.host.address}:{Tls.port}"
            self.flags = ["--listen-client-urls", urls, "--advertise-client-urls", urls]
            self.flags += ["--cert-file", str(Tls.cert), "--key-file", str(Tls.key)]
            self.flags += ["--client-cert-auth", "--trusted-ca-file", str(Tls.trusted)]
            super().start(initial_cluster)

    monkeypatch.setattr(etcd, "Member", Member)
    return Tls


def test_certificates_that_are_replaced(start_world, tls, tmp_path):
    address = etcd.Host().address
    first, second = Authority(tmp_path, "first"), Authority(tmp_path, "second")

    def trust(*authorities):
        for path in (tls.ca, tls.trusted):
            new = path.with_suffix(".new")
            new.write_text("".join(each.certificate.read_text() for each in authorities))
            new.replace(path)

    trust(first)
    first.issue(tls.cert, tls.key, address)
    first.issue(tls.own_cert, tls.own_key, address)
    flags = {"etcd_cacert": tls.ca, "etcd_cert": tls.own_cert, "etcd_key": tls.own_key}
    # So long that nothing of this ends it.
    world = start_world(
        clients=1, etcd_endpoints=f"https://{address}:{tls.port}", leader_lease_ttl="60s", **flags
    )
    [client] = world.clients
    values = written(client, "first")
    primary = world.masters.wait_until_serving()
    term = primary.status()["term"]
    # As docs/kubernetes.md has it: both authorities, new certificates, the new authority alone.
    trust(first, second)
    second.issue(tls.cert, tls.key, address)
    second.issue(tls.own_cert, tls.own_key, address)
    world.etcd.kill()
    world.etcd.restart()
    trust(second)
    values |= written(client, "second")
    assert world.masters.wait_until_serving() is primary and primary.status()["term"] == term
    world.etcd.kill()
    world.etcd.restart()
    values |= written(client, "third")
    replaced(world)
    assert client.get_batch(list(values)) == list(values.values())
