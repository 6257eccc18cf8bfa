//! Restores a state from bytes.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::{SnapshotError, Tag, object_flags as flags};
use crate::engine::client::Client;
use crate::engine::core::{Core, Mounted};
use crate::engine::digest;
use crate::engine::extents::Extents;
use crate::engine::faults::Faults;
use crate::engine::key::{KeyHash, SHARDS};
use crate::engine::object::{Extra, Object, Replica, ReplicaStatus};
use crate::engine::packing::{Malformed, Reader};
use crate::engine::record::{DynamicLease, ReplicationKind, SoftPin};
use crate::engine::reign::{Reign, TermReport};
use crate::engine::reserved::{Discarded, Processing};
use crate::engine::rules::Rules;
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::state::{Counts, Engine, Log, Sequencer};
use crate::engine::task::{Replication, Task, TaskStatus};
use crate::engine::types::Digest;
use crate::engine::types::ReplicaId;
use crate::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid};

/// A state that is being restored, from chunks in the order in which they were written.
#[derive(Debug)]
pub struct Restore {
    engine: Engine,
    /// Digest that the result is checked against, once the first item was read.
    said: Option<Digest>,
    /// Segments that are no longer mounted.
    gone: HashMap<SegmentNumber, Arc<Segment>>,
    /// Writers by the order in which they were named.
    writers: Vec<Uuid>,
    /// Taken ranges of each mounted segment: offset and length.
    taken: HashMap<SegmentNumber, Vec<(u64, u64)>>,
    /// How many shards have begun.
    shards: usize,
    objects: u64,
    /// How many objects there should be, once the last item was read.
    end: Option<u64>,
}

impl Restore {
    /// Starts with an empty state. Records that it commits later go to `log`.
    #[must_use]
    pub fn new(rules: Rules, log: Option<Box<dyn Log>>) -> Self {
        let engine = match log {
            Some(log) => Engine::with_log(rules, log),
            None => Engine::new(rules),
        };
        Self {
            engine,
            said: None,
            gone: HashMap::new(),
            writers: Vec::new(),
            taken: HashMap::new(),
            shards: 0,
            objects: 0,
            end: None,
        }
    }

    /// Reads the next chunk, which consists of whole items.
    pub fn chunk(&mut self, chunk: &[u8]) -> Result<(), SnapshotError> {
        let mut from = Reader::new(chunk);
        while !from.is_empty() {
            let tag = Tag::of(from.byte()?)?;
            if self.said.is_none() != (tag == Tag::Core) || self.end.is_some() {
                return Err(SnapshotError::Order);
            }
            match tag {
                Tag::Core => self.core(&mut from)?,
                Tag::Segment => self.segment(&mut from)?,
                Tag::Client => self.client(&mut from)?,
                Tag::Shard => self.shard(&mut from)?,
                Tag::Object => self.object(&mut from)?,
                Tag::Processing => self.processing(&mut from)?,
                Tag::Discarded => self.discarded(&mut from)?,
                Tag::Task => self.task(&mut from)?,
                Tag::Metadata => self.metadata(&mut from)?,
                Tag::End => self.end = Some(from.number()?),
            }
        }
        Ok(())
    }

    /// Returns the state if it is complete: every object was read, no two share bytes (INV-5), and the digest is the
    /// one that was written.
    pub fn finish(mut self) -> Result<Engine, SnapshotError> {
        let (Some(said), Some(objects)) = (self.said, self.end) else {
            return Err(SnapshotError::Incomplete { found: self.objects, said: 0 });
        };
        if self.objects != objects {
            return Err(SnapshotError::Incomplete { found: self.objects, said: objects });
        }
        let engine = &self.engine;
        let mut sequencer = engine.sequencer(LogTime(0));
        sequencer.find_strays();
        let core = &mut *sequencer.core;
        for (number, mounted) in &mut core.segments {
            let mut taken = self.taken.remove(number).unwrap_or_default();
            let left_out = core.strays.left_out(&mounted.segment);
            taken.extend(left_out.iter().map(|range| (range.start, range.end - range.start)));
            let size = mounted.segment.size;
            mounted.extents = Extents::rebuild(size, taken.into_iter())
                .map_err(|why| SnapshotError::Overlap { segment: *number, why })?;
            mounted.segment.set_used(mounted.extents.used_bytes());
            Counts::add(&engine.counts.allocated, mounted.extents.used_bytes());
            Counts::add(&engine.counts.capacity, size);
        }
        if core.digest() != said {
            return Err(SnapshotError::Digest { found: core.digest(), said });
        }
        for number in sequencer.open_segments() {
            sequencer.core.open_to_new(number);
        }
        // Replicas in unmounted segments wait for a sweep.
        Counts::add(&engine.counts.unmounts, self.gone.len() as u64);
        engine.begun.store(sequencer.core.last.0, Ordering::Release);
        engine.applied.store(sequencer.core.last.0, Ordering::Release);
        drop(sequencer);
        Ok(self.engine)
    }

