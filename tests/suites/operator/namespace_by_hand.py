"""A namespace with a cluster in it, and the hands that Kubernetes lacks here: pods, and what nodes say about them.

The API server has no StatefulSet controller and no node. `Space.make_pods` makes the pods that the StatefulSet asks for
and writes what a kubelet would; `Space.start_masters` runs real masters for them as plain processes.
"""

import base64
import itertools
import json
import os
import urllib.request

import processes
from ports import free_port
from waiting import wait_until

_numbers = itertools.count()
ROLE = "moonkeeper.dev/role"
SECONDS = 60


class Space:
    """A namespace."""

    def __init__(self, server, etcd, folder):
        self.server, self.etcd, self.folder = server, etcd, folder
        self.name = server.create_namespace(f"test-{os.getpid()}-{next(_numbers)}")
        self.masters = {}
        # Whether masters have a directory for snapshots; it outlives them.
        self.keeps_files = False

    def end(self):
        for each in self.masters.values():
            each.kill()
        # Nothing collects what a cluster owns here; what is left says nothing any more. The operator is gone already.
        self.kubectl("delete", "mcl", "--all", "--wait=false", check=False)
        for each in (self.get("mcl") or {}).get("items", []):
            free = '{"metadata": {"finalizers": null}}'
            self.kubectl("patch", "mcl", each["metadata"]["name"], "--type=merge", "-p", free, check=False)

    def kubectl(self, *words, **options):
        return self.server.kubectl("--namespace", self.name, *words, **options)

    def get(self, *words):
        return self.server.get("--namespace", self.name, *words)

    def make(self, name="demo", **spec):
        """Creates a cluster."""
        etcd = {"endpoints": [self.etcd.endpoint]}
        resource = {
            "apiVersion": "moonkeeper.dev/v1alpha1",
            "kind": "MasterCluster",
            "metadata": {"name": name},
            "spec": {"etcd": etcd} | spec,
        }
        self.kubectl("apply", "-f", "-", input=json.dumps(resource))
        return name

    def write_login(self, password):
        """The Secret with etcd's user."""
        data = {"username": "root", "password": password}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"}, "stringData": data}
        self.kubectl("apply", "-f", "-", input=json.dumps(secret))

    def settle_with_login(self, password, **spec):
        """A cluster that serves, and logs in to its etcd."""
        self.etcd.require_login(password)
        self.write_login(password)
        return self.settle(etcd={"endpoints": [self.etcd.endpoint], "credentialsSecretName": "login"}, **spec)

    def patch(self, spec, name="demo"):
        self.kubectl("patch", "mcl", name, "--type=merge", "-p", json.dumps({"spec": spec}))

    def names(self, kind, name="demo"):
        """Of the objects of a cluster."""
        found = self.get(kind, "-l", f"moonkeeper.dev/cluster={name}")["items"]
        return [each["metadata"]["name"] for each in found]

    def status(self, name="demo"):
        return (self.get("mcl", name) or {}).get("status", {})

    def condition(self, kind, name="demo"):
        found = [each for each in self.status(name).get("conditions", []) if each["type"] == kind]
        return found[0] if found else {}

    def wait(self, condition, what, seconds=SECONDS):
        return wait_until(condition, what, seconds)

    def wait_status(self, condition, what, name="demo", seconds=SECONDS):
        """Until the status fits; fails with the one that there is then."""
        try:
            return wait_until(lambda: condition(self.status(name)), what, seconds)
        except AssertionError as error:
            raise AssertionError(f"{error}; status: {json.dumps(self.status(name), indent=1)}") from None

    def wait_phase(self, phase, name="demo", seconds=SECONDS):
        self.wait_status(lambda status: status.get("phase") == phase, f"phase {phase}", name, seconds)

    def events(self):
        return [each["reason"] for each in self.get("events.events.k8s.io")["items"]]

    def notes(self, reason):
        return [each["note"] for each in self.get("events.events.k8s.io")["items"] if each["reason"] == reason]

    # --- what the StatefulSet controller and a kubelet would do

    def make_pods(self, name="demo", revision="rev-1"):
        """Makes the pods that the StatefulSet asks for, running and ready, at loopback."""
        wanted = self.wait(lambda: self.get("sts", name), f"StatefulSet {name}")
        for ordinal in range(wanted["spec"]["replicas"]):
            self.make_pod(wanted, ordinal, revision)
        self.set_revision(name, revision)

    def make_pod(self, stateful_set, ordinal, revision="rev-1"):
        name = stateful_set["metadata"]["name"]
        template = stateful_set["spec"]["template"]
        labels = template["metadata"]["labels"] | {"controller-revision-hash": revision}
        owner = {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "name": name,
            "uid": stateful_set["metadata"]["uid"],
            "controller": True,
        }
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"{name}-{ordinal}", "labels": labels, "ownerReferences": [owner]},
            "spec": template["spec"] | {"nodeName": f"node-{ordinal}"},
        }
        for claim in stateful_set["spec"].get("volumeClaimTemplates", []):
            volume = claim["metadata"]["name"]
            self.make_claim(f"{volume}-{name}-{ordinal}", claim)
            source = {"claimName": f"{volume}-{name}-{ordinal}"}
            volumes = [*pod["spec"]["volumes"], {"name": volume, "persistentVolumeClaim": source}]
            pod["spec"] = pod["spec"] | {"volumes": volumes}
        self.kubectl("create", "-f", "-", input=json.dumps(pod))
        ready = [{"type": "Ready", "status": "True"}]
        address = self.etcd.host.address
        self.pod_status(f"{name}-{ordinal}", {"phase": "Running", "podIP": address, "conditions": ready})

    def make_claim(self, name, template):
        """A claim as the template has it, unless there is one, with a volume."""
        if self.get("pvc", name):
            return
        metadata = {"name": name, "labels": template["metadata"]["labels"]}
        claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": template["spec"]}
        self.kubectl("create", "-f", "-", input=json.dumps(claim))
        self.claim_status(name, "Bound")

    def claim_status(self, name, phase):
        text = json.dumps({"status": {"phase": phase}})
        self.kubectl("patch", "pvc", name, "--subresource=status", "--type=merge", "-p", text)

    def let_go(self, name="demo"):
        """Ends the deletion of a StatefulSet without its pods, as the garbage collector does."""
        deleted = lambda: "deletionTimestamp" in self.get("sts", name)["metadata"]  # noqa: E731
        self.wait(deleted, f"StatefulSet {name} to be deleted")
        assert self.get("sts", name)["metadata"]["finalizers"] == ["orphan"], "its pods would go with it"
        for pod in self.roles(name):
            free = '{"metadata": {"ownerReferences": null}}'
            self.kubectl("patch", "pod", pod, "--type=merge", "-p", free)
        before = self.get("sts", name)["metadata"]["uid"]
        self.kubectl("patch", "sts", name, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
        again = lambda: (found := self.get("sts", name)) and found["metadata"]["uid"] != before  # noqa: E731
        self.wait(again, f"StatefulSet {name} to be made again")

    def pod_status(self, pod, status):
        text = json.dumps({"status": status})
        self.kubectl("patch", "pod", pod, "--subresource=status", "--type=merge", "-p", text)

    def remove_pod(self, pod):
        """At once, as when its node has confirmed it."""
        self.kubectl("delete", "pod", pod, "--grace-period=0", "--force")

    def set_revision(self, name, revision):
        self.set_status(name, replicas=3, updateRevision=revision)

    def set_replicas(self, name, count):
        self.set_status(name, replicas=count)

    def set_status(self, name, **status):
        """What the StatefulSet controller says about the present generation."""
        generation = self.get("sts", name)["metadata"]["generation"]
        status = {"status": {"observedGeneration": generation} | status}
        words = ["patch", "sts", name, "--subresource=status", "--type=merge", "-p", json.dumps(status)]
        self.kubectl(*words)

    # --- masters

    def start_masters(self, name="demo", count=3):
        """Real masters, called as the pods, with the token and the certificate that the operator made."""
        self.mount_secret(name)
        for ordinal in range(count):
            self.start_master(f"{name}-{ordinal}", name)

    def mount_secret(self, name="demo"):
        """Writes the admin Secret where masters read it."""
        secret = self.wait(lambda: self.get("secret", f"{name}-admin"), "the admin Secret")
        folder = self.folder / f"{name}-admin"
        folder.mkdir(exist_ok=True)
        for key, value in secret["data"].items():
            (folder / key).write_bytes(base64.b64decode(value))

    def start_master(self, member, name="demo"):
        self.masters[member] = Master(self, member, f"{self.name}-{name}", self.folder / f"{name}-admin")
        return self.masters[member]

    def settle(self, name="demo", **spec):
        """A cluster of three that serves."""
        self.make(name, **spec)
        self.make_pods(name)
        self.start_masters(name)
        self.wait_phase("Serving", name)
        return name

    def roles(self, name="demo"):
        pods = self.get("pods", "-l", f"moonkeeper.dev/cluster={name}")["items"]
        return {each["metadata"]["name"]: each["metadata"]["labels"].get(ROLE) for each in pods}

    def primary(self, name="demo"):
        """Who leads, as etcd says."""
        election = self.etcd.get(f"mooncake-store/{self.name}-{name}/election")
        return json.loads(election)["name"] if election else None

    def wait_labelled(self, name="demo"):
        """Until the labels say what etcd says."""

        def labelled():
            primary, roles = self.primary(name), self.roles(name)
            others = {role for pod, role in roles.items() if pod != primary}
            return primary if roles.get(primary) == "primary" and "primary" not in others else None

        return self.wait(labelled, "the label to follow the primary")


class Master:
    """One master as a process on loopback."""

    def __init__(self, space, member, cluster_id, admin):
        self.member = member
        ports = {flag: free_port() for flag in ("rpc_port", "metrics_port", "admin_port", "peer_port")}
        self.http, self.rpc, self.host = ports["metrics_port"], ports["rpc_port"], space.etcd.host
        flags = ports | {
            "enable_ha": "true",
            "cluster_id": cluster_id,
            "member_name": member,
            "admin_token_file": admin / "token",
            "admin_tls_cert": admin / "tls.crt",
            "admin_tls_key": admin / "tls.key",
        } | space.etcd.master_flags()
        if space.keeps_files:
            flags |= {"data_dir": space.folder / f"{member}-data"}
        if self.host.namespace:
            # As in a pod: every address, and the one that others are told comes from Kubernetes.
            flags |= {"admin_host": "::"}
            environment = os.environ | {"POD_IP": self.host.address}
        else:
            flags |= dict.fromkeys(("rpc_address", "metrics_host", "peer_host"), "127.0.0.1")
            environment = os.environ
        command = [os.environ["MOONKEEPER_BIN"], "master", *(f"--{name}={value}" for name, value in flags.items())]
        log = space.folder / f"{member}-{free_port()}.log"
        self.process = processes.spawn(self.host.wrap(command), log, cwd=space.folder, env=environment)

    def kill(self):
        processes.kill(self.process)

    def terminate(self):
        self.process.terminate()
        self.process.wait(timeout=30)

    def status(self):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with self.host.inside(), opener.open(f"http://{self.host.at(self.http)}/api/v1/status", timeout=5) as answer:
            return json.loads(answer.read())
