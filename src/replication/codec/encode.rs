//! Encodes records as bytes. The `match` is exhaustive and names every field, so that a new record or field does not
//! compile until it is encoded.

use super::{Context, Kind, start};
use crate::engine::format::Format;
use crate::engine::record::{
    CopyOrMove, DynamicLease, EvictRule, ObjectRef, Place, Record, RemoveSource, SoftPin, Start,
};
use crate::engine::segment::SegmentSpec;
use crate::engine::types::{LogTime, ObjectId, SequenceId, Uuid};
use crate::engine::varint::{put_bytes, put_difference, put_number, put_uuid, put_word};

/// Appends a record to `out` in this format. `out` has the records that `context` was updated by. Allocates only to
/// grow `out`.
pub fn encode(format: Format, out: &mut Vec<u8>, context: &mut Context, at: LogTime, record: &Record<'_>) {
    let mut to = Encoder { out, context };
    match *record {
        Record::PutStart(ref reservation) => {
            to.head(Kind::PutStart, at);
            to.start(reservation);
        }
        Record::UpsertStart { start: ref reservation, replaces, release_at } => {
            to.head(Kind::UpsertStart, at);
            to.start(reservation);
            to.time(release_at);
            to.flag(replaces.is_some());
            replaces.into_iter().for_each(|object| to.object(object));
        }
        Record::End { object, checksum } => {
            to.head(Kind::End, at);
            to.object(object);
            to.flag(checksum.is_some());
            checksum.into_iter().for_each(|sum| put_word(to.out, sum));
        }
        Record::Revoke { object } => {
            to.head(Kind::Revoke, at);
            to.object(object);
        }
        Record::Discard { object, release_at } => {
            to.head(Kind::Discard, at);
            to.object(object);
            to.time(release_at);
        }
        Record::Release { reservation } => {
            to.head(Kind::Release, at);
            to.id(ObjectId(reservation.0));
        }
        Record::Remove { objects, source } => {
            to.head(Kind::Remove, at);
            to.out.push(remove_source(source));
            put_number(to.out, objects.len() as u64);
            objects.iter().for_each(|object| to.object(*object));
        }
        Record::ClearReplicas { object, segment_name } => {
            to.head(Kind::ClearReplicas, at);
            to.object(object);
            put_bytes(to.out, segment_name);
        }
        Record::Sweep { objects } => {
            to.head(Kind::Sweep, at);
            put_number(to.out, objects.len() as u64);
            objects.iter().for_each(|id| to.id(*id));
        }
        Record::RemoveAll { from, up_to, force, reserved_since } => {
            to.head(Kind::RemoveAll, at);
            to.id(from);
            to.id(up_to);
            to.flag(force);
            match format {
                Format::One => debug_assert_eq!(reserved_since, SequenceId(0), "format 1 cannot say this"),
                Format::Two => put_number(to.out, reserved_since.0),
            }
        }
        Record::Evict(EvictRule { from, up_to: (bucket, id), soft_pinned, reserved_since }) => {
            to.head(Kind::Evict, at);
            put_number(to.out, bucket.0);
            to.id(id);
            to.flag(soft_pinned);
            match format {
                Format::One => debug_assert_eq!(reserved_since, SequenceId(0), "format 1 cannot say this"),
                Format::Two => [reserved_since.0, from.0.0, from.1.0]
                    .into_iter()
                    .for_each(|number| put_number(to.out, number)),
            }
        }
        Record::ReplicationStart { object, kind, client, source, places, dynamic } => {
            to.head(Kind::ReplicationStart, at);
            to.object(object);
            to.out.push(replication_kind(kind));
            put_uuid(to.out, client);
            put_number(to.out, source.0);
            to.places(places);
            to.dynamic(dynamic);
        }
        Record::ReplicationEnd { object, release_at } => {
            to.head(Kind::ReplicationEnd, at);
            to.object(object);
            to.time(release_at);
        }
        Record::ReplicationRevoke { object } => {
            to.head(Kind::ReplicationRevoke, at);
            to.object(object);
        }
        Record::MountSegment { ref segment, number, client } => {
            to.head(Kind::MountSegment, at);
            put_number(to.out, number.0.into());
            put_uuid(to.out, client);
            to.segment(segment);
        }
        Record::ClientJoined { client } => {
            to.head(Kind::ClientJoined, at);
            put_uuid(to.out, client);
        }
        Record::DrainSegment { number, until } => {
            to.head(Kind::DrainSegment, at);
            put_number(to.out, number.0.into());
            to.time(until);
        }
        Record::UnmountSegment { number } => {
            to.head(Kind::UnmountSegment, at);
            put_number(to.out, number.0.into());
        }
        Record::ClientExpired { client } => {
            to.head(Kind::ClientExpired, at);
            put_uuid(to.out, client);
        }
        Record::TaskCreated { id, kind, key, tenant, source, targets, client } => {
            to.head(Kind::TaskCreated, at);
            put_uuid(to.out, id);
            to.out.push(replication_kind(kind));
            put_uuid(to.out, client);
            [key, tenant, source].into_iter().for_each(|text| put_bytes(to.out, text));
            put_number(to.out, targets.len() as u64);
            targets.iter().for_each(|target| put_bytes(to.out, target));
        }
        Record::TaskAssigned { ids } => {
            to.head(Kind::TaskAssigned, at);
            put_number(to.out, ids.len() as u64);
            ids.iter().for_each(|id| put_uuid(to.out, *id));
        }
        Record::TaskDone { id, success, message } => {
            to.head(Kind::TaskDone, at);
            put_uuid(to.out, id);
            to.flag(success);
            put_bytes(to.out, message);
        }
        Record::MetadataPut { key, value } => {
            to.head(Kind::MetadataPut, at);
            put_bytes(to.out, key);
            put_bytes(to.out, value);
        }
        Record::MetadataDelete { key } => {
            to.head(Kind::MetadataDelete, at);
            put_bytes(to.out, key);
        }
        Record::RenewLeases { leases } => {
            to.head(Kind::RenewLeases, at);
            put_number(to.out, leases.len() as u64);
            let mut before = at;
            for (id, until) in leases {
                to.id(*id);
                put_difference(to.out, before.0, until.0);
                before = *until;
            }
        }
        Record::NewTerm { term, primary, boot_id, hold_until, lease_ttl, leader_ttl, kept_tasks } => {
            to.head(Kind::NewTerm, at);
            put_number(to.out, term.0);
            put_bytes(to.out, primary);
            put_word(to.out, boot_id);
            to.time(hold_until);
            put_number(to.out, lease_ttl);
            put_number(to.out, leader_ttl);
            put_number(to.out, kept_tasks.into());
        }
        Record::Resign { term, hold_until } => {
            to.head(Kind::Resign, at);
            put_number(to.out, term.0);
            put_number(to.out, hold_until.0);
        }
        Record::Digest { digest } => {
            to.head(Kind::Digest, at);
            put_word(to.out, digest.0);
        }
    }
}

