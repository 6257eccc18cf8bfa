"""Several masters that replicate through etcd: Moonkeeper, or the reference when MOONKEEPER_TEST_MASTER=reference.

The reference runs with its OpLog, its best effort at keeping what it acknowledged. Against it most of this suite fails,
which shows that the checks can.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import tempfile
import urllib.error
import urllib.request

import peers
import processes
import time
from expectations import Cluster, Observed
from hosts import Host
from ports import free_port
from waiting import wait_until

OURS, REFERENCE = "moonkeeper", "reference"
# The reference needs ten seconds to take over, and more when its etcd was away.
SERVE_SECONDS = 90
TOKEN = "of-the-failover-tests"
_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def kind_under_test():
    which = os.environ.get("MOONKEEPER_TEST_MASTER", OURS)
    assert which in (OURS, REFERENCE), f"MOONKEEPER_TEST_MASTER={which}: {OURS} or {REFERENCE}"
    return which


class Master:
    """One master and its ports, which it keeps when it is started again."""

    def __init__(self, kind, name, folder, host, flags, run_folder):
        self.kind, self.name, self.folder, self.host = kind, name, folder, host
        self.run_folder = run_folder
        self.rpc_port, self.metrics_port, self.admin_port, self.peer_port = (free_port() for _ in range(4))
        self.metadata_port = free_port() if "enable_http_metadata_server" in flags else None
        self.process = None
        self.starts = 0
        # The log of each start.
        self.logs = []
        # Whether the test wants it to run: it was started, and neither killed nor asked to end.
        self.wanted = False
        self._flags = {
            "enable_ha": "true",
            "rpc_address": host.address,
            "rpc_port": self.rpc_port,
            "metrics_host": host.address,
            "metrics_port": self.metrics_port,
        } | flags
        if self.metadata_port:
            # A test of one master may have chosen the port itself.
            own = {"http_metadata_server_host": host.address, "http_metadata_server_port": self.metadata_port}
            self._flags = own | self._flags
        if kind == OURS:
            self._command = [os.environ["MOONKEEPER_BIN"], "master"]
            self._flags |= {
                "member_name": name,
                "peer_host": host.address,
                "peer_port": self.peer_port,
                "admin_port": self.admin_port,
                "admin_token_file": self._token_file(),
                "data_dir": folder / name,
            }
        else:
            self._command = [os.environ["MOONCAKE_MASTER"]]
            self._flags |= {"enable_oplog": "true"}

    def _token_file(self):
        path = self.folder / "token"
        path.write_text(TOKEN + "\n")
        path.chmod(0o600)
        return path

    @property
    def address(self):
        """As `master_view` spells it."""
        return f"{self.host.address}:{self.rpc_port}"

    def start(self):
        command = self._command + [f"--{name}={value}" for name, value in self._flags.items()]
        log = self.folder / f"{self.name}-{self.starts}.log"
        self.starts += 1
        env = os.environ | {"XDG_RUNTIME_DIR": self.run_folder}
        self.process = processes.spawn(self.host.wrap(command), log, cwd=self.folder, env=env)
        self.logs.append(log)
        self.wanted = True

    def running(self):
        return self.process is not None and self.process.poll() is None

    def http(self, path):
        """The text that the HTTP port answers to GET `path`; None when it does not."""
        try:
            url = f"http://{self.host.address}:{self.metrics_port}{path}"
            with self.host.inside(), _opener.open(url, timeout=5) as answer:
                return answer.read().decode()
        except (OSError, urllib.error.URLError):
            return None

    def ready(self):
        """(status, body) of its readiness probe; None when it does not answer."""
        try:
            url = f"http://{self.host.address}:{self.metrics_port}/ready"
            with self.host.inside(), _opener.open(url, timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return None

    def switchover(self, to=None):
        """Asks it to hand over (ours only); returns when another serves."""
        with self.host.inside(), _opener.open(self._switchover(to), timeout=60) as answer:
            return json.loads(answer.read())

    def try_switchover(self, to=None):
        """(status, JSON) of the answer to a switchover that may be refused or given up (ours only)."""
        try:
            return 200, self.switchover(to)
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def _switchover(self, to):
        return urllib.request.Request(
            f"http://127.0.0.1:{self.admin_port}/api/v1/switchover",
            json.dumps({"to": to} if to else {}).encode(),
            {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"},
        )

    def status(self):
        """How it says that it stands (ours only)."""
        return json.loads(self.http("/api/v1/status"))

    def digest(self):
        """(last record applied, digest of the state) (ours only); None when it does not answer."""
        found = self.http("/api/v1/digest")
        return found and (json.loads(found)["applied"], json.loads(found)["digest"])

    def metric(self, name):
        """The value of a metric without labels; None when it has none."""
        found = re.search(rf"^{name} (\S+)$", self.http("/metrics") or "", re.MULTILINE)
        return float(found[1]) if found else None

    def keys(self):
        return set((self.http("/get_all_keys") or "").splitlines())

    def segments(self):
        found = self.http("/get_segments_detail")
        return sorted(each["segment_name"] for each in json.loads(found)["segments"]) if found else []

    def observe(self):
        """How it stands, for a comparison with how it stood (ours only)."""
        found = self.http("/api/v1/status") if self.running() else None
        if found is None:
            why = "its HTTP port does not answer"
            return Observed(self.name, self.running(), ready=False, why_not_ready=why, starts=self.starts), None
        told, probe = json.loads(found), self.ready()
        ready = told["ready"] and told["caught_up"] and probe is not None and probe[0] == 200
        why = told["why_not_ready"] or f"caught up: {told['caught_up']}, readiness probe: {probe}"
        observed = Observed(
            name=self.name,
            boot_id=told["boot_id"],
            ready=ready,
            why_not_ready=why,
            starts=self.starts,
            counts={each["what"]: each["count"] for each in told["faults"]},
            mismatches=self.metric("moonkeeper_digest_mismatch_total"),
            rebuilds=self.metric("moonkeeper_rebuilds_total"),
        )
        return observed, told

    def kill(self):
        self.wanted = False
        processes.kill(self.process)

    def pause(self):
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self):
        os.killpg(self.process.pid, signal.SIGCONT)

    def terminate(self):
        """Asks it to end, as Kubernetes does, and waits until it has."""
        self.wanted = False
        os.killpg(self.process.pid, signal.SIGTERM)
        code = self.process.wait(timeout=60)
        assert code == 0 or self.kind == REFERENCE, f"{self.name} ended with {code} when asked to: {self.folder}"


class Masters:
    """The masters of one cluster id."""

    def __init__(self, etcd, folder, hosts=None, count=3, kind=None, cluster_id="failover", **flags):
        self.kind = kind or kind_under_test()
        self.etcd, self.cluster_id, self.folder = etcd, cluster_id, folder
        self.flags = flags = {"etcd_endpoints": etcd.endpoints, "cluster_id": cluster_id} | flags
        # Sockets of companions, whose paths have a hundred characters at most.
        self.run_folder = tempfile.mkdtemp(prefix="mk-")
        hosts = hosts or [Host() for _ in range(count)]
        self.all = [self._master(f"master-{n}", host) for n, host in enumerate(hosts)]
        for each in self.all:
            each.start()

    def add(self, name):
        """Starts one more master, which knows nothing yet."""
        self.all.append(self._master(name, Host()))
        self.all[-1].start()
        return self.all[-1]

    def _master(self, name, host):
        return Master(self.kind, name, self.folder, host, self.flags, self.run_folder)

    def companions(self):
        """Ids of the processes that turn clients away when their master has died."""
        return processes.with_argument(self.run_folder)

    def standbys(self):
        """The masters that run and are not the primary."""
        primary = self.primary()
        return [each for each in self.all if each.running() and each is not primary]

    @property
    def compares_digests(self):
        return self.kind == OURS

    @property
    def addresses(self):
        """(host, port) of every master's RPC port."""
        return [(each.host.address, each.rpc_port) for each in self.all]

    def view(self):
        """What clients are told: the address of the primary, or None."""
        return self.etcd.get(f"mooncake-store/{self.cluster_id}/master_view")

    def primary(self):
        """The master that `master_view` names, or None."""
        view = self.view()
        return next((each for each in self.all if each.address == view), None)

    def wait_until_serving(self, seconds=SERVE_SECONDS):
        """The primary, once its HTTP port says that it serves."""

        def serving():
            self._check_running()
            primary = self.primary()
            health = primary.http("/health") if primary and primary.running() else None
            return primary if health and json.loads(health).get("service_ready") else None

        return wait_until(serving, "a primary that serves", seconds)

    def wait_until_redundant(self):
        """Until a standby could take over without losing anything, as far as the masters say so."""
        if self.kind == OURS:
            wait_until(self._all_ready, "standbys that have caught up", SERVE_SECONDS)

    def wait_until_connected(self, pause=1):
        """Until standbys can be targets of a hand-over: they have caught up, are connected to the primary, and have had
        time to prove themselves and report, which no master tells."""
        self.wait_until_redundant()
        if self.kind == OURS:
            wait_until(self._all_connected, "standbys that are connected to the primary", SERVE_SECONDS)
        time.sleep(pause)

    def wanted(self):
        """The masters that should run."""
        return [each for each in self.all if each.wanted]

    def _check_running(self):
        """A master of ours ends only when the test ends it."""
        for each in self.wanted() if self.kind == OURS else []:
            code = each.process.poll()
            assert code is None, f"{each.name} ended by itself, with {code}: {each.folder}"

    def _all_ready(self):
        self._check_running()
        return all(each.http("/ready") for each in self.wanted())

    def _all_connected(self):
        primary = self.primary()
        return primary is not None and peers.connections(primary) >= len(self.wanted()) - 1

    def observe(self, news):
        """How all masters stand, when all that should run have caught up or are past the time for that; `news` of their
        logs (ours only)."""
        deadline = time.monotonic() + SERVE_SECONDS
        while True:
            observed = [each.observe() for each in self.all]
            leading = [told for _, told in observed if told and told["role"] == "primary" and told["ready"]]
            settled = len(leading) == 1 and all(each.ready for each, _ in observed)
            if settled or time.monotonic() > deadline or not all(each.running() for each in self.all):
                break
            time.sleep(0.1)
        # Of two that claim to lead the later one does.
        primary = max(leading, key=lambda told: told["term"], default=None)
        promotion = primary["promotion"] if primary else None
        return Cluster(
            primary=primary and primary["name"],
            term=primary["term"] if primary else 0,
            reason=promotion and promotion["reason"],
            masters=tuple(each for each, _ in observed),
            elections=news.elections,
            error_lines=news.errors,
        )

    def digests(self):
        """The digest of every master that should run, all at one and the same record."""

        def alike():
            self._check_running()
            found = {each.name: each.digest() for each in self.wanted()}
            applied = {each and each[0] for each in found.values()}
            return {name: each[1] for name, each in found.items()} if len(applied) == 1 and None not in applied else None

        return wait_until(alike, "all masters to have applied the same records", SERVE_SECONDS)

    def kill(self):
        """Kills all masters, and their companions, which would outlive them."""
        for each in self.all:
            if each.process:
                each.kill()
        for pid in self.companions():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.run_folder, ignore_errors=True)
