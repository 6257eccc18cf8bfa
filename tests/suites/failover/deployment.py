"""A whole deployment of processes: etcd, masters, and a scene around them."""

import dataclasses
import random
import re

import expectations
from cluster import OURS, Masters
from etcd import Etcd
from history import METADATA
from hosts import Host
from logs import Logs
from messages import MIB
from raw_client import RawClient
from scene import RECOVERY_SECONDS, Scene
from extra_actors import MetadataActor
from waiting import wait_until

# The leader's lease where no setting says otherwise, of ours and of the reference.
LEASE_SECONDS = 5


class World(Scene):
    """Starts everything and waits until it serves. `network` puts it into namespaces; `raw_clients` have no memory
    behind their segments, so they go with raw actors only. `may_log` are patterns of ERROR lines that the test expects."""

    def __init__(
        self,
        folder,
        etcd_size=1,
        masters=3,
        clients=2,
        client_bytes=256 * MIB,
        network=None,
        seed="1",
        kind=None,
        etcd_flags=(),
        raw_clients=0,
        raw_client_bytes=64 * MIB,
        prepare_etcd=None,
        objects=0,
        may_log=(),
        **flags,
    ):
        super().__init__(folder, None, network.hub if network else Host(), None, seed)
        self.network, self.etcd, self.raw_clients = network, None, []
        # How many objects a fault puts that reads them, and how many it has put.
        self.objects, self.filled = objects, 0
        self.lease_seconds = int(flags.get("leader_lease_ttl", f"{LEASE_SECONDS}s").removesuffix("s"))
        self.logs, self.may_log = Logs(), list(may_log)
        # ERROR lines that no fault was judged by yet.
        self._errors = []
        self.random = random.Random(f"{seed} faults")
        try:
            self.etcd = Etcd(folder, etcd_size, network.etcd_host if network else None, etcd_flags)
            if prepare_etcd:
                prepare_etcd(self.etcd)
            self.address = f"etcd://{self.etcd.endpoints}"
            hosts = network.machines if network else None
            self.masters = Masters(self.etcd, folder, hosts, masters, kind, **flags)
            self.masters.wait_until_serving()
            for _ in range(clients):
                self.start_client(client_bytes)
            for _ in range(raw_clients):
                self.raw_clients.append(RawClient(self, raw_client_bytes))
        except BaseException:
            self.end()
            raise

    def busy_actor(self, name):
        # Histories of the reference stay comparable with those that README.md shows; and a search looks at all objects.
        plain = self.masters.kind != OURS or self.objects
        return self.raw_actor(name) if plain else super().busy_actor(name)

    def read_metadata(self):
        keys = [key for key in self.history.keys() if key.startswith(METADATA)]
        reader = MetadataActor("reader", self.seed, self.history, self.masters) if keys else None
        for key in keys:
            reader.read_key(key)

    def look(self):
        if self.masters.kind != OURS:
            return None
        self.masters.wait_until_connected(pause=0)
        return self.masters.observe(self._news())

    def judge(self, fault, before, silence, clients):
        if before is None:
            return super().judge(fault, before, silence, clients)
        after = self.masters.observe(self._news())
        lines, self._errors = self._errors, []
        after = dataclasses.replace(after, error_lines=tuple(lines))
        expected = getattr(fault, "expects", None)
        assert expected, f"{fault.__name__} does not say what it may do: see tests/suites/common/expectations.py"
        self.may_log += expected.errors
        return expectations.judge(expected, before, after, self.lease_seconds, silence, clients)

    def _news(self):
        news = self.logs.take(self.masters.all)
        self._errors += news.errors
        return news

    def unexpected_errors(self):
        """ERROR lines and panics in the logs of all masters from their start on that neither the test nor a fault named."""
        lines = Logs().take(self.masters.all).errors if self.masters and self.masters.kind == OURS else ()
        return [line for line in lines if not any(re.search(each, line) for each in self.may_log)]

    def wait_for_another(self, old):
        """Until a master other than `old` is the primary and serves."""

        def another():
            primary = self.masters.primary()
            return primary is not None and primary is not old

        wait_until(another, "another primary", RECOVERY_SECONDS)
        return self.masters.wait_until_serving()

    def end(self):
        """Ends everything; a second time does nothing."""
        super().end()
        for each in self.raw_clients:
            each.close()
        for each in [self.masters, self.etcd]:
            if each:
                each.kill()
        if self.network:
            self.network.remove()
            self.network = None
