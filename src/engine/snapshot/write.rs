//! Writes a state to bytes. Most types are destructured without `..`, so that a new field does not compile until its
//! author has decided whether snapshots contain it.

use std::collections::{HashMap, HashSet};

use super::{CHUNK, Tag, object_flags as flags};
use crate::engine::client::Client;
use crate::engine::core::Mounted;
use crate::engine::object::{Extra, Object, Replica};
use crate::engine::packing::{put_bytes, put_difference, put_number, put_uuid, put_word};
use crate::engine::record::{DynamicLease, SoftPin};
use crate::engine::reign::{Reign, TermReport};
use crate::engine::reserved::{Discarded, Processing};
use crate::engine::segment::Segment;
use crate::engine::state::Sequencer;
use crate::engine::task::{Replication, Task, TaskStatus};
use crate::engine::types::{ClientNumber, ReplicaId};
use crate::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId};

impl Sequencer<'_> {
    /// Passes the whole state to `out`, chunk by chunk, and stops at its first error. No record is applied meanwhile;
    /// readers go on.
    pub fn snapshot<E>(&self, out: impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
        let core = &*self.core;
        let mut to = Writer {
            chunk: Vec::with_capacity(CHUNK + CHUNK / 4),
            out,
            gone: HashSet::new(),
            writers: HashMap::new(),
            log_time: core.log_time,
        };
        self.put_core(&mut to.chunk);
        for mounted in core.segments.values() {
            to.segment(&mounted.segment, Some(mounted));
            to.item()?;
        }
        for (id, client) in self.engine.clients.read().iter() {
            // Every segment names its client, so the list need not be written.
            let Client { joined, inherited, segments: _, last_record } = client;
            to.tag(Tag::Client);
            put_uuid(&mut to.chunk, *id);
            to.chunk.extend([u8::from(*joined), u8::from(*inherited)]);
            put_number(&mut to.chunk, last_record.0);
            to.item()?;
        }
        let mut written = 0;
        for shard in &self.engine.shards {
            let objects = shard.read();
            to.tag(Tag::Shard);
            put_number(&mut to.chunk, objects.last_removal.0);
            for object in objects.iter() {
                to.gone_segments(object.replicas());
                to.object(object, |number| core.writers.id(number));
                to.item()?;
                written += 1;
            }
        }
        for (id, write) in &core.processing {
            to.processing(*id, write);
            to.item()?;
        }
        for (record, bytes) in &core.discarded {
            to.gone_segments(bytes.replicas.iter());
            to.discarded(*record, bytes);
            to.item()?;
        }
        for task in self.tasks_in_order() {
            to.task(task);
            to.item()?;
        }
        for (key, (value, record)) in self.engine.metadata.read().iter() {
            to.tag(Tag::Metadata);
            put_bytes(&mut to.chunk, key);
            put_bytes(&mut to.chunk, value);
            put_number(&mut to.chunk, record.0);
            to.item()?;
        }
        to.tag(Tag::End);
        put_number(&mut to.chunk, written);
        (to.out)(&to.chunk)
    }

    fn put_core(&self, out: &mut Vec<u8>) {
        let core = &*self.core;
        let Reign {
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
        } = core.reign;
        out.push(Tag::Core as u8);
        put_number(out, core.last.0);
        put_number(out, core.log_time.0);
        for number in [term.0, began.0, since.0, hold_until.0, lease_ttl, leader_ttl, resigned.0] {
            put_number(out, number);
        }
        put_word(out, boot_id);
        for number in [first_segment.0, kept_tasks, core.next_segment] {
            put_number(out, number.into());
        }
        put_number(out, core.faults.count);
        // For status, for as long as the term lasts.
        let TermReport {
            term,
            began,
            clients,
            segments,
            objects,
            bytes,
            reservations,
            hold_ms,
            objects_removed,
            bytes_removed,
        } = core.report;
        for number in [term.0, began.0, objects, bytes, hold_ms, objects_removed, bytes_removed] {
            put_number(out, number);
        }
        for number in [clients, segments, reservations] {
            put_number(out, number as u64);
        }
        put_word(out, core.digest().0);
    }

    /// Returns the tasks in the order of their last record. Pending ones come last, because reading puts every task
    /// into the pending queue first.
    fn tasks_in_order(&self) -> Vec<&Task> {
        let mut tasks: Vec<&Task> = self.core.tasks.iter().collect();
        tasks.sort_unstable_by_key(|task| (task.status == TaskStatus::Pending, task.last_record, task.id));
        tasks
    }
}

struct Writer<F> {
    chunk: Vec<u8>,
    out: F,
    /// Segments that are no longer mounted, but were written because something still refers to them.
    gone: HashSet<SegmentNumber>,
    /// Number of each writer that was written, in the order of their first use.
    writers: HashMap<ClientNumber, u64>,
    log_time: LogTime,
}

impl<E, F: FnMut(&[u8]) -> Result<(), E>> Writer<F> {
    /// Ends an item: passes the chunk on if it is long enough.
    fn item(&mut self) -> Result<(), E> {
        if self.chunk.len() >= CHUNK {
            (self.out)(&self.chunk)?;
            self.chunk.clear();
        }
        Ok(())
    }
}

