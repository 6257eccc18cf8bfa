//! Records about segments and their clients.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::engine::core::{Core, Mounted};
use crate::engine::digest;
use crate::engine::extents::Extents;
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::state::{Counts, Sequencer};
use crate::engine::strays::is_stray;
use crate::engine::types::{LogTime, SegmentNumber, SequenceId, Uuid};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

impl Sequencer<'_> {
    /// All of the memory is free but for what somebody may still be writing to, who was told it when it was mounted
    /// before (R4).
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
        core.open_to_new(&segment);
        core.atlas.insert(&segment);
        let mut extents = Extents::new(spec.size);
        for range in core.strays.left_out(&segment) {
            if extents.take(range.start, range.end - range.start).is_err() {
                core.faults += 1;
            }
        }
        segment.set_used(extents.used_bytes());
        Counts::add(&self.engine.counts.allocated, extents.used_bytes());
        core.segments.insert(number, Mounted { segment: segment.clone(), extents, drain_until: None });
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
            let before = entry.segments.range(..core.reign.first_segment);
            let segments: Vec<Arc<Segment>> =
                before.filter_map(|number| Some(core.segments.get(number)?.segment.clone())).collect();
            let open = segments.iter().filter(|segment| segment.status() == SegmentStatus::Ok);
            open.for_each(|segment| core.open_to_new(segment));
        }
    }

    pub(super) fn apply_drain(&mut self, id: SequenceId, number: SegmentNumber, until: LogTime) {
        let core = &mut *self.core;
        let Some(mounted) = core.segments.get_mut(&number) else { return };
        core.digest.subtract(digest::segment(&mounted.segment, mounted.drain_until));
        mounted.drain_until = Some(until);
        core.digest.add(digest::segment(&mounted.segment, mounted.drain_until));
        mounted.segment.set_status(SegmentStatus::GracefullyUnmounting, id);
        let segment = mounted.segment.clone();
        core.close_to_new(&[segment]);
    }

    /// The segment is gone at once, and every replica in it is as good as gone; a sweep takes them out later.
    pub(super) fn apply_unmount(&mut self, id: SequenceId, number: SegmentNumber) {
        self.bury(id, [number]);
    }

    /// Takes segments away. Whoever is writing there goes on (R4). If anything lay in them, that costs time for every
    /// write under way, and none for objects.
    fn bury(&mut self, id: SequenceId, numbers: impl IntoIterator<Item = SegmentNumber>) {
        let (mut gone, mut used) = (Vec::new(), false);
        let core = &mut *self.core;
        for number in numbers {
            let Some(mounted) = core.segments.remove(&number) else { continue };
            let segment = mounted.segment;
            core.digest.subtract(digest::segment(&segment, mounted.drain_until));
            core.segment_ids.remove(&segment.id);
            core.atlas.remove(&segment);
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
            used |= mounted.extents.used_bytes() > 0;
            Counts::subtract(&self.engine.counts.capacity, segment.size);
            Counts::subtract(&self.engine.counts.allocated, mounted.extents.used_bytes());
            Counts::add(&self.engine.counts.unmounts, 1);
            gone.push(segment);
        }
        core.close_to_new(&gone);
        if used {
            self.find_strays();
        }
    }

    /// Looks for writes whose segment is gone.
    pub(in crate::engine) fn find_strays(&mut self) {
        #[cfg(feature = "planted")]
        if planted::active(Bug::ForgetStrays) {
            return;
        }
        let engine = self.engine;
        let core = &mut *self.core;
        let copies = core.replications.iter().map(|(_, id)| id);
        for id in core.processing.keys().chain(copies) {
            let Some(handle) = core.ids.find(*id) else { continue };
            let objects = engine.shards[handle.shard()].objects.read();
            let Some(object) = objects.at(handle.slot()) else { continue };
            let strays = object.replicas().filter(|replica| is_stray(replica));
            strays.for_each(|replica| core.strays.insert(replica, object.size));
        }
        for bytes in core.discarded.values() {
            let strays = bytes.replicas.iter().filter(|replica| is_stray(replica));
            strays.for_each(|replica| core.strays.insert(replica, bytes.size));
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
    /// New objects may be placed in the segment.
    pub(in crate::engine) fn open_to_new(&mut self, segment: &Segment) {
        self.names.entry(segment.name.clone()).or_default().push(segment.number);
        self.hosts.entry(segment.host_id.clone()).or_default().push(segment.number);
        self.open.push(segment.number);
    }

    /// Nothing new is placed in any segment.
    pub(super) fn close_all(&mut self) {
        self.names.clear();
        self.hosts.clear();
        self.open.clear();
    }

    /// Nothing new is placed in these segments.
    fn close_to_new(&mut self, gone: &[Arc<Segment>]) {
        let mut numbers: Vec<SegmentNumber> = gone.iter().map(|segment| segment.number).collect();
        numbers.sort_unstable();
        let stays = |number: &SegmentNumber| numbers.binary_search(number).is_err();
        let names: BTreeSet<&[u8]> = gone.iter().map(|segment| &*segment.name).collect();
        let hosts: BTreeSet<&[u8]> = gone.iter().map(|segment| &*segment.host_id).collect();
        for (index, texts) in [(&mut self.names, names), (&mut self.hosts, hosts)] {
            for text in texts {
                if let Some(numbers) = index.get_mut(text) {
                    numbers.retain(stays);
                    if numbers.is_empty() {
                        index.remove(text);
                    }
                }
            }
        }
        self.open.retain(stays);
    }
}
