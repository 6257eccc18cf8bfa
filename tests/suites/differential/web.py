"""Asks both masters the same over HTTP and compares status, content type and body.

JSON is compared as JSON, with the order of its fields; lists that the masters may order freely are sorted; addresses
inside a segment, which they choose, are masked.
"""

import json
import urllib.error
import urllib.request
from dataclasses import dataclass

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
# Only a hang reaches it.
_SECONDS = 30
# Answers of one name per line.
_LISTS = ("/get_all_keys", "/get_all_segments")


@dataclass(frozen=True)
class Reply:
    """An answer as it came."""

    status: int
    kind: str
    body: str

    def json(self):
        return json.loads(self.body)


def ask(side, path, method="GET"):
    """What one master answers."""
    url = f"http://127.0.0.1:{side.master.metrics_port}{path}"
    request = urllib.request.Request(url, b"" if method == "POST" else None, method=method)
    try:
        with _opener.open(request, timeout=_SECONDS) as answer:
            return _reply(answer)
    except urllib.error.HTTPError as error:
        with error:
            return _reply(error)


def _reply(answer):
    return Reply(answer.status, answer.headers.get("Content-Type", ""), answer.read().decode())


def compare(s, path, method="GET"):
    """Asks both masters of a scenario, which notes a difference as it does for calls; returns the reference's answer."""
    replies = [ask(side, path, method) for side in s.pair.sides]
    left, right = (comparable(path, reply) for reply in replies)
    if left != right:
        s.differences.append(f"{method} {path}\n  reference: {left!r}\n  ours:      {right!r}")
    return replies[0]


def comparable(path, reply):
    """The reply without what a master may choose."""
    body = reply.body
    if "json" in reply.kind:
        body = json.loads(body, object_pairs_hook=_fields)
    elif path in _LISTS:
        assert body == "" or body.endswith("\n"), f"the last line of {path} does not end"
        body = sorted(body.splitlines())
    return reply.status, reply.kind, body


def _fields(pairs):
    """An object as its fields in order."""
    masked = [(name, "*" if name == "buffer_address_" else value) for name, value in pairs]
    return [(name, sorted(value) if name == "segments" else value) for name, value in masked]


def samples(side):
    """All numbers at /metrics by name and labels."""
    found = {}
    for line in ask(side, "/metrics").body.splitlines():
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[name] = float(value)
    return found


def moved(before, after):
    """What has changed, and by how much. A sample that is not there counts as 0."""
    changes = {name: after.get(name, 0) - before.get(name, 0) for name in before.keys() | after.keys()}
    return {name: change for name, change in changes.items() if change}