impl<F> Writer<F> {
    fn tag(&mut self, tag: Tag) {
        self.chunk.push(tag as u8);
    }

    /// Writes the unmounted segments of these replicas, each of them once.
    fn gone_segments<'r>(&mut self, replicas: impl Iterator<Item = &'r Replica>) {
        for replica in replicas.filter(|replica| !replica.segment.is_alive()) {
            if self.gone.insert(replica.segment.number) {
                self.segment(&replica.segment, None);
            }
        }
    }

    fn segment(&mut self, segment: &Segment, mounted: Option<&Mounted>) {
        self.tag(Tag::Segment);
        let out = &mut self.chunk;
        put_number(out, segment.number.0.into());
        put_uuid(out, segment.id);
        put_uuid(out, segment.client);
        put_number(out, segment.base);
        put_number(out, segment.size);
        for text in [&segment.name, &segment.te_endpoint, &segment.protocol, &segment.host_id] {
            put_bytes(out, text);
        }
        put_number(out, segment.last_record().0);
        let drain_until = mounted.and_then(|mounted| mounted.drain_until);
        out.extend([u8::from(mounted.is_some()), u8::from(drain_until.is_some())]);
        drain_until.into_iter().for_each(|until| put_number(out, until.0));
    }

    fn object(&mut self, object: &Object, writer: impl Fn(ClientNumber) -> crate::engine::types::Uuid) {
        let extra = object.extra.as_deref();
        let mut flag = 0;
        let mut raise = |bit, when| flag |= if when { bit } else { 0 };
        raise(flags::HARD_PIN, object.hard_pinned);
        raise(flags::EXTRA, extra.is_some());
        raise(flags::CHECKSUM, object.checksum().is_some());
        raise(flags::SOFT_PIN, object.soft_pin_until() != LogTime(0));
        raise(flags::GROUP, object.group().is_some());
        raise(flags::REPLICATION, object.replication().is_some());
        self.chunk.extend([Tag::Object as u8, flag, object.data_type]);
        let out = &mut self.chunk;
        put_bytes(out, &object.key);
        put_number(out, object.id.0);
        put_difference(out, object.id.0, object.last_record.0);
        put_number(out, object.size);
        put_difference(out, self.log_time.0, object.replicated_lease.0);
        let next = self.writers.len() as u64;
        let nth = *self.writers.entry(object.client).or_insert(next);
        put_number(out, nth);
        if nth == next {
            put_uuid(out, writer(object.client));
        }
        self.replicas(object.id, || object.replicas());
        if let Some(Extra { more: _, checksum, soft_pin_until, group, replication }) = extra {
            let out = &mut self.chunk;
            checksum.iter().for_each(|sum| put_word(out, *sum));
            if *soft_pin_until != LogTime(0) {
                put_number(out, soft_pin_until.0);
            }
            group.iter().for_each(|group| put_bytes(out, &group.id));
            replication.iter().for_each(|replication| self.replication(replication));
        }
    }

    /// Writes replicas. Their ids are written as differences from the object's, of which they are nearly always made.
    fn replicas<'r, I: Iterator<Item = &'r Replica>>(&mut self, object: ObjectId, replicas: impl Fn() -> I) {
        let out = &mut self.chunk;
        put_number(out, replicas().count() as u64);
        for replica in replicas() {
            put_number(out, replica.segment.number.0.into());
            put_number(out, replica.offset);
            put_difference(out, ReplicaId::new(SequenceId(object.0), 0).0, replica.id().0);
            out.push(replica.status as u8);
        }
    }

    fn replication(&mut self, replication: &Replication) {
        let Replication { kind, client, source, targets, started, dynamic } = replication;
        let DynamicLease { id, epoch } = *dynamic;
        let out = &mut self.chunk;
        out.push(*kind as u8);
        put_uuid(out, *client);
        put_number(out, source.0);
        put_number(out, targets.len() as u64);
        targets.iter().for_each(|target| put_number(out, target.0));
        put_number(out, started.0);
        put_uuid(out, id);
        put_number(out, epoch);
    }

    fn processing(&mut self, id: ObjectId, write: &Processing) {
        let Processing { started, soft_pin } = *write;
        self.tag(Tag::Processing);
        put_number(&mut self.chunk, id.0);
        put_number(&mut self.chunk, started.0);
        let (kind, ttl_ms) = match soft_pin {
            SoftPin::Preserve => (0, 0),
            SoftPin::Enable(ttl_ms) => (1, ttl_ms),
            SoftPin::Disable => (2, 0),
        };
        self.chunk.push(kind);
        put_number(&mut self.chunk, ttl_ms);
    }

    fn discarded(&mut self, record: SequenceId, bytes: &Discarded) {
        let Discarded { release_at, size, replicas } = bytes;
        self.tag(Tag::Discarded);
        put_number(&mut self.chunk, record.0);
        put_number(&mut self.chunk, release_at.0);
        put_number(&mut self.chunk, *size);
        self.replicas(ObjectId(record.0), || replicas.iter());
    }

    fn task(&mut self, task: &Task) {
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
        self.tag(Tag::Task);
        let out = &mut self.chunk;
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
}
