//! Records about segments and their clients.

use std::sync::Arc;

use crate::engine::core::{Core, Mounted, Reserved};
use crate::engine::digest;
use crate::engine::extents::Extents;
use crate::engine::faults::Reason;
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::state::{Counts, Sequencer};
use crate::engine::types::{LogTime, SegmentNumber, SequenceId, Uuid};
use crate::engine::unmounted_writes::is_stray;

impl Sequencer<'_> {
    /// Mounts a segment. All of its memory is free, except what a client may still be writing to since an earlier mount
    /// of the same memory (R4).
    pub(super) fn apply_mount(
        &mut self,
        id: SequenceId,
        spec: &SegmentSpec<'_>,
        number: SegmentNumber,
        client: Uuid,
    ) {
        let segment = Arc::new(Segment::new(spec, number, client, id));
        let core = &mut *self.core;
        core.digest.add(digest::segment(&segment, None));
        core.next_segment = core.next_segment.max(number.0 + 1);
        core.segment_ids.insert(spec.id, number);
        core.segment_ranges.insert(&segment);
        let mut extents = Extents::new(spec.size);
        for range in core.unmounted_writes.left_out(&segment) {
            if extents.take(range.start, range.end - range.start).is_err() {
                core.fault(Vec::new(), Reason::Overlap);
            }
        }
        segment.set_used(extents.used_bytes());
        Counts::add(&self.engine.counts.allocated, extents.used_bytes());
        core.segments.insert(number, Mounted::new(segment.clone(), extents, None));
        core.open_to_new(number);
        self.engine.segments.write().insert(number, segment);
        let mut clients = self.engine.clients.write();
        let entry = clients.entry(client).or_default();
        entry.segments.insert(number);
        entry.last_record = id;
        Counts::add(&self.engine.counts.capacity, spec.size);
    }

    pub(super) fn apply_joined(&mut self, id: SequenceId, client: Uuid) {
        let core = &mut *self.core;
        let mut clients = self.engine.clients.write();
        let entry = clients.entry(client).or_default();
        core.digest.subtract(digest::client(client, entry));
        let inherited = std::mem::replace(&mut entry.inherited, false);
        entry.joined = true;
        entry.last_record = id;
        core.digest.add(digest::client(client, entry));
        if inherited {
            let before = entry.segments.range(..core.term_state.first_segment);
            let drains = |number: &SegmentNumber| {
                core.segments.get(number).is_none_or(|mounted| mounted.drain_until.is_some())
            };
            let open: Vec<SegmentNumber> = before.filter(|number| !drains(number)).copied().collect();
            open.into_iter().for_each(|number| core.open_to_new(number));
        }
    }

    pub(super) fn apply_drain(&mut self, id: SequenceId, number: SegmentNumber, until: LogTime) {
        let core = &mut *self.core;
        let Some(mounted) = core.segments.get_mut(&number) else { return };
        core.digest.subtract(digest::segment(&mounted.segment, mounted.drain_until));
        if let Some(before) = mounted.drain_until.replace(until) {
            core.drains.remove(&(before, number));
        }
        core.drains.insert((until, number));
        core.digest.add(digest::segment(&mounted.segment, mounted.drain_until));
        mounted.segment.set_status(SegmentStatus::GracefullyUnmounting, id);
        core.close_to_new(number);
    }

    /// Unmounts a segment at once. From then on no replica in it can be read; a sweep drops them later.
    pub(super) fn apply_unmount(&mut self, id: SequenceId, number: SegmentNumber) {
        self.bury(id, [number]);
    }

    /// Unmounts segments. Clients that are writing there go on (R4). It costs time for every write under way in them,
    /// and none for other objects.
    fn bury(&mut self, id: SequenceId, numbers: impl IntoIterator<Item = SegmentNumber>) {
        let mut reserved = Vec::new();
        let core = &mut *self.core;
        for number in numbers {
            core.close_to_new(number);
            let Some(mut mounted) = core.segments.remove(&number) else { continue };
            let segment = mounted.segment.clone();
            core.digest.subtract(digest::segment(&segment, mounted.drain_until));
            core.segment_ids.remove(&segment.id);
            core.segment_ranges.remove(&segment);
            mounted.drain_until.into_iter().for_each(|until| _ = core.drains.remove(&(until, number)));
            self.engine.segments.write().remove(&number);
            segment.bury(id);
            let mut clients = self.engine.clients.write();
            if let Some(client) = clients.get_mut(&segment.client) {
                client.segments.remove(&number);
                client.last_record = id;
                if client.segments.is_empty() && !client.joined && !client.inherited {
                    clients.remove(&segment.client);
                }
            }
            Counts::subtract(&self.engine.counts.capacity, segment.size);
            Counts::subtract(&self.engine.counts.allocated, mounted.extents.used_bytes());
            Counts::add(&self.engine.counts.unmounts, 1);
            reserved.append(&mut mounted.reserved.iter().copied().collect());
            mounted.reserved.clear();
            self.buried.push(mounted);
        }
        planted!(ForgetStrays => return);
        reserved.into_iter().for_each(|what| self.find_stray_of(what));
    }

    /// Finds the strays among all writes, copies, moves and discarded bytes.
    pub(in crate::engine) fn find_strays(&mut self) {
        let core = &*self.core;
        let writes = core.processing.keys().chain(core.copy_moves.iter().map(|(_, id)| id));
        let writes = writes.map(|id| Reserved::Object(*id));
        let all: Vec<Reserved> =
            writes.chain(core.discarded.keys().map(|record| Reserved::Discarded(*record))).collect();
        all.into_iter().for_each(|what| self.find_stray_of(what));
    }

    /// Adds those of the reserved bytes whose segment is unmounted to the strays, and an object that lost its last
    /// segment to the lost writes or copies.
    fn find_stray_of(&mut self, what: Reserved) {
        let engine = self.engine;
        let core = &mut *self.core;
        match what {
            Reserved::Object(id) => {
                let Some(handle) = core.object_index.find(id) else { return };
                let objects = self.locked.look(&engine.shards, handle.shard());
                let Some(object) = objects.at(handle.slot()) else { return };
                let unmounted_writes = object.replicas().filter(|replica| is_stray(replica));
                unmounted_writes.for_each(|replica| core.unmounted_writes.insert(replica, object.size));
                if !object.is_valid() {
                    if core.processing.contains_key(&id) {
                        core.lost_writes.insert(id);
                    }
                    if object.copy_move().is_some() {
                        core.lost_copies.insert(id);
                    }
                }
            }
            Reserved::Discarded(record) => {
                let Some(bytes) = core.discarded.get(&record) else { return };
                let unmounted_writes = bytes.replicas.iter().filter(|replica| is_stray(replica));
                unmounted_writes.for_each(|replica| core.unmounted_writes.insert(replica, bytes.size));
            }
        }
    }

    pub(super) fn apply_expired(&mut self, id: SequenceId, client: Uuid) {
        let segments = self.engine.clients.read().get(&client).map(|entry| entry.segments.clone());
        self.bury(id, segments.unwrap_or_default());
        if let Some(entry) = self.engine.clients.write().remove(&client) {
            self.core.digest.subtract(digest::client(client, &entry));
        }
    }
}

