"""The operator as a process outside the cluster, found by a kubeconfig."""

import os
import re
import signal
import time
import urllib.error
import urllib.request

import processes
from hosts import Host
from ports import free_port
from waiting import wait_until

_opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Operator:
    """One process."""

    def __init__(self, log, kubeconfig, namespace, own_namespace=None, elect=True, host=None, hosts=None, flags=()):
        """`host` is the machine that it runs on: there it listens on every address, here on loopback. `hosts` is a file of
        host names for it alone."""
        self.host = host or Host()
        self.metrics_port, self.health_port = free_port(), free_port()
        self.log = log
        command = [os.environ["MOONKEEPER_BIN"], "operator", f"--leader-elect={str(elect).lower()}"]
        # Without a namespace it looks after all. Each test elects among its own operators.
        command += [f"--namespace={namespace}"] if namespace else []
        command += [f"--own-namespace={own_namespace or namespace}"]
        listen = "" if host else "127.0.0.1"
        command += [f"--metrics-address={listen}:{self.metrics_port}", f"--health-address={listen}:{self.health_port}"]
        command += flags
        environment = os.environ | {"KUBECONFIG": str(kubeconfig), "RUST_LOG": "info,moonkeeper=debug"}
        command = self.host.wrap(command)
        if hosts:
            # In a mount namespace that ends with it.
            command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', str(hosts), *command]
        self.process = processes.spawn(command, log, env=environment)

    def _get(self, port, path):
        try:
            with self.host.inside(), _opener.open(f"http://{self.host.at(port)}{path}", timeout=5) as answer:
                return answer.read().decode()
        except (OSError, urllib.error.URLError):
            return None

    def healthy(self):
        return self._get(self.health_port, "/healthz") is not None

    def ready(self):
        return self._get(self.health_port, "/readyz") is not None

    def metrics(self):
        """All samples, by name with labels."""
        text = self._get(self.metrics_port, "/metrics") or ""
        found = re.findall(r"^(moonkeeper_operator_\S+) (\S+)$", text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def writes(self):
        """Everything that it has written but its Lease."""
        found = self.metrics()
        prefix = "moonkeeper_operator_writes_total"
        assert any(name.startswith(prefix) for name in found), "no metrics"
        return {name: value for name, value in found.items() if name.startswith(prefix) and value}

    def is_still(self, seconds=3):
        """Whether it writes nothing for a while."""
        before = self.writes()
        time.sleep(seconds)
        return self.writes() == before

    def leads(self):
        return self.metrics().get("moonkeeper_operator_leads") == 1

    def wait_until_leading(self, seconds=60):
        wait_until(lambda: self.leads() and self.ready(), "the operator to hold the lease", seconds)
        return self

    def passes(self):
        found = self.metrics()
        return sum(value for name, value in found.items() if name.startswith("moonkeeper_operator_reconciles_total"))

    def kill(self):
        processes.kill(self.process)

    def terminate(self):
        """Asks it to end, and returns its code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)
