//! Decodes items. Nothing is trusted: whatever the bytes are, this gives an item or an error.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use super::whole::Whole;
use super::{SnapshotError, Tag, object_flags as flags};
use crate::engine::client::Client;
use crate::engine::group::Group;
use crate::engine::object::{Extra, Object, Replica, ReplicaStatus, Replicas};
use crate::engine::record::{CopyOrMove, DynamicLease, SoftPin};
use crate::engine::reserved::{Discarded, Processing};
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::task::{CopyMove, Task, TaskStatus};
use crate::engine::types::{ClientNumber, LogTime, ObjectId, ReplicaId, SegmentNumber, SequenceId, Uuid};
use crate::engine::varint::{Malformed, Reader};

/// An item. Those that only later items refer to are not among them: unmounted segments and writers.
#[derive(Debug)]
pub(super) enum Item<'b> {
    Whole(Whole),
    /// A mounted segment, and when it is to be unmounted if it is being drained.
    Mounted(Arc<Segment>, Option<LogTime>),
    Client(Uuid, Client),
    /// The last removal of the next shard.
    Shard(SequenceId),
    /// An object, with its writer: the number of the writer in the object is not set.
    Object(Object, Uuid),
    Processing(ObjectId, Processing),
    Discarded(SequenceId, Discarded),
    Task(Task),
    Metadata {
        key: &'b [u8],
        value: &'b [u8],
        record: SequenceId,
    },
    /// How many objects there are.
    End(u64),
}

/// What was read before, which items refer to.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    /// The time that leases are relative to, once the first item was read.
    log_time: Option<LogTime>,
    ended: bool,
    segments: HashMap<SegmentNumber, Arc<Segment>>,
    writers: Vec<Uuid>,
}

impl Decoder {
    /// Returns how many segments were read that are not mounted.
    pub fn unmounted(&self) -> usize {
        self.segments.values().filter(|segment| !segment.is_alive()).count()
    }

    /// Decodes the next item of a chunk; `group` returns the group of a name.
    pub fn next<'b>(
        &mut self,
        from: &mut Reader<'b>,
        group: &mut impl FnMut(&[u8]) -> Arc<Group>,
    ) -> Result<Option<Item<'b>>, SnapshotError> {
        while !from.is_empty() {
            let tag = Tag::of(from.byte()?)?;
            if self.ended || self.log_time.is_none() != (tag == Tag::Core) {
                return Err(SnapshotError::Order);
            }
            let item = match tag {
                Tag::Core => {
                    let whole = Whole::decode(from)?;
                    self.log_time = Some(whole.log_time);
                    Item::Whole(whole)
                }
                Tag::Segment => match self.segment(from)? {
                    Some(item) => item,
                    None => continue,
                },
                Tag::Client => {
                    let id = from.uuid()?;
                    let client = Client {
                        joined: from.flag("a joined client")?,
                        inherited: from.flag("an inherited client")?,
                        segments: Default::default(),
                        last_record: SequenceId(from.number()?),
                    };
                    Item::Client(id, client)
                }
                Tag::Shard => Item::Shard(SequenceId(from.number()?)),
                Tag::Writer => {
                    self.writers.push(from.uuid()?);
                    continue;
                }
                Tag::Object => self.object(from, group)?,
                Tag::Processing => processing(from)?,
                Tag::Discarded => {
                    let record = SequenceId(from.number()?);
                    let (release_at, size) = (LogTime(from.number()?), from.number()?);
                    let replicas = self.replicas(from, ObjectId(record.0))?;
                    Item::Discarded(record, Discarded { release_at, size, replicas })
                }
                Tag::Task => Item::Task(task(from)?),
                Tag::Metadata => {
                    let (key, value) = (from.bytes()?, from.bytes()?);
                    Item::Metadata { key, value, record: SequenceId(from.number()?) }
                }
                Tag::End => {
                    self.ended = true;
                    Item::End(from.number()?)
                }
            };
            return Ok(Some(item));
        }
        Ok(None)
    }

    fn segment(&mut self, from: &mut Reader<'_>) -> Result<Option<Item<'static>>, SnapshotError> {
        let number = SegmentNumber(from.narrow()?);
        let (id, client) = (from.uuid()?, from.uuid()?);
        let spec = SegmentSpec {
            id,
            base: from.number()?,
            size: from.number()?,
            name: from.bytes()?,
            te_endpoint: from.bytes()?,
            protocol: from.bytes()?,
            host_id: from.bytes()?,
        };
        let record = SequenceId(from.number()?);
        let segment = Arc::new(Segment::new(&spec, number, client, record));
        let mounted = from.flag("a mount")?;
        let drain_until = if from.flag("a drain")? { Some(LogTime(from.number()?)) } else { None };
        if !mounted {
            segment.bury(record);
        } else if drain_until.is_some() {
            segment.set_status(SegmentStatus::GracefullyUnmounting, record);
        }
        match self.segments.entry(number) {
            Entry::Vacant(vacant) => {
                vacant.insert(Arc::clone(&segment));
                Ok(mounted.then_some(Item::Mounted(segment, drain_until)))
            }
            Entry::Occupied(there) if !mounted && !there.get().is_alive() => Ok(None),
            Entry::Occupied(_) => Err(SnapshotError::Order),
        }
    }

    fn object(
        &mut self,
        from: &mut Reader<'_>,
        group: &mut impl FnMut(&[u8]) -> Arc<Group>,
    ) -> Result<Item<'static>, SnapshotError> {
        let flag = from.byte()?;
        let has = |bit| flag & bit != 0;
        if has(!flags::ALL) {
            return Err(Malformed::Unknown { what: "the flags of an object", value: flag.into() }.into());
        }
        let data_type = from.byte()?;
        let key = from.bytes()?;
        let id = ObjectId(from.number()?);
        let last_record = SequenceId(from.difference(id.0)?);
        let size = from.number()?;
        let log_time = self.log_time.unwrap_or_default();
        let lease = LogTime(from.difference(log_time.0)?);
        let position: usize = from.narrow()?;
        let writer = *self.writers.get(position).ok_or(SnapshotError::Order)?;
        let mut replicas = self.replicas(from, id)?.into_iter();
        let first = replicas.next().ok_or(SnapshotError::NoReplica)?;
        let mut object = Object::new(key, id, size, ClientNumber::default(), first);
        object.last_record = last_record;
        object.replicated_lease = lease;
        object.data_type = data_type;
        object.hard_pinned = has(flags::HARD_PIN);
        replicas.for_each(|replica| object.push_replica(replica));
        if has(flags::EXTRA) {
            let checksum = if has(flags::CHECKSUM) { Some(from.word()?) } else { None };
            let pin = if has(flags::SOFT_PIN) { LogTime(from.number()?) } else { LogTime(0) };
            let group = if has(flags::GROUP) { Some(group(from.bytes()?)) } else { None };
            let copy = if has(flags::REPLICATION) { Some(copy_move(from)?) } else { None };
            let extra = object.extra_mut();
            let more = std::mem::take(&mut extra.more);
            *extra = Extra { more, checksum, soft_pin_until: pin, group, copy_move: copy };
        }
        Ok(Item::Object(object, writer))
    }

    fn replicas(&self, from: &mut Reader<'_>, object: ObjectId) -> Result<Replicas, SnapshotError> {
        let mut all = Replicas::new();
        for _ in 0..from.count(4)? {
            let number = SegmentNumber(from.narrow()?);
            let offset = from.number()?;
            let id = ReplicaId(from.difference(ReplicaId::new(SequenceId(object.0), 0).0)?);
            let segment = self.segments.get(&number).ok_or(SnapshotError::UnknownSegment(number))?;
            let mut replica = Replica::reserved(Arc::clone(segment), offset, id);
            replica.status = match from.byte()? {
                2 => ReplicaStatus::Processing,
                3 => ReplicaStatus::Complete,
                value => {
                    let what = "the status of a replica";
                    return Err(Malformed::Unknown { what, value: value.into() }.into());
                }
            };
            all.push(replica);
        }
        Ok(all)
    }
}

