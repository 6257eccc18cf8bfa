"""A whole deployment of processes: etcd, masters, and a scene around them."""

import random

from cluster import Masters
from etcd import Etcd
from hosts import Host
from raw_client import RawClient
from scene import RECOVERY_SECONDS, Scene
from waiting import wait_until


class World(Scene):
    """Starts everything and waits until it serves. `network` puts it into namespaces; `raw_clients` have no memory
    behind their segments, so they go with raw actors only."""

    def __init__(
        self,
        folder,
        etcd_size=1,
        masters=3,
        clients=2,
        network=None,
        seed="1",
        kind=None,
        etcd_flags=(),
        raw_clients=0,
        prepare_etcd=None,
        **flags,
    ):
        super().__init__(folder, None, network.hub if network else Host(), None, seed)
        self.network, self.etcd, self.raw_clients = network, None, []
        # Whether a fault has put the objects that it reads.
        self.filled = False
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
                self.start_client()
            for _ in range(raw_clients):
                self.raw_clients.append(RawClient(self))
        except BaseException:
            self.end()
            raise

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
