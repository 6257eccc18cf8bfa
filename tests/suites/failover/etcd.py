"""A real etcd of one or three members, each of which can be killed, stopped and started again."""

import base64
import json
import os
import shutil
import signal
import urllib.error
import urllib.request

import processes
from hosts import Host
from ports import free_port
from waiting import wait_until

# Far above what a healthy member takes.
CALL_SECONDS = 5
# Of one transaction; etcd takes 128 keys and 1.5 MiB, and a value here is in base64.
TRANSACTION_KEYS, TRANSACTION_BYTES = 100, 1 << 20
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Member:
    """One etcd process and its data folder, which survives the process."""

    def __init__(self, name, folder, host, flags=()):
        self.name, self.folder, self.host, self.flags = name, folder, host, flags
        self.client_port, self.peer_port = free_port(), free_port()
        self.process = None
        self.starts = 0
        # Of the administrator, when etcd asks who calls.
        self.token = None

    @property
    def endpoint(self):
        return f"{self.host.address}:{self.client_port}"

    @property
    def data(self):
        return self.folder / self.name

    @property
    def peer_url(self):
        return f"http://{self.host.address}:{self.peer_port}"

    def start(self, initial_cluster):
        command = [os.environ["ETCD_BIN"], "--name", self.name, "--data-dir", str(self.data)]
        command += ["--listen-client-urls", f"http://{self.endpoint}"]
        command += ["--advertise-client-urls", f"http://{self.endpoint}"]
        command += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        command += ["--initial-cluster", initial_cluster, "--log-level", "warn", *self.flags]
        log = self.folder / f"{self.name}-{self.starts}.log"
        self.starts += 1
        self.process = processes.spawn(self.host.wrap(command), log)

    def call(self, path, body):
        """A call of etcd's JSON gateway; None when the member does not answer."""
        headers = {"Authorization": self.token} if self.token else {}
        request = urllib.request.Request(f"http://{self.endpoint}/v3/{path}", json.dumps(body).encode(), headers)
        try:
            with self.host.inside(), _opener.open(request, timeout=CALL_SECONDS) as answer:
                return json.loads(answer.read())
        except (OSError, urllib.error.URLError):
            return None

    def running(self):
        return self.process is not None and self.process.poll() is None

    def kill(self):
        processes.kill(self.process)

    def pause(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)


