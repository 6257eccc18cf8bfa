//! Records about segments and their clients.

use std::sync::Arc;

use crate::engine::core::{Core, Mounted};
use crate::engine::digest;
use crate::engine::extents::Extents;
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::state::{Counts, Sequencer};
use crate::engine::types::{LogTime, SegmentNumber, SequenceId, Uuid};

impl Sequencer<'_> {
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
        let extents = Extents::new(spec.size);
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
        core.close_to_new(&segment);
    }

    /// The segment is gone at once, and every replica in it is as good as gone; a sweep takes them out later.
    pub(super) fn apply_unmount(&mut self, id: SequenceId, number: SegmentNumber) {
        let core = &mut *self.core;
        let Some(mounted) = core.segments.remove(&number) else { return };
        let segment = mounted.segment;
        core.digest.subtract(digest::segment(&segment, mounted.drain_until));
        core.segment_ids.remove(&segment.id);
        core.close_to_new(&segment);
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
    }

    pub(super) fn apply_expired(&mut self, id: SequenceId, client: Uuid) {
        let segments = self.engine.clients.read().get(&client).map(|entry| entry.segments.clone());
        for number in segments.unwrap_or_default() {
            self.apply_unmount(id, number);
        }
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

    /// Nothing new is placed in the segment.
    fn close_to_new(&mut self, segment: &Segment) {
        for (index, name) in [(&mut self.names, &segment.name), (&mut self.hosts, &segment.host_id)] {
            if let Some(numbers) = index.get_mut(name) {
                numbers.retain(|other| *other != segment.number);
                if numbers.is_empty() {
                    index.remove(name);
                }
            }
        }
        self.open.retain(|other| *other != segment.number);
    }
}
