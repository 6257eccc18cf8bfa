//! How objects and reservations look to clients. These write what the engine knows straight into a reply, without
//! building the protocol's own types first.

use crate::engine::object::{Object, Replica, ReplicaStatus, Replicas};
use crate::engine::ops::Replicated;
use crate::wire::messages::{
    BufferDescriptor, CopyStartResponse, GetReplicaListResponse, MemoryDescriptor, MoveStartResponse,
    ReplicaDescriptor, ReplicaLocation,
};
use crate::wire::struct_pack::{Encode, List, Literal, Wire, Writer};
use crate::wire::types;

/// What descriptors say of the transport: clients use their own, whatever this says, and the reference says this.
pub const PROTOCOL: &[u8] = b"tcp";

/// A replica as clients see it.
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
    /// Of this object, promised for so long.
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

/// Replicas alone, kept beyond their lock.
#[derive(Debug)]
pub struct Located {
    size: u64,
    replicas: Replicas,
}

impl Located {
    /// The readable replicas of this object.
    #[must_use]
    pub fn new(object: &Object) -> Self {
        let replicas = object.replicas().filter(|replica| replica.is_readable()).cloned().collect();
        Self { size: object.size, replicas }
    }

    /// About how many bytes a reply needs for them.
    #[must_use]
    pub fn bytes(&self) -> usize {
        /// Lengths, numbers and the protocol's name.
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

/// The longest of the lengths in a list of replicas.
fn largest<'r>(replicas: impl Iterator<Item = &'r Replica>) -> usize {
    let (count, longest) = replicas.fold((0, 0), |(count, longest), replica| {
        (count + 1, replica.segment.te_endpoint.len().max(longest))
    });
    longest.max(count)
}

/// All replicas of an object that is being written: where its writer is to write.
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

/// What a copy reads and writes.
#[must_use]
pub fn copy(begun: &Replicated) -> CopyStartResponse<'_> {
    CopyStartResponse {
        source: descriptor(begun.size, &begun.source),
        targets: List::Owned(begun.targets.iter().map(|target| descriptor(begun.size, target)).collect()),
    }
}

/// What a move reads and writes.
#[must_use]
pub fn movement(begun: &Replicated) -> MoveStartResponse<'_> {
    MoveStartResponse {
        source: descriptor(begun.size, &begun.source),
        target: begun.targets.first().map(|target| descriptor(begun.size, target)),
    }
}