fn remove_source(source: RemoveSource) -> u8 {
    match source {
        RemoveSource::Explicit => 0,
        RemoveSource::Regex => 1,
        RemoveSource::ReplicaClear => 2,
        RemoveSource::Unmount => 3,
    }
}

fn replication_kind(kind: CopyOrMove) -> u8 {
    match kind {
        CopyOrMove::Copy => 0,
        CopyOrMove::Move => 1,
    }
}

struct Encoder<'e> {
    out: &'e mut Vec<u8>,
    context: &'e mut Context,
}

impl Encoder<'_> {
    fn head(&mut self, kind: Kind, at: LogTime) {
        self.out.push(kind as u8);
        put_difference(self.out, self.context.time.0, at.0);
        self.context.time = at;
    }

    fn flag(&mut self, flag: bool) {
        self.out.push(flag.into());
    }

    /// Writes a time as its difference from the record's own.
    fn time(&mut self, moment: LogTime) {
        put_difference(self.out, self.context.time.0, moment.0);
    }

    /// Writes an id as its difference from the one written last.
    fn id(&mut self, id: ObjectId) {
        put_difference(self.out, self.context.object.0, id.0);
        self.context.object = id;
    }

    fn object(&mut self, object: ObjectRef) {
        let ObjectRef { id, after } = object;
        self.id(id);
        put_difference(self.out, id.0, after.0);
    }

    fn start(&mut self, reservation: &Start<'_>) {
        let Start { key, client, size, places, hard_pin, soft_pin, group, data_type } = *reservation;
        let same_client = client == self.context.client;
        self.context.client = client;
        let mut flags = 0;
        let mut raise = |flag, when| flags |= if when { flag } else { 0 };
        raise(start::HARD_PIN, hard_pin);
        raise(start::GROUP, group.is_some());
        raise(start::SOFT_PIN_ON, matches!(soft_pin, SoftPin::Enable(_)));
        raise(start::SOFT_PIN_OFF, soft_pin == SoftPin::Disable);
        raise(start::DATA_TYPE, data_type != 0);
        raise(start::SAME_CLIENT, same_client);
        self.out.push(flags);
        put_bytes(self.out, key.bytes);
        if !same_client {
            put_uuid(self.out, client);
        }
        put_number(self.out, size);
        self.places(places);
        if let SoftPin::Enable(ttl_ms) = soft_pin {
            put_number(self.out, ttl_ms);
        }
        if let Some(group) = group {
            put_bytes(self.out, group);
        }
        if data_type != 0 {
            self.out.push(data_type);
        }
    }

    fn places(&mut self, places: &[Place]) {
        put_number(self.out, places.len() as u64);
        for Place { segment, offset } in places {
            put_number(self.out, segment.0.into());
            put_number(self.out, *offset);
        }
    }

    /// Writes the lease of a dynamic copy; a plain copy has none, and takes one zero byte.
    fn dynamic(&mut self, dynamic: DynamicLease) {
        let DynamicLease { id, epoch } = dynamic;
        let named = dynamic != DynamicLease::default();
        self.flag(named);
        if named {
            put_uuid(self.out, id);
            put_number(self.out, epoch);
        }
    }

    fn segment(&mut self, segment: &SegmentSpec<'_>) {
        let SegmentSpec { id, name, base, size, te_endpoint, protocol, host_id } = *segment;
        let id: Uuid = id;
        put_uuid(self.out, id);
        put_bytes(self.out, name);
        put_number(self.out, base);
        put_number(self.out, size);
        [te_endpoint, protocol, host_id].into_iter().for_each(|text| put_bytes(self.out, text));
    }
}
