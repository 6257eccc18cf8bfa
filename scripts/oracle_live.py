"""Parts of the oracle that run something: the simulator, a log in a real etcd, a cluster of masters."""

import base64
import hashlib
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
from http.client import HTTPConnection

from oracle_static import ROOT, run

sys.path[:0] = [str(ROOT / "tests" / "suites" / "common")]

import messages
import processes
from ports import free_port
from rpc import Connection
from waiting import wait_until

WAIT_SECONDS = 120
# Traces are some megabytes each: so many are on disk at a time.
BLOCK = 50
GOLDEN_LOG = "format-1.txt"
# Values that programs match, shown as they are; of all others only the type.
MATCHED = ("code", "error_code", "op_type", "role", "reason", "success", "present", "enabled")
CLIENT, SEGMENT = (1, 2), (3, 4)

# Method, path, body; asked of the primary and of a standby.
QUESTIONS = [
    ("GET", "/health"),
    ("GET", "/role"),
    ("GET", "/leader"),
    ("GET", "/ha_status"),
    ("GET", "/ready"),
    ("GET", "/live"),
    ("GET", "/metrics/summary"),
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/members"),
    ("GET", "/api/v1/promotion"),
    ("GET", "/api/v1/digest"),
    ("GET", "/query_key?key=one"),
    ("GET", "/query_key?key=none"),
    ("GET", "/batch_query_keys?keys=one,none"),
    ("GET", "/batch_query_keys"),
    ("GET", "/get_all_keys"),
    ("GET", "/get_all_segments"),
    ("GET", "/get_segments_detail"),
    ("GET", "/query_segment?segment=oracle"),
    ("GET", "/query_segment?segment=none"),
    ("GET", "/api/v1/segments/status?segment=oracle"),
    ("GET", "/kv_events/status"),
    ("GET", "/api/v1/tenant_quotas"),
    ("PUT", "/api/v1/tenant_quotas"),
    ("POST", "/api/v1/drain_jobs"),
    ("GET", "/api/v1/drain_jobs/query"),
    ("POST", "/api/v1/remove_all"),
    ("GET", "/no/such/route"),
]
ADMIN_QUESTIONS = [
    ("GET", "/api/v1/status"),
    ("GET", "/api/v1/snapshots"),
    ("GET", "/no/such/route"),
    ("POST", "/api/v1/switchover"),
    ("POST", "/api/v1/switchover", '{"to": "no-such-member"}'),
    ("POST", "/api/v1/switchover", "not json"),
    ("POST", "/api/v1/remove_all?force=true"),
]


def traces(arguments):
    renames = []
    if arguments.renames:
        pairs = (line.split() for line in arguments.renames.read_text().splitlines() if line.strip())
        renames = [(re.compile(rf"\b{re.escape(new)}\b"), old) for new, old in pairs]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        for first in range(0, arguments.seeds, BLOCK):
            count = min(BLOCK, arguments.seeds - first)
            settings = {"MOONKEEPER_TEST_TRACES": folder, "MOONKEEPER_TEST_SEED": first, "MOONKEEPER_TEST_SEEDS": count}
            environment = os.environ | {name: str(value) for name, value in settings.items()}
            command = ["cargo", "test", "--locked", "--quiet", "--test", "simulator", "--", "--exact", "write_traces"]
            subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=sys.stderr)
            for seed in range(first, first + count):
                path = pathlib.Path(folder) / f"{seed}.txt"
                text = path.read_text()
                path.unlink()
                for new, old in renames:
                    text = new.sub(old, text)
                hashed = hashlib.sha256(text.encode()).hexdigest()[:16]
                lines.append(f"seed {seed} lines {text.count(chr(10))} {hashed}")
    return lines


def is_word(text):
    return re.fullmatch(r"\w+\n?", text) is not None


def shape(value, key=None):
    """Keys and types; the values of a few keys as they are."""
    if isinstance(value, dict):
        return {name: shape(value[name], name) for name in sorted(value)}
    if isinstance(value, list):
        return [json.loads(each) for each in sorted({json.dumps(shape(each), sort_keys=True) for each in value})]
    if key in MATCHED or (key == "error_message" and is_word(value or "")):
        return value
    return {bool: "bool", int: "number", float: "number", str: "string", type(None): "null"}[type(value)]


