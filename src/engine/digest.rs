//! The digest: a sum of hashes of all replicated items, kept up to date by `apply`.
//!
//! Two replicas that applied the same records have the same digest. The hash of an item covers all that records say of
//! it and nothing local: no live lease, no slot.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use super::client::Client;
use super::object::Object;
use super::record::SoftPin;
use super::task::Task;
use super::term_state::TermState;
use super::types::{LogTime, ObjectId, SequenceId, Term, Uuid};
use crate::engine::key::KeyHash;
use crate::engine::reserved::{Discarded, Processing};

/// Kind of a hashed item, so that items of two kinds with the same numbers have different hashes.
#[derive(Clone, Copy)]
#[repr(u64)]
enum Kind {
    Object = 1,
    Segment,
    Client,
    Discarded,
    Processing,
    Metadata,
    Task,
    TermState,
    NextSegment,
}

/// Hashes two words at a time: multiplies them to 128 bits and folds the product, which spreads every input bit over
/// the word. The sum so far goes into one factor, so that order matters; the number of words goes into the start value,
/// so that a missing last word differs from a zero.
fn hash(kind: Kind, words: &[u64]) -> u64 {
    let start = mix(kind as u64 ^ 0x9e37_79b9_7f4a_7c15, words.len() as u64 ^ 0xa076_1d64_78bd_642f);
    words.chunks(2).fold(start, |sum, pair| {
        let second = pair.get(1).copied().unwrap_or(0);
        mix(pair[0] ^ sum, second.rotate_left(32) ^ 0xe703_7ed1_a0b4_28db).wrapping_add(sum)
    })
}

fn mix(one: u64, other: u64) -> u64 {
    let wide = u128::from(one) * u128::from(other);
    (wide >> 64) as u64 ^ wide as u64
}

/// Returns the hash of an object whose key has this hash and whose writer is `client`.
#[must_use]
pub fn object(object: &Object, key: KeyHash, client: Uuid) -> u64 {
    let mut sum = hash(
        Kind::Object,
        &[
            key.0,
            object.id.0,
            object.last_record.0,
            object.size,
            object.replicated_lease.0,
            client.first,
            client.second,
            u64::from(object.data_type) << 1 | u64::from(object.hard_pinned),
        ],
    );
    for replica in object.replicas() {
        let tag = u64::from(replica.segment.number.0) << 8 | replica.status as u64;
        sum = hash(Kind::Object, &[sum, tag, replica.id().0, replica.offset]);
    }
    if let Some(extra) = &object.extra {
        let group = extra.group.as_ref().map_or(0, |group| xxh3_64(&group.id));
        let checksum = extra.checksum.map_or(0, |sum| hash(Kind::Object, &[sum]));
        sum = hash(Kind::Object, &[sum, group, checksum, extra.soft_pin_until.0]);
        if let Some(task) = &extra.copy_move {
            let targets = task.targets.iter().fold(1, |sum, id| hash(Kind::Object, &[sum, id.0]));
            let dynamic = [task.dynamic.id.first, task.dynamic.id.second, task.dynamic.epoch];
            let words =
                [task.kind as u64, task.source.0, targets, task.started.0, hash(Kind::Object, &dynamic)];
            sum =
                hash(Kind::Object, &[sum, task.client.first, task.client.second, hash(Kind::Object, &words)]);
        }
    }
    sum
}

/// Returns the hash of a mounted segment.
#[must_use]
pub fn segment(segment: &super::segment::Segment, drain_until: Option<LogTime>) -> u64 {
    let words = [
        u64::from(segment.number.0),
        segment.id.first,
        segment.id.second,
        segment.client.first,
        segment.client.second,
        segment.base,
        segment.size,
        xxh3_64(&segment.name),
        xxh3_64(&segment.te_endpoint),
        xxh3_64(&segment.protocol),
        xxh3_64_with_seed(&segment.host_id, 1),
        drain_until.map_or(0, |until| until.0.saturating_add(1)),
    ];
    hash(Kind::Segment, &words)
}

/// Returns the hash of a client that has joined or is inherited. One that only owns segments adds nothing to the
/// digest.
#[must_use]
pub fn client(id: Uuid, client: &Client) -> u64 {
    match (client.joined, client.inherited) {
        (true, _) => hash(Kind::Client, &[id.first, id.second]),
        (false, true) => hash(Kind::Client, &[id.first, id.second, 1]),
        (false, false) => 0,
    }
}

/// Returns the hash of the current term.
#[must_use]
pub fn term_state(term_state: &TermState) -> u64 {
    if term_state.term == Term(0) {
        return 0;
    }
    let words = [
        term_state.term.0,
        term_state.began.0,
        term_state.since.0,
        term_state.hold_until.0,
        term_state.lease_ttl,
        term_state.leader_ttl,
        term_state.boot_id,
        u64::from(term_state.first_segment.0),
        u64::from(term_state.kept_tasks),
        term_state.resigned.0,
    ];
    hash(Kind::TermState, &words)
}

/// Returns the hash of discarded bytes that are still reserved.
#[must_use]
pub fn discarded(reservation: SequenceId, bytes: &Discarded) -> u64 {
    let start = hash(Kind::Discarded, &[reservation.0, bytes.release_at.0, bytes.size]);
    bytes.replicas.iter().fold(start, |sum, replica| {
        hash(Kind::Discarded, &[sum, u64::from(replica.segment.number.0), replica.offset])
    })
}

/// Returns the hash of a write under way.
#[must_use]
pub fn processing(object: ObjectId, write: &Processing) -> u64 {
    let soft_pin = match write.soft_pin {
        SoftPin::Preserve => [0, 0],
        SoftPin::Enable(ttl) => [1, ttl],
        SoftPin::Disable => [2, 0],
    };
    hash(Kind::Processing, &[object.0, write.started.0, soft_pin[0], soft_pin[1]])
}

/// Returns the hash of an entry of the metadata server.
#[must_use]
pub fn metadata(key: &[u8], value: &[u8]) -> u64 {
    hash(Kind::Metadata, &[xxh3_64(key), xxh3_64_with_seed(value, 1)])
}

/// Returns the hash of a task, also of one that has ended: clients may still query it.
#[must_use]
pub fn task(task: &Task) -> u64 {
    let Task {
        id,
        kind,
        key,
        tenant,
        source,
        targets,
        client,
        status,
        created,
        updated,
        message,
        last_record,
    } = task;
    let words = [
        id.first,
        id.second,
        client.first,
        client.second,
        *kind as u64,
        *status as u64,
        created.0,
        updated.0,
        last_record.0,
        xxh3_64(key),
        xxh3_64_with_seed(tenant, 1),
        xxh3_64_with_seed(source, 2),
        xxh3_64_with_seed(message, 3),
    ];
    targets.iter().fold(hash(Kind::Task, &words), |sum, target| hash(Kind::Task, &[sum, xxh3_64(target)]))
}

/// Returns the hash of the number that the next mount gets.
#[must_use]
pub fn next_segment(number: u32) -> u64 {
    hash(Kind::NextSegment, &[number.into()])
}