impl Core {
    /// Opens the segment to new objects.
    pub(in crate::engine) fn open_to_new(&mut self, number: SegmentNumber) {
        let Some(mounted) = self.segments.get_mut(&number).filter(|mounted| mounted.open.is_none()) else {
            return;
        };
        mounted.open = Some(self.open.push(number, mounted.extents.largest_free()));
        let segment = &mounted.segment;
        for (index, text) in [(&mut self.names, &segment.name), (&mut self.hosts, &segment.host_id)] {
            let numbers = index.entry(text.clone()).or_default();
            if let Err(place) = numbers.binary_search(&number) {
                numbers.insert(place, number);
            }
        }
    }

    /// Closes all segments to new objects.
    pub(super) fn close_all(&mut self) {
        self.names.clear();
        self.hosts.clear();
        self.open.clear();
        self.segments.values_mut().for_each(|mounted| mounted.open = None);
    }

    /// Closes the segment to new objects.
    fn close_to_new(&mut self, number: SegmentNumber) {
        let Some(mounted) = self.segments.get_mut(&number) else { return };
        let Some(place) = mounted.open.take() else { return };
        let segment = &mounted.segment;
        for (index, text) in [(&mut self.names, &segment.name), (&mut self.hosts, &segment.host_id)] {
            let Some(numbers) = index.get_mut(text) else { continue };
            if let Ok(place) = numbers.binary_search(&number) {
                numbers.remove(place);
            }
            if numbers.is_empty() {
                index.remove(text);
            }
        }
        if let Some(moved) = self.open.remove(place).and_then(|moved| self.segments.get_mut(&moved)) {
            moved.open = Some(place);
        }
    }

    /// Updates the longest free range of a segment in the index of open ones.
    pub(super) fn refit(&mut self, number: SegmentNumber) {
        if let Some(mounted) = self.segments.get(&number)
            && let Some(place) = mounted.open
        {
            self.open.set(place, mounted.extents.largest_free());
        }
    }
}
