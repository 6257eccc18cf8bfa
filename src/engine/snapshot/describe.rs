//! Describes items for people: what names each, and its fields as text of bounded length.

use std::fmt::{Display, Write};

use xxhash_rust::xxh3::xxh3_64;

use crate::engine::client::Client;
use crate::engine::key::KeyHash;
use crate::engine::object::{Object, Replica, ReplicaStatus};
use crate::engine::record::SoftPin;
use crate::engine::reserved::{Discarded, Processing};
use crate::engine::segment::Segment;
use crate::engine::task::Task;
use crate::engine::term_state::TermState;
use crate::engine::types::{LogTime, ObjectId, SequenceId, Uuid};

/// Most bytes of a key or a name that are shown.
const MAX_TEXT: usize = 512;

/// Most replicas of an object, and targets of a task, that are shown.
const MAX_LISTED: usize = 8;

/// An item for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Description {
    /// What names it, such as the key of an object.
    pub name: String,
    pub fields: Vec<(&'static str, String)>,
}

impl Description {
    fn new(name: String) -> Self {
        Self { name, fields: Vec::new() }
    }

    fn with(mut self, field: &'static str, value: impl Display) -> Self {
        self.fields.push((field, value.to_string()));
        self
    }

    fn with_some(self, field: &'static str, value: Option<impl Display>) -> Self {
        match value {
            Some(value) => self.with(field, value),
            None => self,
        }
    }
}

/// Returns the position of an item that these bytes name.
pub(super) fn position(name: &[u8]) -> u64 {
    xxh3_64(name)
}

/// Returns the position of a client or task.
pub(super) fn position_of_id(id: Uuid) -> u64 {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&id.first.to_le_bytes());
    bytes[8..].copy_from_slice(&id.second.to_le_bytes());
    position(&bytes)
}

/// Returns the position of an object. It begins with the object's shard, so that one shard has a whole range.
pub(super) fn position_of_key(key: KeyHash) -> u64 {
    key.0.rotate_left(16)
}

/// Returns the beginning of a text; bytes that are no text are escaped.
fn text(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(MAX_TEXT)];
    let mut text = match std::str::from_utf8(bytes) {
        Ok(text) if text.len() <= MAX_TEXT && !text.contains(char::is_control) => text.to_owned(),
        _ => shown.escape_ascii().to_string(),
    };
    if shown.len() < bytes.len() {
        let _ = write!(text, "... ({} bytes)", bytes.len());
    }
    text
}

/// Returns the length and a hash of bytes that may be long, or are not for every eye.
fn sum_of(bytes: &[u8]) -> String {
    format!("{} bytes, hash {:016x}", bytes.len(), xxh3_64(bytes))
}

fn time(time: LogTime) -> String {
    format!("{} ms", time.0)
}

fn joined(all: impl Iterator<Item = String>) -> String {
    let all: Vec<String> = all.collect();
    let mut text = all[..all.len().min(MAX_LISTED)].join("; ");
    if all.len() > MAX_LISTED {
        let _ = write!(text, "; {} more", all.len() - MAX_LISTED);
    }
    text
}

fn replicas<'r>(replicas: impl Iterator<Item = &'r Replica>) -> String {
    joined(replicas.map(|replica| {
        let (segment, offset) = (replica.segment.number.0, replica.offset);
        let status = match replica.status {
            ReplicaStatus::Processing => "being written",
            ReplicaStatus::Complete => "complete",
        };
        format!("segment {segment} at {offset}, id {}, {status}", replica.id().0)
    }))
}

pub(super) fn object(object: &Object, writer: Uuid) -> Description {
    let described = Description::new(text(&object.key))
        .with("object_id", object.id.0)
        .with("last_record", object.last_record.0)
        .with("size", object.size)
        .with("replicas", replicas(object.replicas()))
        .with("replicated_lease", time(object.replicated_lease))
        .with("client", writer)
        .with("data_type", object.data_type)
        .with("hard_pinned", object.hard_pinned);
    let Some(extra) = &object.extra else { return described };
    let soft_pin = Some(extra.soft_pin_until).filter(|until| *until != LogTime(0));
    described
        .with_some("soft_pin_until", soft_pin.map(time))
        .with_some("checksum", extra.checksum.map(|checksum| format!("{checksum:016x}")))
        .with_some("group", extra.group.as_ref().map(|group| text(&group.id)))
        .with_some(
            "copy_or_move",
            extra.copy_move.as_ref().map(|task| {
                let kind = format!("{:?}", task.kind).to_lowercase();
                let targets = joined(task.targets.iter().map(|target| target.0.to_string()));
                let (client, started, dynamic) = (task.client, time(task.started), &task.dynamic);
                format!(
                    "{kind} of {} to {targets} by {client} since {started}, dynamic lease {} of epoch {}",
                    task.source.0, dynamic.id, dynamic.epoch
                )
            }),
        )
}

