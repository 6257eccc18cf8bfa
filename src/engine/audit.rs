//! Checks the state against itself: everything that is derived from the objects is computed again from scratch.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::Ordering;

use super::apply::reserved_in;
use super::core::{Mounted, Reserved};
use super::digest;
use super::extents::Extents;
use super::object::Replicas;
use super::segment::Segment;
use super::state::Sequencer;
use super::types::{LogTime, SegmentNumber, SequenceId};
use super::unmounted_writes::is_stray;
use crate::engine::key::KeyHash;
use crate::engine::reserved::Discarded;
use crate::engine::types::Digest;

/// Sums over all objects, computed from scratch.
#[derive(Default)]
struct Sums {
    digest: Digest,
    objects: usize,
    evictable: usize,
    soft_pinned: u64,
    replicating: usize,
    /// Number of objects by group.
    groups: HashMap<Box<[u8]>, usize>,
    /// Replicas in unmounted memory to which a client may be writing.
    unmounted_writes: usize,
    /// Taken ranges by segment: offset and length.
    taken: HashMap<SegmentNumber, Vec<(u64, u64)>>,
    /// What clients may be writing to, by segment.
    reserved: HashMap<SegmentNumber, BTreeSet<Reserved>>,
    /// Objects that are being written, and those that are being copied or moved, all of whose segments are unmounted.
    lost: (usize, usize),
}

impl Sums {
    fn take(&mut self, replicas: &Replicas, size: u64) {
        for replica in replicas {
            let reachable = !replica.segment.te_endpoint.is_empty();
            self.unmounted_writes += usize::from(reachable && is_stray(replica));
            self.taken.entry(replica.segment.number).or_default().push((replica.offset, size));
        }
    }
}

