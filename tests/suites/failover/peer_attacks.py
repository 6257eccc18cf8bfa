"""What strangers, and processes that have the token but are no members, do to the peer port of a master."""

import contextlib
import hashlib
import hmac
import json
import socket
import struct
import threading

MIB = 1 << 20
# What a master must not keep. The findings were made with as much.
FLOOD_BYTES = 150 * MIB
# More than a peer port has for strangers, and as many as it has for peers.
STRANGERS, PEERS = 72, 64
# A connection that is neither read nor closed for so long is a failure of the master.
PATIENCE_SECONDS = 60


class Connection:
    """A connection to a peer port."""

    def __init__(self, master):
        self._socket = socket.create_connection((master.host.address, master.peer_port), PATIENCE_SECONDS)
        self._lines = self._socket.makefile("rb")

    def send(self, data):
        self._socket.sendall(data)

    def send_some(self, data):
        """How many bytes the system has taken."""
        return self._socket.send(data)

    def close(self):
        self._lines.close()
        self._socket.close()

    def prove(self, token, cluster_id, name, boot_id):
        """Proves that it has the token, as this process; false when the master closes the connection instead."""
        hello = self._lines.readline()
        if not hello:
            return False
        said = [cluster_id, json.loads(hello)["nonce"], "nonce", name, boot_id]
        claim = {"nonce": "nonce", "name": name, "boot_id": boot_id, "token": "etcd", "proof": proof(token, said)}
        self.send(line(claim))
        verdict = self._lines.readline()
        assert b"refused" not in verdict, verdict
        return bool(verdict)


def line(value):
    return json.dumps(value).encode() + b"\n"


def report(name, boot_id, applied):
    return line({"name": name, "boot_id": boot_id, "applied": applied})


def proof(token, said):
    """What a client proves itself with."""
    fields = [each.encode() for each in ["moonkeeper-peer/1", "client", *said]]
    message = b"".join(struct.pack(">Q", len(each)) + each for each in fields)
    return hmac.new(token.encode(), message, hashlib.sha256).hexdigest()


class Attack:
    """One attack on the peer port of every master, by a thread for each, from `with` to the end of it. Half of it is made
    by strangers, half by those who have read the token in etcd."""

    def __init__(self, world):
        self.token = world.etcd.get(f"mooncake-store/{world.masters.cluster_id}/peer_token")
        self.cluster_id = world.masters.cluster_id
        self.masters = world.masters.all
        self.sent = {each.name: 0 for each in self.masters}
        # The names of the masters that it has begun with.
        self.begun = set()
        self.failed = []
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=[each], daemon=True) for each in self.masters]

    def __enter__(self):
        for each in self._threads:
            each.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        for each in self._threads:
            each.join(PATIENCE_SECONDS)

    def _run(self, master):
        while not self._end.is_set():
            try:
                self.round(master)
            except (ConnectionError, BrokenPipeError):
                # It closes what is too much, and a killed master is started again.
                self._end.wait(0.02)
            except Exception as error:  # noqa: BLE001 (told to the test, which fails)
                self.failed.append(repr(error))
                return

    @contextlib.contextmanager
    def connected(self, master, process=None):
        """A connection; of a process that proves to have the token, if one is named."""
        connection = Connection(master)
        try:
            if process and not connection.prove(self.token, self.cluster_id, *process):
                raise ConnectionAbortedError
            yield connection
        finally:
            connection.close()

    def pause(self, seconds):
        """True when it is over."""
        return self._end.wait(seconds)


class NewNames(Attack):
    """Lines with a name that was never there before, as fast as they are taken."""

    # Names that differ in each place of one block, and with the mark replaced in each block.
    MARK = b"@@@@@@@@"
    BLOCK = b"".join(report(f"n-@@@@@@@@-{at:0>200}", f"{at:016x}", 1) for at in range(8000))

    def round(self, master):
        for process in (None, ("made-up", "00000000deadbeef")):
            with contextlib.suppress(ConnectionError), self.connected(master, process) as connection:
                while not self.pause(0):
                    block = self.BLOCK.replace(self.MARK, b"%08x" % (self.sent[master.name] & 0xFFFFFFFF))
                    self.sent[master.name] += connection.send_some(block)
                    self.begun.add(master.name)


class ForgedReports(Attack):
    """In the name of every member, with another boot id, each millisecond on one connection."""

    def round(self, master):
        for each in self.masters:
            process = (each.name, "00000000deadbeef")
            with contextlib.suppress(ConnectionError), self.connected(master, process) as proven:
                for at in range(1000):
                    proven.send(report(*process, 1 << 62))
                    if at % 100 == 0:
                        with contextlib.suppress(ConnectionError), self.connected(master) as stranger:
                            stranger.send(report(*process, 1 << 62))
                        self.begun.add(master.name)
                    if self.pause(0.001):
                        return


class HeldConnections(Attack):
    """More than there are places, with a line now and then."""

    def round(self, master):
        processes = [(f"made-up-{at // 4}", "00000000deadbeef") for at in range(PEERS)] + [None] * STRANGERS
        with contextlib.ExitStack() as held:
            connections = [None] * len(processes)
            while master.running():
                for at, process in enumerate(processes):
                    try:
                        # One that was closed is replaced by another.
                        if not connections[at]:
                            connections[at] = held.enter_context(self.connected(master, process))
                        connections[at].send(report(*(process or ("stranger", "00")), 1))
                    except ConnectionError:
                        connections[at] = None
                self.begun.add(master.name)
                if self.pause(0.5):
                    return
        raise ConnectionAbortedError
