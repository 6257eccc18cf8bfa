"""A MasterCluster in a namespace: asked for, waited for, and compared with what the masters themselves say."""

import json
import uuid

from waiting import wait_until

# Bounds a hang.
READY_SECONDS = 150
ROLE = "moonkeeper.dev/role"


def mastercluster(name="demo", etcd=None, **spec):
    """One with all defaults, but what is given; `etcd` may be an endpoint alone."""
    where = {"etcd": {"endpoints": [etcd]} if isinstance(etcd, str) else etcd} if etcd else {}
    return {
        "apiVersion": "moonkeeper.dev/v1alpha1",
        "kind": "MasterCluster",
        "metadata": {"name": name},
        "spec": where | spec,
    }


def etcd_of(space):
    """The etcd of a namespace, by its short name: masters and operator find it in the cluster's namespace."""
    return "http://etcd:2379"


class Resource:
    """One of them, by name."""

    def __init__(self, space, name="demo"):
        self.space, self.name = space, name
        self.selector = f"moonkeeper.dev/cluster={name}"

    @property
    def cluster_id(self):
        return f"{self.space.name}-{self.name}"

    def get(self):
        return self.space.get("mastercluster", self.name)

    def status(self):
        return (self.get() or {}).get("status", {})

    def conditions(self):
        """By type."""
        return {each["type"]: each for each in self.status().get("conditions", [])}

    def patch(self, spec):
        """Changes some fields of the spec."""
        words = ["patch", "mastercluster", self.name, "--type=merge", "-p", json.dumps({"spec": spec})]
        self.space.kubectl(*words)

    def wait_until_ready(self):
        self.space.kubectl(
            "wait", "--for=condition=Ready", f"mastercluster/{self.name}", f"--timeout={READY_SECONDS}s"
        )

    def wait_for(self, what, condition, seconds=READY_SECONDS):
        """Until the status fits; fails with the status that it has then."""
        try:
            return wait_until(lambda: condition(self.status()), what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(self.status(), indent=1)}") from None

    def switch_over(self, target=""):
        """Asks for a switchover in the spec; returns its record."""
        request = uuid.uuid4().hex[:8]
        self.patch({"switchover": {"target": target, "requestId": request}})
        return self.wait_for_switchover(request)

    def wait_for_switchover(self, request):
        """The record of a switchover, once it has a result."""

        def ended(status):
            found = status.get("lastSwitchover") or {}
            return found if found.get("requestId") == request and found["result"] != "Pending" else None

        return self.wait_for(f"switchover {request}", ended)

    def wait_until_settled(self, masters):
        """Until everything agrees on who leads, and nothing is wrong: etcd, labels, Service, status, conditions."""

        def settled():
            pods, view, status = masters.all(), masters.view(), self.status()
            [primary] = [each for each in pods if view and each.ip == view.rpartition(":")[0]] or [None]
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            roles = sorted(each.labels.get(ROLE, "-") for each in pods)
            return (
                primary is not None
                and primary.labels.get(ROLE) == "primary"
                and roles == ["primary"] + ["standby"] * (masters.count - 1)
                and (status.get("leader") or {}).get("name") == primary.name
                and conditions.get("Ready") == conditions.get("Redundant") == "True"
                and self.leader_addresses() == [primary.ip]
            )

        try:
            wait_until(settled, f"{self.name} to settle", READY_SECONDS)
        except AssertionError as error:
            pods = {each.name: (each.ip, each.labels.get(ROLE)) for each in masters.all()}
            now = f"etcd says {masters.view()}, pods are {pods}, the Service leads to {self.leader_addresses()}"
            raise AssertionError(f"{error}; {now}; status: {json.dumps(self.status(), indent=1)}") from None

    def leader_addresses(self):
        """Where the Service of the leader leads to."""
        label = f"kubernetes.io/service-name={self.name}-leader"
        slices = self.space.list("endpointslices", "-l", label)
        ready = (
            each for one in slices for each in one.get("endpoints") or [] if each.get("conditions", {}).get("ready")
        )
        return sorted(address for each in ready for address in each["addresses"])