def as_line(value):
    return json.dumps(shape(value), sort_keys=True)


class Etcd:
    """A real etcd with one member, through its JSON gateway."""

    def __init__(self, folder):
        self.port = free_port()
        client, peer = f"http://127.0.0.1:{self.port}", f"http://127.0.0.1:{free_port()}"
        command = [os.environ["ETCD_BIN"], "--data-dir", f"{folder}/etcd", "--log-level", "error"]
        command += ["--listen-client-urls", client, "--advertise-client-urls", client]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        self.process = processes.spawn(command, pathlib.Path(folder) / "etcd.log")
        wait_until(lambda: self.put("started", b"yes"), "etcd", WAIT_SECONDS)

    def put(self, key, value):
        body = {"key": base64.b64encode(key.encode()).decode(), "value": base64.b64encode(value).decode()}
        try:
            return ask(self.port, "POST", "/v3/kv/put", json.dumps(body))[0] == 200
        except OSError:
            return False


def dump(_arguments):
    """The golden log as `oplog dump` shows it: a hash of everything, and the first record of each kind in full."""
    path = next(path for path in sorted((ROOT / "tests").rglob(GOLDEN_LOG)) if "golden" in str(path))
    batches = [bytes.fromhex(line.split()[1]) for line in path.read_text().splitlines()]

    def word(batch, offset):
        return int.from_bytes(batch[offset:][:8], "little")

    with tempfile.TemporaryDirectory() as folder:
        etcd = Etcd(folder)
        try:
            log, last = f"{word(batches[0], 8):016x}", batches[-1]
            for batch in batches:
                assert etcd.put(f"mooncake-store/oplog/golden/batches/{log}/{word(batch, 24):020}", batch)
            checksum = int.from_bytes(last[-8:], "little")
            end = f'{{"log":"{log}","term":{word(last, 16)},"last":{word(last, 32)},"checksum":"{checksum:016x}"}}'
            assert etcd.put("mooncake-store/oplog/golden/latest", end.encode())
            assert etcd.put("mooncake-store/oplog/golden/format", b"1")
            where = ["--etcd_endpoints", f"127.0.0.1:{etcd.port}", "--cluster_id", "golden"]
            text = run(["oplog", "dump", *where, "-o", "json"]).stdout
        finally:
            processes.kill(etcd.process)
    records = [json.loads(line) for line in text.splitlines()]
    first = {record["op_type"]: record for record in reversed(records)}
    whole = hashlib.sha256(text.encode()).hexdigest()
    return [f"{len(records)} records {whole}", *(json.dumps(first[kind]) for kind in sorted(first))]


