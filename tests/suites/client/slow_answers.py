"""A proxy before a master that passes requests on at once and answers late, as a slow network does."""

import socket
import threading
import time

_CHUNK = 1 << 16


class SlowAnswers:
    """Passes connections on to a master until it is ended; every piece of an answer waits for `seconds` first."""

    def __init__(self, master):
        self.seconds = 0.0
        self._to = ("127.0.0.1", master.rpc_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
                master = socket.create_connection(self._to, timeout=10)
            except OSError:
                return
            master.settimeout(None)
            threading.Thread(target=self._pass_on, args=(client, master, False), daemon=True).start()
            threading.Thread(target=self._pass_on, args=(master, client, True), daemon=True).start()

    def _pass_on(self, source, target, late):
        try:
            while data := source.recv(_CHUNK):
                if late:
                    time.sleep(self.seconds)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            target.close()

    def end(self):
        """Takes no more connections; those that there are end with the client."""
        self._listener.close()
