//! Encodes the items of a state. Types are destructured without `..`, so that a new field does not compile until its
//! author has decided whether snapshots contain it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::{Tag, object_flags as flags};
use crate::engine::client::Client;
use crate::engine::object::{Extra, Object, Replica, ReplicaFields, Replicated};
use crate::engine::record::{DynamicLease, SoftPin};
use crate::engine::reserved::{Discarded, Processing};
use crate::engine::segment::{Segment, SegmentFields, SegmentSpec};
use crate::engine::task::{CopyMove, Task};
use crate::engine::types::{LogTime, ObjectId, ReplicaId, SegmentNumber, SequenceId, Uuid};
use crate::engine::varint::{put_bytes, put_difference, put_number, put_uuid, put_word};

/// Parts of the state at the moment of the snapshot that objects are encoded relative to.
#[derive(Debug)]
pub(super) struct Base {
    pub log_time: LogTime,
    /// Position of each writer among those in the snapshot, by its number at that moment.
    pub writers: Box<[u32]>,
    /// Segments that were mounted at that moment. They are at the beginning of the snapshot.
    pub mounted: BTreeSet<SegmentNumber>,
}

/// Encodes objects and discarded bytes, each behind the unmounted segments that it is the first to name.
#[derive(Debug)]
pub(super) struct Encoder {
    base: Arc<Base>,
    /// The unmounted segments that were encoded.
    gone: HashSet<SegmentNumber>,
}

impl Encoder {
    pub fn new(base: Arc<Base>) -> Self {
        Self { base, gone: HashSet::new() }
    }

    /// Encodes the unmounted segments of these replicas. A segment that is unmounted now may have been mounted at the
    /// moment of the snapshot; one that was unmounted then has not changed since.
    fn gone_segments<'r>(&mut self, out: &mut Vec<u8>, replicas: impl Iterator<Item = &'r Replica>) {
        for replica in replicas.filter(|replica| !replica.segment.is_alive()) {
            let number = replica.segment.number;
            let mounted = self.base.mounted.contains(&number) && !planted!(SnapshotSegmentAsNow);
            if !mounted && self.gone.insert(number) {
                segment(out, &replica.segment, Mount::Gone);
            }
        }
    }

    pub fn object(&mut self, out: &mut Vec<u8>, object: &Object) {
        self.gone_segments(out, object.replicas());
        let Replicated {
            key,
            id,
            last_record,
            size,
            replicated_lease,
            first,
            client,
            data_type,
            hard_pinned,
            extra,
        } = object.replicated();
        let at = out.len();
        out.extend([Tag::Object as u8, if hard_pinned { flags::HARD_PIN } else { 0 }, data_type]);
        put_bytes(out, key);
        put_number(out, id.0);
        put_difference(out, id.0, last_record.0);
        put_number(out, size);
        put_difference(out, self.base.log_time.0, replicated_lease.0);
        // Every object has a writer that was counted, so there is a position; reading refuses the other number.
        let position = self.base.writers.get(client.0 as usize).copied().unwrap_or(u32::MAX);
        put_number(out, position.into());
        let more = extra.map_or(&[][..], |extra| &extra.more);
        replicas(out, id, || std::iter::once(first).chain(more));
        let Some(Extra { more: _, checksum, soft_pin_until, group, copy_move }) = extra else { return };
        let mut flag = flags::EXTRA;
        if let Some(sum) = checksum {
            flag |= flags::CHECKSUM;
            put_word(out, *sum);
        }
        if *soft_pin_until != LogTime(0) {
            flag |= flags::SOFT_PIN;
            put_number(out, soft_pin_until.0);
        }
        if let Some(group) = group {
            flag |= flags::GROUP;
            put_bytes(out, &group.id);
        }
        if let Some(task) = copy_move {
            flag |= flags::REPLICATION;
            self::copy_move(out, task);
        }
        if let Some(flags) = out.get_mut(at + 1) {
            *flags |= flag;
        }
    }

    pub fn discarded(&mut self, out: &mut Vec<u8>, record: SequenceId, bytes: &Discarded) {
        self.gone_segments(out, bytes.replicas.iter());
        let Discarded { release_at, size, replicas } = bytes;
        out.push(Tag::Discarded as u8);
        put_number(out, record.0);
        put_number(out, release_at.0);
        put_number(out, *size);
        self::replicas(out, ObjectId(record.0), || replicas.iter());
    }
}

