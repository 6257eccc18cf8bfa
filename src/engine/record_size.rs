//! Upper bounds on the size of a record. The log is written in batches of bounded size, and a record is not split.

use super::record::{Record, Start};

/// Most bytes that a record may take in the log: a batch has 256 KiB, and needs some for itself.
pub const MAX_RECORD: usize = 250 << 10;

/// Most bytes of a number, in any encoding.
const NUMBER: usize = 10;

/// Most bytes of the id of a client, a segment or a task.
const UUID: usize = 2 * NUMBER;

/// Most bytes of what every record has: its kind, its timestamp, and a few numbers and flags of its own.
const FRAME: usize = 16 * NUMBER;

fn text(text: &[u8]) -> usize {
    text.len() + NUMBER
}

fn start(start: &Start<'_>) -> usize {
    text(start.key.bytes) + text(start.group.unwrap_or_default()) + start.places.len() * 2 * NUMBER + UUID
}

impl Record<'_> {
    /// Returns an upper bound on the bytes that the record takes in the log.
    #[must_use]
    pub fn size_bound(&self) -> usize {
        let own = match *self {
            Record::PutStart(ref put) => start(put),
            Record::UpsertStart { start: ref put, replaces: _, release_at: _ } => start(put),
            Record::End { .. }
            | Record::Revoke { .. }
            | Record::Discard { .. }
            | Record::Release { .. }
            | Record::RemoveAll { .. }
            | Record::Evict(_)
            | Record::ReplicationEnd { .. }
            | Record::ReplicationRevoke { .. }
            | Record::ClientJoined { .. }
            | Record::DrainSegment { .. }
            | Record::UnmountSegment { .. }
            | Record::ClientExpired { .. }
            | Record::Resign { .. }
            | Record::Digest { .. } => 0,
            Record::Remove { objects, source: _ } => objects.len() * 2 * NUMBER,
            Record::ClearReplicas { object: _, segment_name } => text(segment_name),
            Record::Sweep { objects } => objects.len() * NUMBER,
            Record::ReplicationStart { places, .. } => places.len() * 2 * NUMBER + 2 * UUID,
            Record::MountSegment { ref segment, .. } => {
                let texts = [segment.name, segment.te_endpoint, segment.protocol, segment.host_id];
                texts.into_iter().map(text).sum::<usize>() + 2 * UUID
            }
            Record::TaskCreated { key, tenant, source, targets, .. } => {
                let names = targets.iter().map(|target| text(target)).sum::<usize>();
                text(key) + text(tenant) + text(source) + names + 2 * UUID
            }
            Record::TaskAssigned { ids } => ids.len() * UUID,
            Record::TaskDone { message, .. } => text(message) + UUID,
            Record::MetadataPut { key, value } => text(key) + text(value),
            Record::MetadataDelete { key } => text(key),
            Record::RenewLeases { leases } => leases.len() * 2 * NUMBER,
            Record::NewTerm { primary, .. } => text(primary),
        };
        FRAME + own
    }
}
