"""Plans random calls: every RPC has a method that draws its arguments."""

from cluster_calls import ClusterCalls
from object_calls import ObjectCalls
from replication_calls import ReplicationCalls


class Generator(ObjectCalls, ClusterCalls, ReplicationCalls):
    """All the calls there are."""

    def plan(self, name):
        """The calls to make for one card of the deck (nearly always one)."""
        planned = getattr(self, f"_{name}")()
        return planned if isinstance(planned, list) else [planned]