    fn sequencer(&self) -> Sequencer<'_> {
        self.engine.sequencer(LogTime(0))
    }

    fn core(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let core: &mut Core = &mut sequencer.core;
        core.last = SequenceId(from.number()?);
        core.log_time = LogTime(from.number()?);
        core.reign = Reign {
            term: Term(from.number()?),
            began: SequenceId(from.number()?),
            since: LogTime(from.number()?),
            hold_until: LogTime(from.number()?),
            lease_ttl: from.number()?,
            leader_ttl: from.number()?,
            resigned: SequenceId(from.number()?),
            boot_id: from.word()?,
            first_segment: SegmentNumber(from.narrow()?),
            kept_tasks: from.narrow()?,
        };
        core.next_segment = from.narrow()?;
        core.faults = Faults::counted(from.number()?);
        core.report = TermReport {
            term: Term(from.number()?),
            began: SequenceId(from.number()?),
            objects: from.number()?,
            bytes: from.number()?,
            hold_ms: from.number()?,
            objects_removed: from.number()?,
            bytes_removed: from.number()?,
            clients: from.narrow()?,
            segments: from.narrow()?,
            reservations: from.narrow()?,
        };
        core.digest.add(digest::reign(&core.reign));
        self.said = Some(Digest(from.word()?));
        Ok(())
    }

    fn segment(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
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
            self.gone.insert(number, segment);
            return Ok(());
        }
        if drain_until.is_some() {
            segment.set_status(SegmentStatus::GracefullyUnmounting, record);
        }
        let mut sequencer = self.sequencer();
        let core = &mut *sequencer.core;
        core.digest.add(digest::segment(&segment, drain_until));
        core.segment_ids.insert(id, number);
        core.atlas.insert(&segment);
        core.segments.insert(number, Mounted::new(segment.clone(), Extents::new(0), drain_until));
        drain_until.into_iter().for_each(|until| _ = core.drains.insert((until, number)));
        self.engine.segments.write().insert(number, segment);
        self.engine.clients.write().entry(client).or_default().segments.insert(number);
        Ok(())
    }

    fn client(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let id = from.uuid()?;
        let (joined, inherited) = (from.flag("a joined client")?, from.flag("an inherited client")?);
        let last_record = SequenceId(from.number()?);
        let mut clients = self.engine.clients.write();
        let segments = clients.remove(&id).unwrap_or_default().segments;
        let client = Client { joined, inherited, segments, last_record };
        self.sequencer().core.digest.add(digest::client(id, &client));
        clients.insert(id, client);
        Ok(())
    }

    fn shard(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let removal = SequenceId(from.number()?);
        let shard = self.engine.shards.get(self.shards).ok_or(SnapshotError::Order)?;
        shard.write().last_removal = removal;
        self.shards += 1;
        debug_assert!(self.shards <= SHARDS);
        Ok(())
    }

    fn object(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
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
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let lease = LogTime(from.difference(sequencer.core.log_time.0)?);
        let nth: usize = from.narrow()?;
        if nth == self.writers.len() {
            self.writers.push(from.uuid()?);
        }
        let writer = *self.writers.get(nth).ok_or(SnapshotError::Order)?;
        let mut places = Places { core: &sequencer.core, gone: &self.gone, taken: &mut self.taken };
        let mut replicas = places.read(from, id, size)?.into_iter();
        let first = replicas.next().ok_or(SnapshotError::NoReplica)?;
        let client = sequencer.core.writers.take(writer);
        let mut object = Object::new(key, id, size, client, first);
        object.last_record = last_record;
        object.replicated_lease = lease;
        object.data_type = data_type;
        object.hard_pinned = has(flags::HARD_PIN);
        replicas.for_each(|replica| object.push_replica(replica));
        if has(flags::EXTRA) {
            let checksum = if has(flags::CHECKSUM) { Some(from.word()?) } else { None };
            let pin = if has(flags::SOFT_PIN) { LogTime(from.number()?) } else { LogTime(0) };
            let group = if has(flags::GROUP) { Some(sequencer.core.group(from.bytes()?)) } else { None };
            let copy = if has(flags::REPLICATION) { Some(replication(from)?) } else { None };
            if let Some(copy) = &copy {
                sequencer.core.replications.insert((copy.started, id));
            }
            let more = std::mem::take(&mut object.extra_mut().more);
            *object.extra_mut() = Extra { more, checksum, soft_pin_until: pin, group, replication: copy };
        }
        sequencer.settle(object, KeyHash::of(key));
        self.objects += 1;
        Ok(())
    }

    fn processing(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let (id, started) = (ObjectId(from.number()?), LogTime(from.number()?));
        let (kind, ttl_ms) = (from.byte()?, from.number()?);
        let soft_pin = match kind {
            0 => SoftPin::Preserve,
            1 => SoftPin::Enable(ttl_ms),
            2 => SoftPin::Disable,
            value => return Err(Malformed::Unknown { what: "a soft pin", value: value.into() }.into()),
        };
        let write = Processing { started, soft_pin };
        let core = &mut *self.sequencer().core;
        core.digest.add(digest::processing(id, &write));
        core.processing.insert(id, write);
        Ok(())
    }

    fn discarded(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let record = SequenceId(from.number()?);
        let (release_at, size) = (LogTime(from.number()?), from.number()?);
        let mut sequencer = self.engine.sequencer(LogTime(0));
        let mut places = Places { core: &sequencer.core, gone: &self.gone, taken: &mut self.taken };
        let replicas = places.read(from, ObjectId(record.0), size)?;
        let bytes = Discarded { release_at, size, replicas: replicas.into() };
        sequencer.core.keep_discarded(record, bytes);
        Ok(())
    }

    fn task(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let mut task = Task {
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
        };
        let core = &mut *self.sequencer().core;
        let (id, updated, record) = (task.id, task.updated, task.last_record);
        core.digest.add(digest::task(&task));
        let (status, message) = (task.status, std::mem::take(&mut task.message));
        task.status = TaskStatus::Pending;
        core.tasks.insert(task);
        match status {
            TaskStatus::Pending => {}
            TaskStatus::Processing => core.tasks.assign(id, updated, record),
            TaskStatus::Failed => core.tasks.finish(id, false, &message, updated, record),
            TaskStatus::Success => core.tasks.finish(id, true, &message, updated, record),
        }
        Ok(())
    }

    fn metadata(&mut self, from: &mut Reader<'_>) -> Result<(), SnapshotError> {
        let (key, value) = (from.bytes()?, from.bytes()?);
        let record = SequenceId(from.number()?);
        let core = &mut *self.sequencer().core;
        core.digest.add(digest::metadata(key, value));
        core.metadata_bytes += key.len() + value.len();
        self.engine.metadata.write().insert(key.into(), (value.into(), record));
        Ok(())
    }
}

