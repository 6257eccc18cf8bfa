//! Encoding of objects and reservations in replies: writes the engine's data straight into a reply, without building
//! the protocol's own types first.

use crate::engine::object::{Object, Replica, ReplicaStatus, Replicas};
use crate::engine::ops::Replicated;
use crate::wire::messages::{
    BufferDescriptor, CopyStartResponse, GetReplicaListResponse, MemoryDescriptor, MoveStartResponse,
    ReplicaDescriptor, ReplicaLocation,
};
use crate::wire::struct_pack::{Encode, List, Literal, Wire, Writer};
use crate::wire::types;

/// Transport in descriptors. Clients ignore it and use their own; the reference always writes this.
pub const PROTOCOL: &[u8] = b"tcp";

/// Describes a replica in the protocol's terms.
#[must_use]
pub fn descriptor(size: u64, replica: &Replica) -> ReplicaDescriptor<'_> {
    ReplicaDescriptor {
        id: replica.id().0,
        location: ReplicaLocation::Memory(MemoryDescriptor {
            buffer: BufferDescriptor {
                size,
                address: replica.address(),
                protocol: PROTOCOL,
                transport_endpoint: &replica.segment.te_endpoint,
            },
        }),
        status: match replica.status {
            ReplicaStatus::Processing => types::ReplicaStatus::PROCESSING,
            ReplicaStatus::Complete => types::ReplicaStatus::COMPLETE,
        },
    }
}

/// Encodes a type field by field as the type `$like` of the protocol would be.
macro_rules! looks_like {
    ($type:ty, $like:ty) => {
        impl Wire for $type {
            const LITERAL: Literal = <$like as Wire>::LITERAL;
            const MIN_SIZE: usize = <$like as Wire>::MIN_SIZE;
        }
    };
}

/// The readable replicas of an object.
pub struct Readable<'o> {
    object: &'o Object,
    lease_ttl_ms: u64,
}

impl<'o> Readable<'o> {
    /// Describes this object, whose lease was set to this time to live.
    #[must_use]
    pub fn new(object: &'o Object, lease_ttl_ms: u64) -> Self {
        Self { object, lease_ttl_ms }
    }

    fn replicas(&self) -> impl Iterator<Item = &'o Replica> {
        self.object.replicas().filter(|replica| replica.is_readable())
    }
}

looks_like!(Readable<'_>, GetReplicaListResponse<'static>);

impl Encode for Readable<'_> {
    #[inline]
    fn largest(&self) -> usize {
        self.replicas().map(|replica| replica.segment.te_endpoint.len()).max().unwrap_or(0)
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.length(self.replicas().count());
        for replica in self.replicas() {
            descriptor(self.object.size, replica).encode(writer);
        }
        self.lease_ttl_ms.encode(writer);
        self.object.checksum().encode(writer);
    }
}

/// Copies of an object's replicas, which stay valid after the shard is unlocked.
#[derive(Debug)]
pub struct Located {
    size: u64,
    replicas: Replicas,
}

impl Located {
    /// Copies the readable replicas of this object.
    #[must_use]
    pub fn new(object: &Object) -> Self {
        let replicas = object.replicas().filter(|replica| replica.is_readable()).cloned().collect();
        Self { size: object.size, replicas }
    }

    /// Estimates the bytes that they take in a reply.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// Bytes of lengths, numbers and the protocol's name.
        const FIXED: usize = 48;
        self.replicas.iter().map(|replica| replica.segment.te_endpoint.len() + FIXED).sum::<usize>() + FIXED
    }
}

looks_like!(Located, Vec<ReplicaDescriptor<'static>>);

impl Encode for Located {
    fn largest(&self) -> usize {
        largest(self.replicas.iter())
    }

    fn encode(&self, writer: &mut Writer<'_>) {
        writer.length(self.replicas.len());
        for replica in &self.replicas {
            descriptor(self.size, replica).encode(writer);
        }
    }
}

/// Returns the longest of the lengths in a list of replicas, which decides how lengths are encoded.
fn largest<'r>(replicas: impl Iterator<Item = &'r Replica>) -> usize {
    let (count, longest) = replicas.fold((0, 0), |(count, longest), replica| {
        (count + 1, replica.segment.te_endpoint.len().max(longest))
    });
    longest.max(count)
}

/// All replicas of an object that is being written: the ranges that its writer has to fill.
pub struct Placed<'o>(pub &'o Object);

looks_like!(Placed<'_>, Vec<ReplicaDescriptor<'static>>);

impl Encode for Placed<'_> {
    #[inline]
    fn largest(&self) -> usize {
        largest(self.0.replicas())
    }

    #[inline]
    fn encode(&self, writer: &mut Writer<'_>) {
        writer.length(self.0.replicas().count());
        for replica in self.0.replicas() {
            descriptor(self.0.size, replica).encode(writer);
        }
    }
}

/// Describes the source and the targets of a copy.
#[must_use]
pub fn copy(begun: &Replicated) -> CopyStartResponse<'_> {
    CopyStartResponse {
        source: descriptor(begun.size, &begun.source),
        targets: List::Owned(begun.targets.iter().map(|target| descriptor(begun.size, target)).collect()),
    }
}

/// Describes the source and the target of a move.
#[must_use]
pub fn movement(begun: &Replicated) -> MoveStartResponse<'_> {
    MoveStartResponse {
        source: descriptor(begun.size, &begun.source),
        target: begun.targets.first().map(|target| descriptor(begun.size, target)),
    }
}
