//! Records as JSON for people. The names are those of the reference's log entries, as far as it has similar ones.

use serde::Serialize;
use serde_json::{Value, json};
use xxhash_rust::xxh3::xxh3_64;

use crate::cluster::log_end::Checksum;
use crate::engine::record::{
    CopyOrMove, EvictRule, LeaseBucket, ObjectRef, Place, Record, RemoveSource, SoftPin, Start,
};
use crate::engine::types::{LogTime, ObjectId, SequenceId};

/// One record, as `moonkeeper oplog dump` prints it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordJson {
    pub sequence_id: u64,
    /// Its log time in milliseconds.
    pub timestamp: u64,
    /// Kind of the record.
    pub op_type: &'static str,
    /// The key that the record is about, if the record names one or the reader knows it.
    pub key: Option<Value>,
    /// All other fields of the record.
    pub payload: Value,
    /// The checksum of the batch that carries it.
    pub checksum: String,
    /// The hash of the key.
    pub prefix_hash: Option<String>,
    /// The previous record about the same object; zero for a new object, `None` if the record is about no object or
    /// several.
    pub key_sequence_id: Option<u64>,
}

impl RecordJson {
    /// Describes a record of a batch.
    #[must_use]
    pub fn new(batch: Checksum, id: SequenceId, at: LogTime, record: &Record<'_>) -> Self {
        let (op_type, payload) = describe(record);
        let mut json = Self {
            sequence_id: id.0,
            timestamp: at.0,
            op_type,
            key: None,
            payload,
            checksum: batch.to_string(),
            prefix_hash: None,
            key_sequence_id: key_sequence_id(record),
        };
        if let Some(key) = key(record) {
            json.name(key);
        }
        json
    }

    /// Sets the key that the record is about.
    pub fn name(&mut self, key: &[u8]) {
        self.key = Some(text(key));
        self.prefix_hash = Some(format!("{:016x}", xxh3_64(key)));
    }
}

/// Returns the key that a record names.
#[must_use]
pub fn key<'a>(record: &Record<'a>) -> Option<&'a [u8]> {
    match *record {
        Record::PutStart(Start { key, .. }) | Record::UpsertStart { start: Start { key, .. }, .. } => {
            Some(key.bytes)
        }
        Record::TaskCreated { key, .. } => Some(key),
        _ => None,
    }
}

/// Returns the object that a record refers to by its id, if it is exactly one.
#[must_use]
pub fn object(record: &Record<'_>) -> Option<ObjectRef> {
    match *record {
        Record::UpsertStart { replaces, .. } => replaces,
        Record::End { object, .. }
        | Record::Revoke { object }
        | Record::Discard { object, .. }
        | Record::ClearReplicas { object, .. }
        | Record::ReplicationStart { object, .. }
        | Record::ReplicationEnd { object, .. }
        | Record::ReplicationRevoke { object } => Some(object),
        _ => None,
    }
}

fn key_sequence_id(record: &Record<'_>) -> Option<u64> {
    let new = matches!(record, Record::PutStart(_) | Record::UpsertStart { .. });
    object(record).map(|object| object.after.0).or(new.then_some(0))
}

/// Returns the bytes as text if they are UTF-8, else in hexadecimal.
fn text(bytes: &[u8]) -> Value {
    match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => {
            json!({ "hex": bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>() })
        }
    }
}

/// Formats a number in hexadecimal: JSON readers that use floating point would round ids and hashes of 64 bits.
fn hex(word: u64) -> String {
    format!("{word:016x}")
}

