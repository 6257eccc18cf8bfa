"""An etcd that speaks TLS alone and asks for a certificate: masters and operator show the one in the Secret that the spec
names, and the operator takes no etcd of another authority."""

from types import SimpleNamespace

import pytest

from certificates import Authority
from stores import Etcd

pytestmark = pytest.mark.timeout(300)
ADDRESS = "127.0.0.1"


def certified(folder, name):
    """An authority, and a certificate of it."""
    authority = Authority(folder, name)
    made = SimpleNamespace(ca=authority.certificate, cert=folder / f"{name}.crt", key=folder / f"{name}.key")
    authority.issue(made.cert, made.key, ADDRESS)
    return made


@pytest.fixture
def etcd(tmp_path):
    etcd = Etcd(tmp_path, tls=certified(tmp_path, "right"))
    yield etcd
    etcd.end()


def make_secret(space, name, **files):
    words = [f"--from-file={key.replace('_', '.')}={path}" for key, path in files.items()]
    space.kubectl("create", "secret", "generic", name, *words)
    return {"endpoints": [space.etcd.endpoint], "tlsSecretName": name}


def test_masters_and_operator_show_their_certificate(operator, space, tmp_path):
    right, other = space.etcd.tls, certified(tmp_path, "other")
    space.settle(etcd=make_secret(space, "right", ca_crt=right.ca, tls_crt=right.cert, tls_key=right.key))
    old = space.wait_labelled()
    assert space.condition("EtcdHealthy")["status"] == "True"
    space.masters[old].kill()
    space.wait(lambda: space.primary() not in (None, old), "another primary")
    assert space.wait_labelled() != old

    refused = {
        "no-certificate": make_secret(space, "no-certificate", ca_crt=right.ca),
        "other-certificate": make_secret(space, "other-certificate", ca_crt=right.ca, tls_crt=other.cert, tls_key=other.key),
        "other-etcd": make_secret(space, "other-etcd", ca_crt=other.ca, tls_crt=right.cert, tls_key=right.key),
    }
    for name, etcd in refused.items():
        space.make(name, etcd=etcd)
    for name in refused:
        space.wait_phase("Stalled", name)
        assert space.condition("EtcdHealthy", name)["status"] == "False", name
    assert space.condition("EtcdHealthy")["status"] == "True"