/// Context for reading replicas: the segments, and the list of their taken ranges.
struct Places<'r> {
    core: &'r Core,
    gone: &'r HashMap<SegmentNumber, Arc<Segment>>,
    taken: &'r mut HashMap<SegmentNumber, Vec<(u64, u64)>>,
}

impl Places<'_> {
    fn read(
        &mut self,
        from: &mut Reader<'_>,
        object: ObjectId,
        size: u64,
    ) -> Result<Vec<Replica>, SnapshotError> {
        let mut all = Vec::new();
        for _ in 0..from.count(4)? {
            let number = SegmentNumber(from.narrow()?);
            let offset = from.number()?;
            let id = ReplicaId(from.difference(ReplicaId::new(SequenceId(object.0), 0).0)?);
            let mounted = self.core.segments.get(&number).map(|mounted| &mounted.segment);
            if mounted.is_some() {
                self.taken.entry(number).or_default().push((offset, size));
            }
            let segment = mounted.or_else(|| self.gone.get(&number));
            let segment = segment.ok_or(SnapshotError::UnknownSegment(number))?;
            let mut replica = Replica::reserved(segment.clone(), offset, id);
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

fn replication(from: &mut Reader<'_>) -> Result<Replication, Malformed> {
    Ok(Replication {
        kind: kind(from)?,
        client: from.uuid()?,
        source: ReplicaId(from.number()?),
        targets: list(from, 1, |from| Ok(ReplicaId(from.number()?)))?,
        started: LogTime(from.number()?),
        dynamic: DynamicLease { id: from.uuid()?, epoch: from.number()? },
    })
}

fn kind(from: &mut Reader<'_>) -> Result<ReplicationKind, Malformed> {
    match from.byte()? {
        0 => Ok(ReplicationKind::Copy),
        1 => Ok(ReplicationKind::Move),
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
