"""The table of RPCs and a plain blocking client for them.

The table is ``tests/protocol/rpc-table.tsv``: the same file the wire tests
check the Rust types against, so both sides are held to one description.
"""

import hashlib
import socket
import struct
from pathlib import Path

from struct_pack import Message

TABLE_PATH = Path(__file__).resolve().parents[2] / "protocol" / "rpc-table.tsv"
SERVICE_PREFIX = "mooncake::WrappedMasterService::"
_MAGIC = 0x15
_REQUEST_HEADER = struct.Struct("<BBBBIIII")
_RESPONSE_HEADER = struct.Struct("<BBBBIII")
_ERROR_MESSAGE = Message(bytes.fromhex("800c"))


class RpcError(Exception):
    """An error of the RPC layer, as opposed to one inside an answer."""

    def __init__(self, code, message):
        super().__init__(f"rpc error {code}: {message}")
        self.code = code
        self.message = message


class Rpc:
    """One function of the service: ids, request type, response type."""

    def __init__(self, name, function_id, request_literal, response_literal):
        self.name = name
        self.function_id = function_id
        self.request = Message(bytes.fromhex(request_literal)) if request_literal != "-" else None
        self.response = Message(bytes.fromhex(response_literal))
        derived = int.from_bytes(hashlib.md5((SERVICE_PREFIX + name).encode()).digest()[:4], "big")
        if derived != function_id:
            raise ValueError(f"{name}: table says {function_id:#x}, name gives {derived:#x}")

    @property
    def single_argument(self):
        """One argument travels as itself, several travel as a tuple."""
        return self.request is not None and self.name in _SINGLE_ARGUMENT

    def zero_arguments(self):
        if self.request is None:
            return ()
        zero = self.request.type.zero()
        return (zero,) if self.single_argument else zero

    def encode(self, arguments):
        if self.request is None:
            if arguments:
                raise ValueError(f"{self.name} takes no arguments")
            return b""
        value = arguments[0] if self.single_argument else tuple(arguments)
        return self.request.encode(value)


# A request literal alone does not tell one UUID argument from a pair of
# integers, so the functions with exactly one argument are named.
_SINGLE_ARGUMENT = {
    "BatchQueryIp",
    "GetNoFSegmentsByName",
    "Ping",
    "PollRemoveAll",
    "PromotionObjectHeartbeat",
    "QuerySegmentStatus",
    "QuerySegmentStatusById",
    "QueryTask",
    "UnmountLocalDiskSegment",
}


def load_table(path=TABLE_PATH):
    """Read the table; returns the RPCs by short name."""
    rpcs = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if not line.startswith(SERVICE_PREFIX):
            continue
        name, function_id, _, request, _, response = line.split("\t")
        short = name.removeprefix(SERVICE_PREFIX)
        rpcs[short] = Rpc(short, int(function_id, 16), request, response)
    if len(rpcs) != 64:
        raise ValueError(f"{path} describes {len(rpcs)} RPCs, not 64")
    return rpcs


RPCS = load_table()


class Connection:
    """One TCP connection to a master; calls wait for their answer."""

    def __init__(self, address, timeout=30.0):
        self._socket = socket.create_connection(address, timeout=timeout)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sequence = 0

    def close(self):
        self._socket.close()

    def call(self, name, *arguments):
        """Call one RPC and return its decoded answer."""
        rpc = RPCS[name]
        return rpc.response.decode(self.call_raw(rpc.function_id, rpc.encode(arguments)))

    def call_raw(self, function_id, body):
        sequence = self._sequence
        self._sequence = (self._sequence + 1) & 0xFFFFFFFF
        header = _REQUEST_HEADER.pack(_MAGIC, 0, 0, 0, sequence, function_id, len(body), 0)
        self._socket.sendall(header + body)
        magic, _, error, _, echoed, length, attached = _RESPONSE_HEADER.unpack(
            self._receive(_RESPONSE_HEADER.size)
        )
        if magic != _MAGIC or echoed != sequence:
            raise ConnectionError(f"bad answer: magic {magic:#x}, sequence {echoed} not {sequence}")
        body = self._receive(length)
        self._receive(attached)
        if error:
            raise RpcError(error, _ERROR_MESSAGE.decode(body))
        return body

    def _receive(self, count):
        pieces = []
        while count:
            piece = self._socket.recv(count)
            if not piece:
                raise ConnectionError("the master closed the connection")
            pieces.append(piece)
            count -= len(piece)
        return b"".join(pieces)