/// Encodes replicas. Their ids are differences from the object's, of which they are nearly always made.
fn replicas<'r, I: Iterator<Item = &'r Replica>>(
    out: &mut Vec<u8>,
    object: ObjectId,
    replicas: impl Fn() -> I,
) {
    put_number(out, replicas().count() as u64);
    for replica in replicas() {
        let ReplicaFields { segment, offset, id, status } = replica.fields();
        put_number(out, segment.number.0.into());
        put_number(out, offset);
        put_difference(out, ReplicaId::new(SequenceId(object.0), 0).0, id.0);
        out.push(status as u8);
    }
}

fn copy_move(out: &mut Vec<u8>, copy_move: &CopyMove) {
    let CopyMove { kind, client, source, targets, started, dynamic } = copy_move;
    let DynamicLease { id, epoch } = *dynamic;
    out.push(*kind as u8);
    put_uuid(out, *client);
    put_number(out, source.0);
    put_number(out, targets.len() as u64);
    targets.iter().for_each(|target| put_number(out, target.0));
    put_number(out, started.0);
    put_uuid(out, id);
    put_number(out, epoch);
}

pub(super) fn processing(out: &mut Vec<u8>, id: ObjectId, write: &Processing) {
    let Processing { started, soft_pin } = *write;
    out.push(Tag::Processing as u8);
    put_number(out, id.0);
    put_number(out, started.0);
    let (kind, ttl_ms) = match soft_pin {
        SoftPin::Preserve => (0, 0),
        SoftPin::Enable(ttl_ms) => (1, ttl_ms),
        SoftPin::Disable => (2, 0),
    };
    out.push(kind);
    put_number(out, ttl_ms);
}

/// Whether a segment is mounted, and when it is to be unmounted if it is being drained.
pub(super) enum Mount {
    Mounted { drain_until: Option<LogTime> },
    Gone,
}

pub(super) fn segment(out: &mut Vec<u8>, segment: &Segment, mount: Mount) {
    let SegmentFields { spec, number, client, last_record } = segment.fields();
    let SegmentSpec { id, name, base, size, te_endpoint, protocol, host_id } = spec;
    out.push(Tag::Segment as u8);
    put_number(out, number.0.into());
    put_uuid(out, id);
    put_uuid(out, client);
    put_number(out, base);
    put_number(out, size);
    [name, te_endpoint, protocol, host_id].into_iter().for_each(|text| put_bytes(out, text));
    put_number(out, last_record.0);
    let (mounted, drain_until) = match mount {
        Mount::Mounted { drain_until } => (true, drain_until),
        Mount::Gone => (false, None),
    };
    out.extend([u8::from(mounted), u8::from(drain_until.is_some())]);
    drain_until.into_iter().for_each(|until| put_number(out, until.0));
}

pub(super) fn client(out: &mut Vec<u8>, id: Uuid, client: &Client) {
    // Every segment names its client, so the list need not be written.
    let Client { joined, inherited, segments: _, last_record } = client;
    out.push(Tag::Client as u8);
    put_uuid(out, id);
    out.extend([u8::from(*joined), u8::from(*inherited)]);
    put_number(out, last_record.0);
}

pub(super) fn writer(out: &mut Vec<u8>, id: Uuid) {
    out.push(Tag::Writer as u8);
    put_uuid(out, id);
}

pub(super) fn shard(out: &mut Vec<u8>, last_removal: SequenceId) {
    out.push(Tag::Shard as u8);
    put_number(out, last_removal.0);
}

pub(super) fn metadata(out: &mut Vec<u8>, key: &[u8], value: &[u8], record: SequenceId) {
    out.push(Tag::Metadata as u8);
    put_bytes(out, key);
    put_bytes(out, value);
    put_number(out, record.0);
}

pub(super) fn end(out: &mut Vec<u8>, objects: u64) {
    out.push(Tag::End as u8);
    put_number(out, objects);
}

pub(super) fn task(out: &mut Vec<u8>, task: &Task) {
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
    out.push(Tag::Task as u8);
    put_uuid(out, *id);
    out.push(*kind as u8);
    [key, tenant, source].into_iter().for_each(|text| put_bytes(out, text));
    put_number(out, targets.len() as u64);
    targets.iter().for_each(|target| put_bytes(out, target));
    put_uuid(out, *client);
    out.push(*status as u8);
    put_number(out, created.0);
    put_number(out, updated.0);
    put_bytes(out, message);
    put_number(out, last_record.0);
}
