"""Wrong specs are refused with a sentence that says what is wrong; what only turns out later is in a condition."""

import pytest

from masterclusters import Resource, etcd_of, mastercluster


ETCD = "http://etcd:2379"
# What is wrong, the resource, and what kubectl must say.
REFUSED = [
    ("no etcd", mastercluster(), "spec.etcd: Required value"),
    ("an endpoint that is no URL", mastercluster(etcd="etcd:2379"), "spec.etcd.endpoints[0]"),
    ("https without a certificate", mastercluster(etcd="https://etcd:2379"), "needs tlsSecretName"),
    ("no replicas", mastercluster(etcd=ETCD, replicas=0), "spec.replicas"),
    ("a hundred replicas", mastercluster(etcd=ETCD, replicas=100), "spec.replicas"),
    ("a reserved cluster id", mastercluster(etcd=ETCD, clusterId="oplog"), "oplog is the name"),
    ("a target and no request", mastercluster(etcd=ETCD, switchover={"target": "demo-1"}), "requestId"),
    ("a duration without a unit", mastercluster(etcd=ETCD, store={"leaseTTL": "10"}), "spec.store.leaseTTL"),
    ("a lease too short for etcd", mastercluster(etcd=ETCD, failover={"leaseTTL": "1s"}), "leaseTTL is 2s to 60s"),
    ("a tag in the repository", mastercluster(etcd=ETCD, image={"repository": "x/y:1"}), "belongs in image.tag"),
    ("a field that is not there", mastercluster(etcd=ETCD, replica=3), 'unknown field "spec.replica"'),
    ("a word that is none of ours", mastercluster(etcd=ETCD, deletionPolicy="Burn"), '"Retain", "Delete"'),
]


@pytest.mark.scenario("6", f"{len(REFUSED)} wrong specs are refused with a clear message")
def test_wrong_specs(operator, space, row):
    for what, resource, expected in REFUSED:
        done = space.apply(resource, check=False)
        assert done.returncode != 0, f"{what} was accepted"
        assert expected in done.stderr, f"{what}: {done.stderr}"
    assert space.list("masterclusters") == []


# What a condition of each must name.
NAMED = {"no-etcd": "nowhere.invalid", "no-secret": "not-made", "no-image": "never-built"}


@pytest.mark.scenario("6", "a wrong etcd address, a missing secret, a wrong image: conditions name the cause")
def test_causes_are_named(operator, space, row):
    space.start_etcd()
    space.apply(
        mastercluster("no-etcd", etcd="http://nowhere.invalid:2379"),
        mastercluster("no-secret", etcd={"endpoints": ["https://etcd:2379"], "tlsSecretName": "not-made"}),
        mastercluster("no-image", etcd=etcd_of(space), image={"tag": "never-built"}),
    )
    for name, cause in NAMED.items():

        def named(status):
            return any(
                cause in each["message"] and each["type"] == "Ready" and each["status"] != "True"
                for each in status.get("conditions", [])
            )

        Resource(space, name).wait_for(f"a condition of {name} that names {cause}", named)
    # None of them keeps a person from deleting it.
    space.kubectl("delete", "mastercluster", "--all", "--timeout=60s")
