"""Random calls about segments and clients, and those for features that are off."""

from calls import Call
from choices import Choices
from messages import ALL, DISK, LOCAL_DISK, MEMORY, MIB, TENANT, segment
from believed_state import STRANGER

LONG_GRACE_MS = 3_600_000


class ClusterCalls(Choices):
    """One method per RPC, named like it."""

    # Segments and clients.

    def _mount_arguments(self):
        plans = self.world.plans
        missing = [plan for plan in plans if plan.identity not in self.world.mounted]
        plan = self.random.choice(missing if missing and self._chance(0.75) else plans)
        return plan, plan.owner if self._chance(0.93) else self._client()

    def _MountSegment(self):
        plan, owner = self._mount_arguments()
        # Somebody else's client id only where it cannot take the segment over.
        if plan.identity not in self.world.mounted:
            owner = plan.owner
        message = plan.message
        if self._chance(0.06):
            message = segment((0xBAD, 1), "bad", *self.random.choice([(0, MIB), (4096, 0)]), "10.9.9.9:1")
        return Call("MountSegment", (message, owner))

    def _ReMountSegment(self):
        if self._chance(0.1):
            self._fresh += 1
            newcomer = (0xC0DE, self._fresh)
            bad = segment((0xBAD, 2), "bad", *self.random.choice([(0, MIB), (4096, 0)]), "10.9.9.9:1")
            return Call("ReMountSegment", (self.random.choice([[], [bad]]), newcomer))
        client = self._client()
        if client == STRANGER:
            return Call("ReMountSegment", ([], client))
        messages = [
            plan.message
            for plan in self.world.plans
            if plan.owner == client and (plan.identity in self.world.mounted or self._chance(0.6))
        ]
        if messages and self._chance(0.12):
            changed = list(messages[0])
            field = self.random.choice([1, 2, 3, 4])
            changed[field] = {1: "renamed", 2: 0xABCD0000, 3: 5 * MIB, 4: "10.8.8.8:8"}[field]
            if changed[0] in self.world.mounted:
                messages[0] = tuple(changed)
        return Call("ReMountSegment", (messages, client))

    def _victim(self):
        """A segment to take away: mostly one of the two that come and go."""
        spare = [plan for plan in self.world.plans[3:] if plan.identity in self.world.mounted]
        if spare and self._chance(0.7):
            return self.random.choice(spare).identity
        if self._chance(0.5):
            return self.random.choice(self.world.plans).identity
        return (0xBAD, 3)

    def _UnmountSegment(self):
        # Under its owner's name: what a stranger's unmount leaves behind is one
        # of the deliberate differences.
        identity = self._victim()
        owner = next((plan.owner for plan in self.world.plans if plan.identity == identity), STRANGER)
        return Call("UnmountSegment", (identity, owner))

    def _GracefulUnmountSegment(self):
        identity = self._victim()
        owner = next((plan.owner for plan in self.world.plans if plan.identity == identity), None)
        grace = self.random.choices([LONG_GRACE_MS, 0], [60, 40])[0]
        return Call("GracefulUnmountSegment", (identity, self._client(owner), grace))

    def _QuerySegmentStatus(self):
        return Call("QuerySegmentStatus", (self.random.choice(self._preference()),))

    def _QuerySegmentStatusById(self):
        identity = self.random.choice([*(plan.identity for plan in self.world.plans), (0xBAD, 4)])
        return Call("QuerySegmentStatusById", (identity,))

    def _Ping(self):
        return Call("Ping", (self._client(),))

    def _BatchQueryIp(self):
        return Call("BatchQueryIp", ([self._client() for _ in range(self.random.randrange(5))],))

    # What is answered with the features of it switched off.

    def _EvictDiskReplica(self):
        return Call(
            "EvictDiskReplica", (self._client(), self._key(self.world.keys()), self._tenant(), self._disk_kind())
        )

    def _BatchEvictDiskReplica(self):
        keys = self._keys(self.world.keys())
        return Call("BatchEvictDiskReplica", (self._client(), keys, self._tenant(), self._disk_kind()))

    def _disk_kind(self):
        return self.random.choices([DISK, LOCAL_DISK, MEMORY, ALL], [40, 40, 10, 10])[0]

    def _PromotionAllocStart(self):
        key = self._key(self.world.keys())
        return Call("PromotionAllocStart", (self._client(), key, self._tenant(), self._size(), self._preference()))

    def _NotifyPromotionSuccess(self):
        return Call("NotifyPromotionSuccess", (self._client(), self._key(self.world.keys()), self._tenant()))

    def _NotifyPromotionFailure(self):
        return Call("NotifyPromotionFailure", (self._client(), self._key(self.world.keys()), self._tenant()))

    def _NotifyOffloadSuccess(self):
        items, metadatas = self.random.choice([(0, 0), (0, 0), (1, 0), (0, 2)])
        return Call(
            "NotifyOffloadSuccess",
            (self._client(), [(TENANT, self._any_key(), 5)] * items, [(1, 2, 3, 4, "10.1.0.1:7001")] * metadatas),
        )

    def _MountLocalDiskSegment(self):
        return Call("MountLocalDiskSegment", (self._client(), self._chance(0.5)))

    def _UnmountLocalDiskSegment(self):
        return Call("UnmountLocalDiskSegment", (self._client(),))

    def _OffloadObjectHeartbeat(self):
        return Call("OffloadObjectHeartbeat", (self._client(), self._chance(0.5)))

    def _ReportSsdCapacity(self):
        return Call("ReportSsdCapacity", (self._client(), self.random.choice([0, 1, 1 << 40, -1])))

    def _PromotionObjectHeartbeat(self):
        return Call("PromotionObjectHeartbeat", (self._client(),))

    def _PollRemoveAll(self):
        return Call("PollRemoveAll", (self._client(),))

    def _nof_segment(self):
        return ((0x40F, 1), "nof", self.random.choice([0, 4096]), MIB, "10.1.0.9:9")

    def _MountNoFSegment(self):
        return Call("MountNoFSegment", (self._nof_segment(), self._client()))

    def _ReMountNoFSegment(self):
        return Call("ReMountNoFSegment", ([self._nof_segment()] * self.random.randrange(3), self._client()))

    def _UnmountNoFSegment(self):
        return Call("UnmountNoFSegment", ((0x40F, 1), self._client()))

    def _GetNoFSegmentsByName(self):
        return Call("GetNoFSegmentsByName", (self.random.choice(["", "nof", "segment-1"]),))

    def _GetAllNoFSegments(self):
        return Call("GetAllNoFSegments", ())

    def _GetFsdir(self):
        return Call("GetFsdir", ())

    def _GetStorageConfig(self):
        return Call("GetStorageConfig", ())

    def _ServiceReady(self):
        return Call("ServiceReady", ())