pub(super) fn segment(segment: &Segment, drain_until: Option<LogTime>) -> Description {
    Description::new(format!("{} (mount {})", text(&segment.name), segment.number.0))
        .with("segment_id", segment.id)
        .with("client", segment.client)
        .with("base", format!("{:#x}", segment.base))
        .with("size", segment.size)
        .with("endpoint", text(&segment.te_endpoint))
        .with("protocol", text(&segment.protocol))
        .with("host", text(&segment.host_id))
        .with_some("drained_until", drain_until.map(time))
}

pub(super) fn client(id: Uuid, client: &Client) -> Description {
    Description::new(id.to_string()).with("joined", client.joined).with("inherited", client.inherited)
}

pub(super) fn write(id: ObjectId, write: &Processing) -> Description {
    let soft_pin = match write.soft_pin {
        SoftPin::Preserve => "as it is".to_owned(),
        SoftPin::Enable(ttl) => format!("for {ttl} ms"),
        SoftPin::Disable => "off".to_owned(),
    };
    Description::new(format!("of object {}", id.0))
        .with("started", time(write.started))
        .with("soft_pin", soft_pin)
}

pub(super) fn discarded(record: SequenceId, bytes: &Discarded) -> Description {
    Description::new(format!("by record {}", record.0))
        .with("release_at", time(bytes.release_at))
        .with("size", bytes.size)
        .with("replicas", replicas(bytes.replicas.iter()))
}

pub(super) fn task(task: &Task) -> Description {
    Description::new(task.id.to_string())
        .with("kind", format!("{:?}", task.kind).to_lowercase())
        .with("status", format!("{:?}", task.status).to_lowercase())
        .with("key", text(&task.key))
        .with("tenant", text(&task.tenant))
        .with("source", text(&task.source))
        .with("targets", joined(task.targets.iter().map(|target| text(target))))
        .with("client", task.client)
        .with("created", time(task.created))
        .with("updated", time(task.updated))
        .with("last_record", task.last_record.0)
        .with("message", sum_of(&task.message))
}

pub(super) fn metadata(key: &[u8], value: &[u8]) -> Description {
    Description::new(text(key)).with("value", sum_of(value))
}

pub(super) fn term_state(state: &TermState) -> Description {
    let TermState {
        term,
        began,
        since,
        hold_until,
        lease_ttl,
        leader_ttl,
        boot_id,
        first_segment,
        kept_tasks,
        resigned,
    } = state;
    Description::new("current term".to_owned())
        .with("term", term.0)
        .with("began", began.0)
        .with("since", time(*since))
        .with("hold_until", time(*hold_until))
        .with("lease_ttl", format!("{lease_ttl} ms"))
        .with("leader_ttl", format!("{leader_ttl} ms"))
        .with("boot_id", format!("{boot_id:016x}"))
        .with("first_segment", first_segment.0)
        .with("kept_tasks", kept_tasks)
        .with("resigned", resigned.0)
}

pub(super) fn next_segment(number: u32) -> Description {
    Description::new("number of the next mount".to_owned()).with("number", number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_text_of_bounded_length() {
        assert_eq!(text("key-ä".as_bytes()), "key-ä");
        assert_eq!(text(b"a\xff\n"), "a\\xff\\n");
        let long = text(&[b'x'; 5_000]);
        assert!(long.ends_with("xx... (5000 bytes)") && long.len() < MAX_TEXT + 20, "{long}");
        let many = joined((0..20).map(|number| number.to_string()));
        assert_eq!(many, "0; 1; 2; 3; 4; 5; 6; 7; 12 more");
        assert_eq!(joined(std::iter::empty()), "");
    }
}