class Etcd:
    """A cluster of `size` members on one host, and the few calls that the tests make themselves."""

    def __init__(self, folder, size=1, host=None, flags=()):
        host = host or Host()
        self.members = [Member(f"etcd-{number}", folder, host, flags) for number in range(size)]
        for each in self.members:
            self.start(each)
        self.wait_until_healthy()

    @property
    def endpoints(self):
        """As the flags of masters and the addresses of clients spell it."""
        return ";".join(each.endpoint for each in self.members)

    def start(self, member):
        member.start(",".join(f"{each.name}={each.peer_url}" for each in self.members))

    def wait_until_healthy(self):
        """Until all members that run agree that there is a leader, and answer reads through it."""

        def healthy():
            return all(each.call("kv/range", {"key": _encode("health")}) for each in self.members if each.running())

        wait_until(healthy, "etcd to answer")

    def leader(self):
        """The member that leads."""

        def find():
            for each in self.members:
                status = each.call("maintenance/status", {}) if each.running() else None
                if status and status.get("leader") == status["header"]["member_id"]:
                    return each
            return None

        return wait_until(find, "etcd to have a leader")

    def get(self, key):
        """The value of a key as text, or None; fails when no member answers."""
        for each in self.members:
            answer = each.call("kv/range", {"key": _encode(key)}) if each.running() else None
            if answer is not None:
                values = answer.get("kvs", [])
                return base64.b64decode(values[0]["value"]).decode() if values else None
        raise ConnectionError("no member of etcd answers")

    def call(self, path, body):
        """A call of etcd's JSON gateway to the first member that answers; fails when none does."""
        for each in self.members:
            answer = each.call(path, body) if each.running() else None
            if answer is not None:
                return answer
        raise ConnectionError("no member of etcd answers")

    def take_away(self, prefix):
        """Deletes all keys below `prefix` in one transaction and returns those that no lease would have ended, so that
        `put_back` can restore exactly what was there."""
        found = self.call("kv/deleterange", {**_range(prefix), "prev_kv": True}).get("prev_kvs", [])
        return [each for each in found if each.get("lease", "0") == "0"]

    def delete(self, prefix):
        """Deletes all keys below `prefix`."""
        self.call("kv/deleterange", _range(prefix))

    def delete_range(self, start, end):
        """Deletes all keys from `start` up to, and without, `end`."""
        self.call("kv/deleterange", {"key": _encode(start), "range_end": _encode(end)})

    def keys(self, prefix):
        """The names of all keys below `prefix`."""
        found = self.call("kv/range", {**_range(prefix), "keys_only": True}).get("kvs", [])
        return [base64.b64decode(each["key"]).decode() for each in found]

    def put_back(self, entries):
        """Puts entries of `take_away` in their order, many in a transaction."""
        while entries:
            count, size = 0, 0
            while count < min(len(entries), TRANSACTION_KEYS) and size < TRANSACTION_BYTES:
                size += len(entries[count].get("value", ""))
                count += 1
            puts = [{"key": each["key"], "value": each.get("value", "")} for each in entries[:count]]
            self.call("kv/txn", {"success": [{"request_put": each} for each in puts]})
            entries = entries[count:]

    def require_login(self, role):
        """From here on etcd asks who calls. `role` may use the keys of masters; the tests themselves are root."""
        self.call("auth/role/add", {"name": role})
        permission = {"permType": "READWRITE", **_range("mooncake-store/")}
        self.call("auth/role/grant", {"name": role, "perm": permission})
        self.call("auth/user/add", {"name": "root", "password": "root"})
        self.call("auth/user/grant", {"user": "root", "role": "root"})
        self.call("auth/enable", {})
        token = self.call("auth/authenticate", {"name": "root", "password": "root"})["token"]
        for each in self.members:
            each.token = token

    def add_user(self, name, password, role):
        self.call("auth/user/add", {"name": name, "password": password})
        self.call("auth/user/grant", {"user": name, "role": role})

    def write_elsewhere(self):
        """What another user of the same etcd does."""
        self.call("kv/put", {"key": _encode("other"), "value": _encode("value")})

    def revision(self):
        return int(self.call("kv/range", {"key": _encode("revision")})["header"]["revision"])

    def back_up(self, name):
        """Copies the data of all members as of now under this name; etcd is away for a moment."""
        self.kill()
        for each in self.members:
            shutil.copytree(each.data, each.data.with_name(f"{each.name}-{name}"))
        self.restart()

    def exchange(self, name):
        """Restarts etcd on the data kept under this name (nothing, if there is none) and keeps the present data there:
        a second call undoes the first."""
        self.kill()
        for each in self.members:
            kept, aside = each.data.with_name(f"{each.name}-{name}"), each.data.with_name(f"{each.name}-aside")
            each.data.rename(aside)
            if kept.exists():
                kept.rename(each.data)
            aside.rename(kept)
        self.restart()

    def reclaim(self):
        """Compacts, defragments and disarms, as an administrator does after NOSPACE."""
        self.call("kv/compaction", {"revision": str(self.revision()), "physical": True})
        for each in self.members:
            wait_until(lambda: each.call("maintenance/defragment", {}) is not None, "etcd to defragment")
        for raised in self.call("maintenance/alarm", {"action": "GET"}).get("alarms", []):
            self.call("maintenance/alarm", {"action": "DEACTIVATE", **raised})

    def pause(self):
        """All members stop where they are: connections stay open, nothing is answered."""
        for each in self.members:
            each.pause()

    def resume(self):
        for each in self.members:
            each.resume()

    def kill(self):
        for each in self.members:
            if each.process:
                each.kill()

    def restart(self):
        """Starts the members that do not run, on the data they had."""
        for each in self.members:
            if not each.running():
                self.start(each)
        self.wait_until_healthy()


def _encode(text):
    return base64.b64encode(text.encode()).decode()


def _range(prefix):
    """All keys that begin with `prefix`."""
    return {"key": _encode(prefix), "range_end": _encode(prefix[:-1] + chr(ord(prefix[-1]) + 1))}