impl Sequencer<'_> {
    /// Calls `visit` for bytes that belong to no object but may still be in use: the record that discarded them, when
    /// they are released, bytes of each replica, and the replicas.
    pub fn each_discarded(&self, mut visit: impl FnMut(SequenceId, LogTime, u64, &Replicas)) {
        for (record, bytes) in &self.core.discarded {
            visit(*record, bytes.release_at, bytes.size, &bytes.replicas);
        }
    }

    /// Calls `visit` with the endpoint and the addresses of every write into memory that is no longer mounted.
    pub fn each_stray(&self, visit: impl FnMut(&[u8], Range<u64>)) {
        self.core.unmounted_writes.each(visit);
    }

    /// Describes every inconsistency; empty if the state is sound. Costs time for every object.
    #[must_use]
    pub fn audit(&self) -> Vec<String> {
        let sums = self.sums();
        let core = &*self.core;
        let counts = &self.engine.counts;
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        let mut wrong = Vec::new();
        let mut expect = |what: &str, kept: u64, made: u64| {
            if kept != made {
                wrong.push(format!("{what}: kept {kept}, from scratch {made}"));
            }
        };
        expect("faults", core.faults.count, 0);
        expect("digest", core.digest.0, sums.digest.0);
        expect("ids", core.object_index.len() as u64, sums.objects as u64);
        expect("objects", count(&counts.objects), sums.objects as u64);
        expect("soft-pinned objects", count(&counts.soft_pinned), sums.soft_pinned);
        expect("evictable objects", core.evictable as u64, sums.evictable as u64);
        expect("copies and moves", core.copy_moves.len() as u64, sums.replicating as u64);
        expect("releases", core.releases.len() as u64, core.discarded.len() as u64);
        let discarded: u128 = core.discarded.values().map(Discarded::bytes).sum();
        expect("discarded bytes are the sum of all", u64::from(core.discarded_bytes == discarded), 1);
        expect("groups", core.groups.len() as u64, sums.groups.len() as u64);
        for (name, (_, membership)) in &core.groups {
            let made = sums.groups.get(name).copied().unwrap_or_default();
            expect("objects of a group", membership.len() as u64, made as u64);
        }
        let (capacity, allocated) = self.audit_segments(&sums, &mut expect);
        let drains =
            core.segments.iter().filter_map(|(number, mounted)| Some((mounted.drain_until?, *number)));
        expect("segments that are drained", u64::from(drains.collect::<BTreeSet<_>>() == core.drains), 1);
        expect("lost writes", core.lost_writes.len() as u64, sums.lost.0 as u64);
        expect("lost copies", core.lost_copies.len() as u64, sums.lost.1 as u64);
        expect(
            "writes into unmounted memory",
            core.unmounted_writes.len() as u64,
            sums.unmounted_writes as u64,
        );
        let reachable = |mounted: &&Mounted| !mounted.segment.te_endpoint.is_empty();
        let reachable = core.segments.values().filter(reachable).count();
        expect("segments by address", core.segment_ranges.len() as u64, reachable as u64);
        self.audit_open_segments(&mut expect);
        expect("capacity", count(&counts.capacity), capacity);
        expect("allocated bytes", count(&counts.allocated), allocated);
        wrong
    }

    /// Checks every segment against its objects; returns the bytes of all segments, and those that are taken.
    fn audit_segments(&self, sums: &Sums, expect: &mut impl FnMut(&str, u64, u64)) -> (u64, u64) {
        let core = &*self.core;
        let (mut capacity, mut allocated) = (0_u64, 0_u64);
        for (number, mounted) in &core.segments {
            let taken = sums.taken.get(number).map(Vec::as_slice).unwrap_or_default();
            capacity = capacity.wrapping_add(mounted.segment.size);
            allocated = allocated.wrapping_add(mounted.extents.used_bytes());
            let reserved = sums.reserved.get(number).cloned().unwrap_or_default();
            expect("reservations of a segment", u64::from(mounted.reserved == reserved), 1);
            expect("used bytes of a segment", mounted.segment.used(), mounted.extents.used_bytes());
            let left_out = core.unmounted_writes.left_out(&mounted.segment);
            let left_out = left_out.iter().map(|range| (range.start, range.end - range.start));
            match Extents::rebuild(mounted.extents.size(), taken.iter().copied().chain(left_out)) {
                Ok(made) => {
                    expect("taken bytes of a segment", mounted.extents.used_bytes(), made.used_bytes())
                }
                Err(_) => expect("segments whose ranges overlap", 0, 1),
            }
        }
        (capacity, allocated)
    }

    /// Checks the index of the segments that take new objects.
    fn audit_open_segments(&self, expect: &mut impl FnMut(&str, u64, u64)) {
        let core = &*self.core;
        let open = self.open_segments();
        let mut kept = core.open.numbers().to_vec();
        kept.sort_unstable();
        expect("segments that take new objects", u64::from(kept == open), 1);
        for (place, number) in core.open.numbers().iter().enumerate() {
            let Some(mounted) = core.segments.get(number) else { continue };
            expect("place of an open segment", u64::from(mounted.open == Some(place as u32)), 1);
            let found = core.open.next_with(place, mounted.extents.largest_free().max(1));
            let full = mounted.extents.largest_free() == 0;
            expect("free range of an open segment", u64::from(full || found == Some(place)), 1);
        }
        let longest = open.iter().filter_map(|number| core.segments.get(number));
        let longest = longest.map(|mounted| mounted.extents.largest_free()).max();
        expect("longest free range", core.open.longest(), longest.unwrap_or(0));
        for index in [&core.names, &core.hosts] {
            let mut named: Vec<SegmentNumber> = index.values().flatten().copied().collect();
            named.sort_unstable();
            expect("segments that take new objects, by name or host", u64::from(named == open), 1);
        }
    }

    /// Returns the segments that take new objects, in order: those that are not being drained, and whose client has
    /// reported them to this primary.
    pub(super) fn open_segments(&self) -> Vec<SegmentNumber> {
        let core = &*self.core;
        let clients = self.engine.clients.read();
        let told = |segment: &Segment| {
            segment.number >= core.term_state.first_segment
                || clients.get(&segment.client).is_some_and(|client| !client.inherited)
        };
        let open = |mounted: &&Mounted| mounted.drain_until.is_none() && told(&mounted.segment);
        core.segments.values().filter(open).map(|mounted| mounted.segment.number).collect()
    }

    fn sums(&self) -> Sums {
        let core = &*self.core;
        let mut sums = Sums::default();
        for shard in &self.engine.shards {
            for object in shard.read().iter() {
                let key = KeyHash::of(&object.key);
                sums.digest.add(digest::object(object, key, core.writers.id(object.client)));
                sums.objects += 1;
                let can_go = !object.hard_pinned && object.copy_move().is_none() && object.is_complete();
                sums.evictable += usize::from(can_go);
                sums.soft_pinned += u64::from(object.soft_pin_until() != LogTime(0));
                sums.replicating += usize::from(object.copy_move().is_some());
                if let Some(group) = object.group() {
                    *sums.groups.entry(group.id.clone()).or_default() += 1;
                }
                sums.take(&object.replicas().cloned().collect(), object.size);
                for number in reserved_in(object) {
                    sums.reserved.entry(number).or_default().insert(Reserved::Object(object.id));
                }
                if !object.is_valid() {
                    sums.lost.0 += usize::from(core.processing.contains_key(&object.id));
                    sums.lost.1 += usize::from(object.copy_move().is_some());
                }
            }
        }
        for (id, write) in &core.processing {
            sums.digest.add(digest::processing(*id, write));
        }
        for (record, bytes) in &core.discarded {
            sums.digest.add(digest::discarded(*record, bytes));
            sums.take(&bytes.replicas, bytes.size);
            for number in bytes.written_in() {
                sums.reserved.entry(number).or_default().insert(Reserved::Discarded(*record));
            }
        }
        for mounted in core.segments.values() {
            sums.digest.add(digest::segment(&mounted.segment, mounted.drain_until));
        }
        for (id, client) in self.engine.clients.read().iter() {
            sums.digest.add(digest::client(*id, client));
        }
        sums.digest.add(digest::term_state(&core.term_state));
        for (key, (value, _)) in self.engine.metadata.read().iter() {
            sums.digest.add(digest::metadata(key, value));
        }
        core.tasks.iter().for_each(|task| sums.digest.add(digest::task(task)));
        sums
    }
}
