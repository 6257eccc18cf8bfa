"""A proxy before the API server that can let connections fall silent, as when a machine vanishes: nothing more is passed
on, and no end of the connection is told. New connections work, as those to another API server behind one address do."""

import json
import socket
import threading

_CHUNK = 1 << 16


class Proxy:
    """Passes connections on to a port of loopback until it is ended."""

    def __init__(self, port):
        self._to = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._lock, self._sockets, self._silent = threading.Lock(), [], set()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                incoming, _ = self._listener.accept()
                outgoing = socket.create_connection(self._to, timeout=10)
            except OSError:
                return
            outgoing.settimeout(None)
            with self._lock:
                self._sockets += [incoming, outgoing]
            for source, target in ((incoming, outgoing), (outgoing, incoming)):
                threading.Thread(target=self._pass_on, args=(source, target), daemon=True).start()

    def _pass_on(self, source, target):
        try:
            while data := source.recv(_CHUNK):
                if source in self._silent:
                    return
                target.sendall(data)
            if source not in self._silent:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            # One side is gone, and the other one is told, unless it is to hear nothing.
            if source not in self._silent:
                target.close()

    def silence(self):
        """From here on nothing passes on the connections that there are; returns how many."""
        with self._lock:
            self._silent |= set(self._sockets)
            return len(self._sockets) // 2

    def kubeconfig(self, original, path):
        """The same as the original, by way of this proxy."""
        settings = json.loads(original.read_text())
        settings["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{self.port}"
        path.write_text(json.dumps(settings))
        path.chmod(0o600)
        return path

    def end(self):
        self._listener.close()
        with self._lock:
            for each in self._sockets:
                each.close()