def ask(port, method, path, body=None, token=None):
    """Status, content type and body of an answer."""
    connection = HTTPConnection("127.0.0.1", port, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path, body, {"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.getheader("content-type"), answer.read().decode()
    finally:
        connection.close()


def told(who, question, answer):
    """One line about an answer: of JSON the shape, of text whether it is one word, and which."""
    status, kind, body = answer
    text = body.strip() if is_word(body) else "text"
    content = as_line(json.loads(body)) if "json" in (kind or "") else text
    return f"{who} {' '.join(question)} {status} {kind} {content}"


def metrics(who, port):
    """Name, type and labels of every metric. Names of segments, versions and addresses come from elsewhere."""
    text = ask(port, "GET", "/metrics")[2]
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    found = set()
    for name, labels in re.findall(r"^([a-z]\w*)(?:\{(.*)\})? ", text, re.MULTILINE):
        labels = re.sub(r'(segment|version|endpoint)="[^"]*"', r"\1", labels)
        family = name if name in types else re.sub(r"_(bucket|sum|count)$", "", name)
        found.add(f"{who} metric {name} {types.get(family)} {labels}".rstrip())
    return sorted(found)


class Cluster:
    """Three masters of `moonkeeper up`, with a segment and two objects."""

    def __init__(self, folder):
        self.log = pathlib.Path(folder) / "up.log"
        self.token_file = None
        ports = ["--rpc-port-base=0", "--http-port-base=0", "--etcd-port=0"]
        command = [os.environ["MOONKEEPER_BIN"], "up", *ports]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("MOONKEEPER_")}
        self.process = processes.spawn(command, self.log, env=environment)
        wait_until(lambda: "--admin_token_file" in self.log.read_text(), "the masters", WAIT_SECONDS)
        text = self.log.read_text()
        place = r"^  m-\d +pid \d+ +clients 127.0.0.1:(\d+) +http 127.0.0.1:(\d+) +admin 127.0.0.1:(\d+)"
        self.masters = [tuple(map(int, ports)) for ports in re.findall(place, text, re.MULTILINE)]
        self.etcd = re.search(r"^cluster .* at (\S+)$", text, re.MULTILINE)[1]
        self.token_file = re.search(r"--admin_token_file (\S+)", text)[1]

    def status(self, http_port):
        return json.loads(ask(http_port, "GET", "/api/v1/status")[2])

    def settle(self):
        """Waits until one leads, the others have caught up and all know each other; returns primary and standby."""

        def settled():
            found = [self.status(http_port) for _, http_port, _ in self.masters]
            whole = all(each["caught_up"] and each["lag"] is not None and len(each["members"]) == 3 for each in found)
            roles = [each["role"] for each in found]
            if whole and roles.count("primary") == 1 and not any(each["waits_for"] for each in found):
                return self.masters[roles.index("primary")], self.masters[roles.index("standby")]
            return None

        return wait_until(settled, "a settled cluster", WAIT_SECONDS)

    def fill(self, rpc_port):
        connection = Connection(("127.0.0.1", rpc_port))
        segment = messages.segment(SEGMENT, "oracle", 1 << 32, 64 * messages.MIB, "127.0.0.1:9")
        connection.call("MountSegment", segment, CLIENT)
        for key in ("one", "two"):
            connection.call("PutStart", CLIENT, key, 1000, messages.config(), messages.TENANT)
            connection.call("PutEnd", CLIENT, messages.meta(key), messages.MEMORY, messages.TENANT)
        connection.close()

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=WAIT_SECONDS)


def ask_everything(cluster):
    (rpc, http_port, admin), (_, standby_http, standby_admin) = cluster.settle()
    lines = metrics("primary without clients", http_port) + metrics("standby", standby_http)
    cluster.fill(rpc)
    cluster.settle()
    for who, port in (("primary", http_port), ("standby", standby_http)):
        lines += [told(who, question, ask(port, *question)) for question in QUESTIONS]
    lines += metrics("primary", http_port)
    token = pathlib.Path(cluster.token_file).read_text().strip()
    for who, port in (("standby admin", standby_admin), ("primary admin", admin)):
        for question in ADMIN_QUESTIONS:
            lines.append(told(f"{who} without token", question, ask(port, *question)))
        # Without a body it would be done, and a standby refuses it as it should.
        for question in [question for question in ADMIN_QUESTIONS if len(question) == 3 or "standby" in who]:
            lines.append(told(who, question, ask(port, *question, *[None] * (3 - len(question)), token)))
    where = ["--etcd_endpoints", cluster.etcd]
    lines.append("status " + as_line(json.loads(run(["status", *where, "-o", "json"]).stdout)))
    access = ["--admin", f"127.0.0.1:{admin}", "--admin_token_file", cluster.token_file]
    lines.append("switchover " + as_line(json.loads(run(["switchover", *access, "-o", "json"]).stdout)))
    (_, http_port, _), _ = cluster.settle()
    question = ("GET", "/api/v1/promotion")
    lines.append(told("successor", question, ask(http_port, *question)))
    return lines


def http(_arguments):
    with tempfile.TemporaryDirectory() as folder:
        cluster = Cluster(folder)
        try:
            lines = ask_everything(cluster)
            cluster.stop()
            return lines
        finally:
            processes.kill(cluster.process)
