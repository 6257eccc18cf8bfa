"""The namespace of one scenario: what is made there, what is said about it, and what is left of it in the artifacts."""

from dataclasses import dataclass

import manifests
from actors import StoreActor
from checker import summary
from clients import MIB
from scenario_judge import Judge
from history import OK
from masterclusters import Resource
from pods import SERVE_SECONDS, Etcd, PodMasters
from scene import Scene
from timeline import Timeline
from waiting import wait_until

# Far more than all rounds of a scenario write: what is evicted would look lost.
SEGMENT_BYTES = 512 * MIB
PACE_SECONDS = 0.03


@dataclass
class PodRound:
    """What one fault did."""

    fault: str
    # The longest time in which no master answered, and the longest one in which some real client had no success.
    silence: float
    client: float | None
    # Operations of real clients after the fault that did not succeed.
    failed: int
    acknowledged: int
    violations: list
    # What did not come as the fault says.
    unexpected: list

    def check(self):
        """Fails with everything that is wrong."""
        assert not self.violations, summary(self.violations)
        assert not self.unexpected, "\n".join([self.fault, *self.unexpected])
        assert self.acknowledged > 100, f"not much was tested: {self.acknowledged} changes"


class PodScene(Scene):
    """A scene whose masters are in pods. `timeline` takes marks, `pod_judge` knows what a fault may change."""

    def __init__(self, space, masters, address, seed, judge):
        super().__init__(space.folder, masters, space.cluster.host, address, seed)
        self.cluster, self.timeline, self.pod_judge = space.cluster, space.timeline, judge

    def round(self, fault, expects=None, **options):
        """Traffic around a fault, which says itself what is expected of it."""
        expects = expects or fault.expects
        self.masters.wait_until_redundant()
        before = self.pod_judge.look()
        self.timeline.mark(f"round begins: {fault.__name__}")
        # Less than the machine could do: the cluster needs the processors too.
        actors = self.actors(raw=1)
        for each in actors:
            each.pace = PACE_SECONDS
        stores, struck = [each.name for each in actors if isinstance(each, StoreActor)], []
        done = super().round(self._until_each_succeeds(fault, stores, struck), actors=actors, **options)
        gaps = [self._gap(each, struck[0]) for each in stores]
        failed = sum(
            each.actor in stores and each.invoked > struck[0] and each.outcome != OK for each in self.history.operations
        )
        self.timeline.mark(f"round ends: {fault.__name__}: {done.silence:.3f} s without answers")
        unexpected = [
            *self.pod_judge.compare(before, expects),
            *self.pod_judge.late(expects, done.silence, max(gaps, default=None)),
        ]
        for each in unexpected:
            self.timeline.mark(f"unexpected: {each}")
        return PodRound(
            fault.__name__, done.silence, max(gaps, default=None), failed, done.acknowledged, done.violations, unexpected
        )

    def _until_each_succeeds(self, fault, stores, struck):
        """The fault; traffic goes on until every real client has had a success after it."""

        def waited(scene):
            steps = fault(scene)
            struck.append(next(steps))
            yield struck[0]
            next(steps, None)
            for each in stores:
                wait_until(lambda: self._successes(each, struck[0]), f"a success of {each} after the fault", SERVE_SECONDS)

        waited.__name__ = fault.__name__
        return waited

    def _successes(self, actor, after):
        """When the calls of an actor were answered that it made after a moment, and that succeeded."""
        good = (each for each in list(self.history.operations) if each.actor == actor and each.outcome == OK)
        return sorted(each.answered for each in good if each.invoked > after)

    def _gap(self, actor, struck):
        """The longest time between two successes of an actor, from the last one before the fault on."""
        good = [each for each in self.history.operations if each.actor == actor and each.outcome == OK]
        before = max((each.answered for each in good if each.answered <= struck), default=struck)
        moments = [before, *sorted(each.answered for each in good if each.answered > struck)]
        return max(later - earlier for earlier, later in zip(moments, moments[1:]))


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

    def start_etcd(self, name="etcd"):
        """An etcd for masters, Ready, and reached through its Service: nodes learn of its pod a moment later."""
        self.apply(*manifests.etcd(self.cluster.stable_node, name))
        self.wait_for(f"statefulset/{name}")
        etcd = Etcd(self.cluster, self.name, name)
        wait_until(lambda: etcd.values("none") is not None, f"an answer of {name} through its Service", SERVE_SECONDS)
        return etcd

    def wait_for(self, workload):
        """Until all pods of a Deployment or StatefulSet are ready."""
        self.kubectl("rollout", "status", workload, f"--timeout={SERVE_SECONDS}s")

    def masters(self, selector, cluster_id, etcd, count=3):
        return PodMasters(self.cluster, self.name, selector, cluster_id, etcd, count)

    def scene(self, masters, clients=2, resource=None, operator=None, address=None, lease_seconds=None):
        """Real clients that find the masters through etcd, or at an address, and everything that they will do.
        `lease_seconds` is the masters' lease if it is not the default."""
        address = address or f"etcd://{masters.etcd.endpoint}"
        made = PodScene(self, masters, address, self.seed, Judge(masters, resource, operator, lease_seconds))
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


@dataclass
class Demo:
    """A MasterCluster at work, with real clients."""

    space: Space
    resource: Resource
    masters: PodMasters
    scene: PodScene
