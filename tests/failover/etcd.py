"""A real etcd of one or three members, each of which can be killed, stopped and started again."""

import base64
import json
import os
import signal
import urllib.error
import urllib.request

import processes
from hosts import Host
from ports import free_port
from waiting import wait_until

# Far above what a healthy member takes.
CALL_SECONDS = 5
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Member:
    """One etcd process and its data folder, which survives the process."""

    def __init__(self, name, folder, host):
        self.name, self.folder, self.host = name, folder, host
        self.client_port, self.peer_port = free_port(), free_port()
        self.process = None
        self.starts = 0

    @property
    def endpoint(self):
        return f"{self.host.address}:{self.client_port}"

    @property
    def peer_url(self):
        return f"http://{self.host.address}:{self.peer_port}"

    def start(self, initial_cluster):
        command = [os.environ["ETCD_BIN"], "--name", self.name, "--data-dir", str(self.folder / self.name)]
        command += ["--listen-client-urls", f"http://{self.endpoint}"]
        command += ["--advertise-client-urls", f"http://{self.endpoint}"]
        command += ["--listen-peer-urls", self.peer_url, "--initial-advertise-peer-urls", self.peer_url]
        command += ["--initial-cluster", initial_cluster, "--log-level", "warn"]
        log = self.folder / f"{self.name}-{self.starts}.log"
        self.starts += 1
        self.process = processes.spawn(self.host.wrap(command), log)

    def call(self, path, body):
        """A call of etcd's JSON gateway; None when the member does not answer."""
        request = urllib.request.Request(f"http://{self.endpoint}/v3/{path}", json.dumps(body).encode())
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

    def __init__(self, folder, size=1, host=None):
        host = host or Host()
        self.members = [Member(f"etcd-{number}", folder, host) for number in range(size)]
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
