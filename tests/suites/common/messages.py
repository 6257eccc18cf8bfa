"""Builders for the structs that requests carry, and names for their numbers.

Wire structs are plain tuples in field order (see ``struct_pack``); these
helpers keep the order in one place.
"""

MIB = 1 << 20
TENANT = "default"

# ReplicaType
MEMORY, DISK, LOCAL_DISK, NOF_SSD, ALL, DFS = 0, 1, 2, 3, 4, 100
# SoftPinAction
PRESERVE, ENABLE, DISABLE = 0, 1, 2
# TaskStatus
PENDING, PROCESSING, FAILED, SUCCESS = 0, 1, 2, 3
# SegmentStatus
SEGMENT_OK, GRACEFULLY_UNMOUNTING, UNMOUNTING = 1, 4, 5
# ClientStatus
CLIENT_OK, NEED_REMOUNT = 1, 2

NO_LEASE = (0, 0)


def config(
    replicas=1,
    *,
    nof=0,
    dfs=0,
    soft_pin=PRESERVE,
    soft_pin_ttl=None,
    hard_pin=False,
    preferred=(),
    preferred_single="",
    same_node=False,
    data_type=0,
    host="",
    groups=None,
):
    """A ReplicateConfig."""
    return (
        replicas,
        nof,
        dfs,
        soft_pin,
        soft_pin_ttl,
        hard_pin,
        list(preferred),
        preferred_single,
        [],
        same_node,
        data_type,
        host,
        None if groups is None else list(groups),
    )


def segment(identity, name, base, size, endpoint, protocol="tcp", host=""):
    """A Segment."""
    return (identity, name, base, size, endpoint, protocol, host)


def meta(key, checksum=None):
    """An ObjectMeta."""
    return (key, checksum)


def describe_replica(descriptor):
    """(replica id, endpoint, address, size) of a memory replica, else None."""
    replica_id, (alternative, body), _status = descriptor
    if alternative != 0:
        return None
    ((size, address, _protocol, endpoint),) = body
    return replica_id, endpoint, address, size
