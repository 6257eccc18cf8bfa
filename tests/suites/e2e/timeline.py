"""What happened when, for whoever reads a failed scenario: marks of the test, Kubernetes events, changes of roles and of
the resource's status, and what the clients got, second by second. Written as text, one line for each."""

import collections
import datetime
import json
import subprocess
import threading
import time

from history import OK, REFUSED

# Where the API server is away, the watches are opened again until it is back.
RETRY_SECONDS = 1.0


class Timeline:
    """Of one namespace, from now to `close`."""

    def __init__(self, cluster, namespace, folder):
        self._cluster, self._namespace, self._folder = cluster, namespace, folder
        self._lines, self._lock, self._stop = [], threading.Lock(), threading.Event()
        # Between the clock that operations are timed with and the one on the wall.
        self._offset = time.time() - time.monotonic()
        self._processes = {}
        self._threads = [threading.Thread(target=self._watch_pods, daemon=True)]
        if cluster.get("crd", "masterclusters.moonkeeper.dev"):
            self._threads.append(threading.Thread(target=self._watch_status, daemon=True))
        for each in self._threads:
            each.start()

    def mark(self, text):
        """Notes what the test does."""
        self._add(time.time(), "test", text)

    def _add(self, at, source, text):
        with self._lock:
            self._lines.append((at, source, text))

    def _watch_pods(self):
        def role(pod):
            labels, status = pod["metadata"].get("labels", {}), pod.get("status", {})
            conditions = {each["type"]: each["status"] for each in status.get("conditions", [])}
            ready = "ready" if conditions.get("Ready") == "True" else "not ready"
            going = ", going" if "deletionTimestamp" in pod["metadata"] else ""
            return f"{labels.get('moonkeeper.dev/role', '-')}, {status.get('phase')}, {ready}{going}"

        self._watch("pods", role)

    def _watch_status(self):
        def state(resource):
            status = resource.get("status", {})
            leader = (status.get("leader") or {}).get("name", "nobody")
            wrong = [
                f"{each['type']}={each['status']} ({each.get('reason', '')})" for each in status.get("conditions", [])
            ]
            return f"{status.get('phase', '-')}, {leader} leads, {', '.join(wrong)}"

        self._watch("masterclusters.moonkeeper.dev", state)

    def _watch(self, kind, describe):
        """Notes every change of what `describe` says about an object of a kind."""
        known = {}
        while not self._stop.is_set():
            for each in self._stream(kind):
                name = each["object"]["metadata"]["name"]
                text = "gone" if each["type"] == "DELETED" else describe(each["object"])
                if known.get(name) != text:
                    known[name] = text
                    self._add(time.time(), f"{kind.partition('.')[0].rstrip('s')} {name}", text)
            self._stop.wait(RETRY_SECONDS)

    def _stream(self, kind):
        words = ["kubectl", "get", kind, "-n", self._namespace, "--watch", "--output-watch-events", "-o", "json"]
        process = subprocess.Popen(
            self._cluster.host.wrap(words),
            env=self._cluster.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._processes[kind] = process
        with process.stdout:
            # One in each line.
            yield from map(json.loads, process.stdout)
        process.wait()

    def close(self, histories=()):
        """Ends the watches and writes the file; returns its path."""
        self._stop.set()
        for each in self._processes.values():
            each.kill()
        for each in self._threads:
            each.join(timeout=10)
        self._add_events()
        for history in histories:
            self._add_operations(history)
        path = self._folder / "timeline.txt"
        lines = sorted(self._lines)
        start = lines[0][0] if lines else 0
        with open(path, "w") as file:
            for at, source, text in lines:
                clock = datetime.datetime.fromtimestamp(at, datetime.timezone.utc).strftime("%H:%M:%S.%f")[:-3]
                file.write(f"{clock} {at - start:8.3f}  {source:<28} {text}\n")
        return path

    def _add_events(self):
        found = self._cluster.kubectl("get", "events", "-n", self._namespace, "-o", "json", check=False)
        if found.returncode:
            return
        for each in json.loads(found.stdout)["items"]:
            moment = each.get("eventTime") or each.get("lastTimestamp") or each["metadata"]["creationTimestamp"]
            at = datetime.datetime.fromisoformat(moment.replace("Z", "+00:00")).timestamp()
            about = each["involvedObject"]
            text = f"{about['kind']} {about.get('name')}: {each.get('reason')}: {each.get('message', '').strip()}"
            self._add(at, f"event ({each.get('type')})", text)

    def _add_operations(self, history):
        """How many calls of each outcome ended in each second in which something went wrong."""
        seconds = collections.defaultdict(collections.Counter)
        for each in history.operations:
            if each.answered != float("inf"):
                seconds[int(each.answered + self._offset)][each.outcome] += 1
            else:
                seconds[int(each.invoked + self._offset)]["unanswered"] += 1
        for second, counts in seconds.items():
            # What was refused, or not even sent, is no doubt to anybody.
            if set(counts) - {OK, REFUSED}:
                text = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()) if outcome != REFUSED)
                self._add(second + 0.999, "clients, this second", text)