fn describe(record: &Record<'_>) -> (&'static str, Value) {
    match *record {
        Record::PutStart(ref start) => ("PutStart", reservation(start)),
        Record::UpsertStart { ref start, replaces, release_at } => {
            let mut payload = reservation(start);
            payload["replaces"] = json!(replaces.map(|object| object.id.0));
            payload["release_at"] = release_at.0.into();
            ("UpsertStart", payload)
        }
        Record::End { object, checksum } => {
            ("End", json!({ "object": object.id.0, "checksum": checksum.map(hex) }))
        }
        Record::Revoke { object } => ("Revoke", json!({ "object": object.id.0 })),
        Record::Discard { object, release_at } => {
            ("Discard", json!({ "object": object.id.0, "release_at": release_at.0 }))
        }
        Record::Release { reservation } => ("Release", json!({ "reservation": reservation.0 })),
        Record::Remove { objects, source } => {
            let each =
                |object: &ObjectRef| json!({ "object": object.id.0, "key_sequence_id": object.after.0 });
            let objects: Vec<_> = objects.iter().map(each).collect();
            ("Remove", json!({ "source": remove_source(source), "objects": objects }))
        }
        Record::ClearReplicas { object, segment_name } => {
            ("ClearReplicas", json!({ "object": object.id.0, "segment": text(segment_name) }))
        }
        Record::Sweep { objects } => {
            ("Sweep", json!({ "objects": objects.iter().map(|id| id.0).collect::<Vec<_>>() }))
        }
        Record::RemoveAll { from, up_to, force, reserved_since } => {
            let mut payload = json!({ "from": from.0, "up_to": up_to.0, "force": force });
            if reserved_since != SequenceId(0) {
                payload["reserved_since"] = reserved_since.0.into();
            }
            ("RemoveAll", payload)
        }
        Record::Evict(EvictRule { from, up_to, soft_pinned, reserved_since }) => {
            let place = |(bucket, id): (LeaseBucket, ObjectId)| json!({ "lease": bucket.0, "object": id.0 });
            let mut payload = json!({ "up_to": place(up_to), "soft_pinned": soft_pinned });
            if reserved_since != SequenceId(0) {
                payload["from"] = place(from);
                payload["reserved_since"] = reserved_since.0.into();
            }
            ("Evict", payload)
        }
        Record::ReplicationStart { object, kind, client, source, places: to, dynamic } => {
            let dynamic = json!({ "id": dynamic.id.to_string(), "epoch": dynamic.epoch });
            let payload = json!({
                "object": object.id.0, "client": client.to_string(), "source": source.0, "places": places(to),
                "dynamic": dynamic,
            });
            let name = if kind == CopyOrMove::Copy { "CopyStart" } else { "MoveStart" };
            (name, payload)
        }
        Record::ReplicationEnd { object, release_at } => {
            ("ReplicationEnd", json!({ "object": object.id.0, "release_at": release_at.0 }))
        }
        Record::ReplicationRevoke { object } => ("ReplicationRevoke", json!({ "object": object.id.0 })),
        Record::MountSegment { ref segment, number, client } => {
            let payload = json!({
                "segment": number.0, "id": segment.id.to_string(), "client": client.to_string(),
                "name": text(segment.name), "base": segment.base, "size": segment.size,
                "te_endpoint": text(segment.te_endpoint), "protocol": text(segment.protocol),
                "host_id": text(segment.host_id),
            });
            ("MountSegment", payload)
        }
        Record::ClientJoined { client } => ("ClientJoined", json!({ "client": client.to_string() })),
        Record::DrainSegment { number, until } => {
            ("DrainSegment", json!({ "segment": number.0, "until": until.0 }))
        }
        Record::UnmountSegment { number } => ("UnmountSegment", json!({ "segment": number.0 })),
        Record::ClientExpired { client } => ("ClientExpired", json!({ "client": client.to_string() })),
        Record::TaskCreated { id, kind, key: _, tenant, source, targets, client } => {
            let targets: Vec<_> = targets.iter().map(|target| text(target)).collect();
            let kind = if kind == CopyOrMove::Copy { "copy" } else { "move" };
            let payload = json!({
                "task": id.to_string(), "kind": kind, "tenant": text(tenant), "source": text(source),
                "targets": targets, "client": client.to_string(),
            });
            ("TaskCreated", payload)
        }
        Record::TaskAssigned { ids } => {
            ("TaskAssigned", json!({ "tasks": ids.iter().map(ToString::to_string).collect::<Vec<_>>() }))
        }
        Record::TaskDone { id, success, message } => {
            let payload = json!({ "task": id.to_string(), "success": success, "message": text(message) });
            ("TaskDone", payload)
        }
        Record::MetadataPut { key, value } => {
            ("MetadataPut", json!({ "name": text(key), "value": text(value) }))
        }
        Record::MetadataDelete { key } => ("MetadataDelete", json!({ "name": text(key) })),
        Record::RenewLeases { leases } => {
            let leases: Vec<_> =
                leases.iter().map(|(id, until)| json!({ "object": id.0, "until": until.0 })).collect();
            ("RenewLeases", json!({ "leases": leases }))
        }
        Record::NewTerm { term, primary, boot_id, hold_until, lease_ttl, leader_ttl, kept_tasks } => {
            let payload = json!({
                "term": term.0, "primary": text(primary), "boot_id": hex(boot_id), "hold_until": hold_until.0,
                "lease_ttl": lease_ttl, "leader_ttl": leader_ttl, "kept_tasks": kept_tasks,
            });
            ("NewTerm", payload)
        }
        Record::Resign { term, hold_until } => {
            ("Resign", json!({ "term": term.0, "hold_until": hold_until.0 }))
        }
        Record::Digest { digest } => ("Digest", json!({ "digest": hex(digest.0) })),
    }
}

fn reservation(start: &Start<'_>) -> Value {
    let Start { key: _, client, size, places: to, hard_pin, soft_pin, group, data_type } = *start;
    let soft_pin = match soft_pin {
        SoftPin::Preserve => json!("preserve"),
        SoftPin::Enable(ttl_ms) => json!({ "ttl_ms": ttl_ms }),
        SoftPin::Disable => json!("disable"),
    };
    json!({
        "client": client.to_string(), "size": size, "places": places(to), "hard_pin": hard_pin,
        "soft_pin": soft_pin, "group": group.map(text), "data_type": data_type,
    })
}

fn places(places: &[Place]) -> Vec<Value> {
    places.iter().map(|place| json!({ "segment": place.segment.0, "offset": place.offset })).collect()
}

fn remove_source(source: RemoveSource) -> &'static str {
    match source {
        RemoveSource::Explicit => "explicit",
        RemoveSource::Regex => "regex",
        RemoveSource::ReplicaClear => "replica_clear",
        RemoveSource::Unmount => "unmount",
    }
}
