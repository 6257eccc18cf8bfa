"""The namespace of one scenario: what is made there, what is said about it, and what is left of it in the artifacts."""

import manifests
from clients import MIB
from pods import SERVE_SECONDS, Etcd, PodMasters
from scene import Scene
from timeline import Timeline

# Far more than all rounds of a scenario write: what is evicted would look lost.
SEGMENT_BYTES = 512 * MIB
PACE_SECONDS = 0.03


class PodScene(Scene):
    """A scene whose masters are in pods. `timeline` takes marks."""

    def __init__(self, space, masters, address, seed):
        super().__init__(space.folder, masters, space.cluster.host, address, seed)
        self.cluster, self.timeline = space.cluster, space.timeline

    def round(self, fault, **options):
        self.timeline.mark(f"round begins: {fault.__name__}")
        # Less than the machine could do: the cluster needs the processors too.
        actors = self.actors(raw=1)
        for each in actors:
            each.pace = PACE_SECONDS
        done = super().round(fault, actors=actors, **options)
        self.timeline.mark(f"round ends: {fault.__name__}: {done.silence:.3f} s without answers")
        return done


class Space:
    """A namespace, from its creation to its deletion."""

    def __init__(self, cluster, name, folder, seed):
        self.cluster, self.name, self.folder, self.seed = cluster, name, folder, seed
        folder.mkdir(parents=True)
        self.scenes = []
        self.kubectl("delete", "namespace", name, "--ignore-not-found")
        self.kubectl("create", "namespace", name)
        self.timeline = Timeline(cluster, name, folder)

    def kubectl(self, *arguments, **options):
        """kubectl in this namespace."""
        return self.cluster.kubectl("--namespace", self.name, *arguments, **options)

    def plugin(self, *arguments):
        """`kubectl moonkeeper` in this namespace. Plugins take flags behind their name only."""
        return self.cluster.kubectl("moonkeeper", *arguments, "--namespace", self.name)

    def get(self, *arguments):
        return self.cluster.get("--namespace", self.name, *arguments)

    def list(self, *arguments):
        return self.cluster.list("--namespace", self.name, *arguments)

    def apply(self, *objects, **options):
        """Applies objects that are given as values."""
        return self.kubectl("apply", "-f", "-", input=manifests.text(*objects), **options)

    def start_etcd(self):
        """An etcd for masters, Ready."""
        self.apply(*manifests.etcd(self.cluster.stable_node))
        self.wait_for("statefulset/etcd")
        return Etcd(self.cluster, self.name)

    def wait_for(self, workload):
        """Until all pods of a Deployment or StatefulSet are ready."""
        self.kubectl("rollout", "status", workload, f"--timeout={SERVE_SECONDS}s")

    def masters(self, selector, cluster_id, etcd, count=3):
        return PodMasters(self.cluster, self.name, selector, cluster_id, etcd, count)

    def scene(self, masters, clients=2):
        """Real clients that find the masters through etcd, and everything that they will do."""
        made = PodScene(self, masters, f"etcd://{masters.etcd.endpoint}", self.seed)
        self.scenes.append(made)
        masters.wait_until_serving()
        for _ in range(clients):
            made.start_client(SEGMENT_BYTES)
        return made

    def close(self):
        """Ends the clients, writes down what is there, and deletes it."""
        for each in self.scenes:
            each.end()
        self._keep_logs()
        self.timeline.close(each.history for each in self.scenes)
        # While the operator is still there to let go of them.
        self.kubectl("delete", "masterclusters.moonkeeper.dev", "--all", "--timeout=60s", check=False)
        self.cluster.kubectl("delete", "namespace", self.name, "--wait=false")

    def _keep_logs(self):
        found = self.kubectl("get", "all,masterclusters,events", "-o", "wide", check=False)
        (self.folder / "objects.txt").write_text(found.stdout + found.stderr)
        resources = self.kubectl("get", "masterclusters", "-o", "yaml", check=False)
        (self.folder / "masterclusters.yaml").write_text(resources.stdout)
        for each in self.list("pods"):
            name = each["metadata"]["name"]
            for suffix, options in [("", []), ("-before", ["--previous"])]:
                logs = self.kubectl("logs", name, "--timestamps", *options, check=False)
                if logs.returncode == 0:
                    (self.folder / f"{name}{suffix}.log").write_text(logs.stdout)