fn processing(from: &mut Reader<'_>) -> Result<Item<'static>, Malformed> {
    let (id, started) = (ObjectId(from.number()?), LogTime(from.number()?));
    let (kind, ttl_ms) = (from.byte()?, from.number()?);
    let soft_pin = match kind {
        0 => SoftPin::Preserve,
        1 => SoftPin::Enable(ttl_ms),
        2 => SoftPin::Disable,
        value => return Err(Malformed::Unknown { what: "a soft pin", value: value.into() }),
    };
    Ok(Item::Processing(id, Processing { started, soft_pin }))
}

fn task(from: &mut Reader<'_>) -> Result<Task, Malformed> {
    Ok(Task {
        id: from.uuid()?,
        kind: kind(from)?,
        key: from.bytes()?.into(),
        tenant: from.bytes()?.into(),
        source: from.bytes()?.into(),
        targets: list(from, 1, |from| Ok(from.bytes()?.into()))?,
        client: from.uuid()?,
        status: status(from)?,
        created: LogTime(from.number()?),
        updated: LogTime(from.number()?),
        message: from.bytes()?.into(),
        last_record: SequenceId(from.number()?),
    })
}

fn list<'b, T>(
    from: &mut Reader<'b>,
    each: usize,
    mut item: impl FnMut(&mut Reader<'b>) -> Result<T, Malformed>,
) -> Result<Vec<T>, Malformed> {
    let mut all = Vec::new();
    for _ in 0..from.count(each)? {
        all.push(item(from)?);
    }
    Ok(all)
}

fn copy_move(from: &mut Reader<'_>) -> Result<CopyMove, Malformed> {
    Ok(CopyMove {
        kind: kind(from)?,
        client: from.uuid()?,
        source: ReplicaId(from.number()?),
        targets: list(from, 1, |from| Ok(ReplicaId(from.number()?)))?,
        started: LogTime(from.number()?),
        dynamic: DynamicLease { id: from.uuid()?, epoch: from.number()? },
    })
}

fn kind(from: &mut Reader<'_>) -> Result<CopyOrMove, Malformed> {
    match from.byte()? {
        0 => Ok(CopyOrMove::Copy),
        1 => Ok(CopyOrMove::Move),
        value => Err(Malformed::Unknown { what: "the kind of a replication", value: value.into() }),
    }
}

fn status(from: &mut Reader<'_>) -> Result<TaskStatus, Malformed> {
    match from.byte()? {
        0 => Ok(TaskStatus::Pending),
        1 => Ok(TaskStatus::Processing),
        2 => Ok(TaskStatus::Failed),
        3 => Ok(TaskStatus::Success),
        value => Err(Malformed::Unknown { what: "the status of a task", value: value.into() }),
    }
}
