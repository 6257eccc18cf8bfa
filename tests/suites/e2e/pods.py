"""Masters that run in pods, seen from outside: who serves, how far the others are, what they hold.

Nothing here asks the operator: what it says about the masters is compared with this.
"""

import base64
import json
import re
import urllib.error
import urllib.request

from waiting import wait_until

RPC_PORT, HTTP_PORT, ADMIN_PORT = 50051, 9003, 9004
CALL_SECONDS = 5
# Bounds a hang. A pod on a loaded machine may need a quarter of a minute to be there again.
SERVE_SECONDS = 120
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def fetch(host, url, data=None, headers=None):
    """The text that a server inside the cluster answers; None when it does not."""
    try:
        request = urllib.request.Request(url, data, headers or {})
        with host.inside(), _opener.open(request, timeout=CALL_SECONDS) as answer:
            return answer.read().decode()
    except (OSError, urllib.error.URLError):
        return None


class Etcd:
    """The etcd that the masters use, by the address of its Service."""

    def __init__(self, cluster, namespace, service="etcd"):
        self.host = cluster.host
        self.name = f"{service}.{namespace}.svc:2379"
        address = cluster.get("service", service, "-n", namespace)["spec"]["clusterIP"]
        self.endpoint = f"{address}:2379"
        self._token = None

    def _ask(self, path, body):
        """The answer to a call; None when etcd does not answer."""
        headers = {"Authorization": self._token} if self._token else {}
        answer = fetch(self.host, f"http://{self.endpoint}/v3/{path}", json.dumps(body).encode(), headers)
        return answer if answer is None else json.loads(answer)

    def call(self, path, body):
        """The answer to a call that etcd must answer."""
        answer = self._ask(path, body)
        assert answer is not None, f"etcd does not answer {path}"
        return answer

    def require_login(self, role):
        """From here on etcd asks who calls. `role` may use the keys of masters; the tests themselves are root."""
        self.call("auth/role/add", {"name": role})
        self.call("auth/role/grant", {"name": role, "perm": {"permType": "READWRITE", **_prefix("mooncake-store/")}})
        self.call("auth/user/add", {"name": "root", "password": "root"})
        self.call("auth/user/grant", {"user": "root", "role": "root"})
        self.call("auth/enable", {})
        self._token = self.call("auth/authenticate", {"name": "root", "password": "root"})["token"]

    def add_user(self, name, password, role):
        self.call("auth/user/add", {"name": name, "password": password})
        self.call("auth/user/grant", {"user": name, "role": role})

    def change_password(self, name, password):
        self.call("auth/user/changepw", {"name": name, "password": password})

    def delete_user(self, name):
        self.call("auth/user/delete", {"name": name})

    def values(self, key, prefix=False):
        """What is under a key, or under all that begin with it; None when etcd does not answer."""
        answer = self._ask("kv/range", _prefix(key) if prefix else {"key": _encode(key.encode())})
        if answer is None:
            return None
        return {_decode(each["key"]): _decode(each.get("value", "")) for each in answer.get("kvs", [])}

    def get(self, key):
        return (self.values(key) or {}).get(key)


def _prefix(key):
    """The range of all keys that begin so: it ends at the key with its last byte raised."""
    return {"key": _encode(key.encode()), "range_end": _encode(key[:-1].encode() + bytes([key.encode()[-1] + 1]))}


def _encode(data):
    return base64.b64encode(data).decode()


def _decode(text):
    return base64.b64decode(text).decode(errors="replace")


class PodMaster:
    """One pod with a master in it, as it was when it was looked up."""

    def __init__(self, cluster, pod):
        self.host, self.pod = cluster.host, pod
        self.name, self.node = pod["metadata"]["name"], pod["spec"].get("nodeName")
        self.uid, self.labels = pod["metadata"]["uid"], pod["metadata"].get("labels", {})
        self.ip = pod["status"].get("podIP")

    def http(self, path):
        return fetch(self.host, f"http://{self.ip}:{HTTP_PORT}{path}") if self.ip else None

    def status(self):
        """What the master says about itself; None when it does not answer."""
        found = self.http("/api/v1/status")
        return found and json.loads(found)

    def metric(self, name):
        """The value of a metric without labels; None when it has none."""
        found = re.search(rf"^{name} (\S+)$", self.http("/metrics") or "", re.MULTILINE)
        return float(found[1]) if found else None

    def segments(self):
        found = self.http("/get_segments_detail")
        return sorted(each["segment_name"] for each in json.loads(found)["segments"]) if found else []

    def digest(self):
        """(last record applied, digest of the state); None when it does not answer."""
        found = self.http("/api/v1/digest")
        return found and (json.loads(found)["applied"], json.loads(found)["digest"])


class PodMasters:
    """The masters of one cluster id, by the labels of their pods."""

    compares_digests = True

    def __init__(self, cluster, namespace, selector, cluster_id, etcd, count=3):
        self.cluster, self.namespace, self.selector = cluster, namespace, selector
        self.cluster_id, self.etcd, self.count = cluster_id, etcd, count

    def all(self):
        """Those that are there and not about to go."""
        found = self.cluster.list("pods", "-n", self.namespace, "-l", self.selector)
        alive = (each for each in found if "deletionTimestamp" not in each["metadata"])
        return [PodMaster(self.cluster, each) for each in alive]

    @property
    def addresses(self):
        return [(each.ip, RPC_PORT) for each in self.all() if each.ip]

    def view(self):
        """What clients are told: the address of the primary, or None."""
        return self.etcd.get(f"mooncake-store/{self.cluster_id}/master_view")

    def primary(self):
        """The master that clients are told, or None."""
        view = self.view()
        return next((each for each in self.all() if view and each.ip == view.rpartition(":")[0]), None)

    def wait_until_serving(self, seconds=SERVE_SECONDS):
        """The primary, once it says itself that it serves."""

        def serving():
            primary = self.primary()
            health = primary and primary.http("/health")
            return primary if health and json.loads(health).get("service_ready") else None

        return wait_until(serving, f"a primary that serves in {self.namespace}", seconds)

    def wait_for_another(self, old, seconds=SERVE_SECONDS):
        """Until a pod other than `old` serves."""

        def another():
            primary = self.primary()
            return primary is not None and primary.uid != old.uid

        wait_until(another, f"another primary than {old.name}", seconds)
        return self.wait_until_serving(seconds)

    def wait_until_redundant(self, seconds=SERVE_SECONDS):
        """Until all masters are there, and every standby could take over without losing anything."""

        def ready():
            masters = self.all()
            return len(masters) == self.count and all(each.http("/ready") for each in masters)

        wait_until(ready, f"{self.count} masters that are ready in {self.namespace}", seconds)

    def digests(self):
        """The digest of every master, of all that there have to be, at one and the same record."""

        def alike():
            found = {each.name: each.digest() for each in self.all()}
            applied = {each and each[0] for each in found.values()}
            same = len(found) == self.count and len(applied) == 1 and None not in applied
            return {name: each[1] for name, each in found.items()} if same else None

        return wait_until(alike, "all masters to have applied the same records", SERVE_SECONDS)
