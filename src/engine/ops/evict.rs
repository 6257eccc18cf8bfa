//! Eviction: when, how much, and which objects.

use std::sync::atomic::Ordering;

use crate::engine::chunks::Chunks;
use crate::engine::eviction::MAX_VICTIMS;
use crate::engine::exempt::Confined;
use crate::engine::format::Format;
use crate::engine::key::Handle;
use crate::engine::locked_shards::{LockedShards, MAX_LOCKED};
use crate::engine::record::{EvictRule, LeaseBucket, Record};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{LogTime, ObjectId, SequenceId, Term};

use super::remove::CHUNK;

impl Engine {
    /// Evicts objects if memory is short, and returns how many. Releases the sequencer between records.
    pub fn evict(&self, now: LogTime) -> u64 {
        self.evict_while(now, &mut || true)
    }

    /// Like [`Self::evict`], but asks before each chunk.
    pub fn evict_while(&self, now: LogTime, chunks: &mut dyn Chunks) -> u64 {
        let used = self.used_ratio();
        let settings = &self.settings;
        if used <= settings.high_watermark && !self.counts.starved.load(Ordering::Relaxed) {
            return 0;
        }
        if self.is_sealed() {
            return 0;
        }
        if self.sequencer(now).in_reader_hold() {
            return self.evict_exempt(now, chunks);
        }
        self.counts.starved.store(false, Ordering::Relaxed);
        let over = used - settings.high_watermark;
        let target = settings.eviction_ratio.max(over + settings.eviction_ratio);
        let at_least = (target / 2.0).max(over);
        self.end_soft_pins(now, chunks);
        let base = self.sequencer(now).core.evictable as f64;
        let share = |ratio: f64| (base * ratio).ceil().max(0.0) as u64;
        let mut evicted = self.evict_up_to(share(target), Order::default(), now, chunks);
        if evicted < share(at_least) && settings.evict_soft_pinned {
            let order = Order { soft_pinned: true, ..Order::default() };
            evicted += self.evict_up_to(share(at_least) - evicted, order, now, chunks);
        }
        evicted
    }

    /// Evicts every object of an earlier term whose lease ended before this primary could evict at all (R6), and
    /// returns how many. A soft-pinned object is evicted only if its pin has ended. Objects of this term count as just
    /// read.
    pub fn evict_expired(&self, now: LogTime) -> u64 {
        self.evict_expired_while(now, &mut || true)
    }

    /// Like [`Self::evict_expired`], but asks before each chunk.
    pub fn evict_expired_while(&self, now: LogTime, chunks: &mut dyn Chunks) -> u64 {
        {
            let sequencer = self.sequencer(now);
            if sequencer.in_reader_hold() || sequencer.core.term_state.term == Term(0) {
                return 0;
            }
        }
        self.end_soft_pins(now, chunks);
        self.evict_up_to(u64::MAX, Order { inherited: true, ..Order::default() }, now, chunks)
    }

    /// Evicts, during a hold, objects that only this primary can have promised to readers (R6), and returns how many.
    /// These are the youngest objects, so it evicts only a few, and only for a write that found no memory. If none can
    /// be evicted, the need is remembered until the hold ends.
    fn evict_exempt(&self, now: LogTime, chunks: &mut dyn Chunks) -> u64 {
        if !self.counts.starved.load(Ordering::Relaxed) {
            return 0;
        }
        let share = self.sequencer(now).core.evictable as f64 * self.settings.eviction_ratio;
        let want = (share.ceil().max(0.0) as u64).min(MAX_EXEMPT);
        let evicted = self.evict_up_to(want, Order { exempt: true, ..Order::default() }, now, chunks);
        if evicted > 0 {
            self.counts.starved.store(false, Ordering::Relaxed);
        }
        evicted
    }

    /// Removes all soft pins whose time has passed. Releases the sequencer between records.
    fn end_soft_pins(&self, now: LogTime, chunks: &mut dyn Chunks) {
        while chunks.next_chunk() && self.run_chunk(now, chunks, |sequencer| sequencer.end_some_soft_pins()) {
        }
    }

    fn evict_up_to(&self, want: u64, mut order: Order, now: LogTime, chunks: &mut dyn Chunks) -> u64 {
        let mut evicted = 0;
        while evicted < want && chunks.next_chunk() {
            let round = self.run_chunk(now, chunks, |sequencer| sequencer.evict_some(want - evicted, order));
            // Renewed objects have moved to a later position, so every round comes closer to the end.
            if round.evicted == 0 && round.renewed == 0 && round.next.is_none() {
                break;
            }
            order.from = round.next.unwrap_or(order.from);
            evicted += round.evicted as u64;
        }
        evicted
    }
}

/// Which objects to evict, and where the search for them starts.
#[derive(Clone, Copy, Default)]
struct Order {
    /// Soft-pinned objects instead of those without a pin.
    soft_pinned: bool,
    /// Only objects of earlier terms whose lease ended before this primary could evict at all.
    inherited: bool,
    /// Only objects that no earlier primary can have promised to readers (R6).
    exempt: bool,
    /// Where to start; positions before it were visited.
    from: (LeaseBucket, ObjectId),
}

/// Outcome of one step of an eviction.
#[derive(Clone, Copy, Default)]
struct Round {
    evicted: usize,
    /// Leases that were written to the log.
    renewed: usize,
    /// Where to continue, if the visited candidates need not be visited again.
    next: Option<(LeaseBucket, ObjectId)>,
}

/// Most objects that one eviction removes during a hold: they are the youngest ones, and only make way for a write that
/// found no memory.
const MAX_EXEMPT: u64 = 8 * MAX_VICTIMS as u64;

/// Most candidates visited for one record during a hold, when most of them are skipped: other clients wait meanwhile.
const MAX_LOOKS: usize = 4 * MAX_VICTIMS;

impl Sequencer<'_> {
    /// Removes soft pins whose time has passed, as many as one record does, and returns whether there were any.
    /// Applying an `Evict` record does that; this one names no victims.
    fn end_some_soft_pins(&mut self) -> bool {
        let ended = !self.engine.is_sealed() && self.core.eviction.has_soft_pins_ended(self.now);
        if ended {
            let nothing = (LeaseBucket(0), ObjectId(0));
            let reserved_since = SequenceId(0);
            let rule = EvictRule { from: nothing, up_to: nothing, soft_pinned: false, reserved_since };
            self.commit(&Record::Evict(rule));
        }
        ended
    }

    /// Evicts about `want` objects, but not many more than one record should.
    ///
    /// A candidate whose live lease is longer than its replicated one gets that lease written to the log first, so that
    /// the rule does not name it on any replica. The other candidates are marked before the record is made: from then
    /// on no reader is granted a lease on them. Even a lease that is over moves its object to a later position when it
    /// is logged, and leaves it unmarked: the rule stops before that position, or it would name an object on which a
    /// reader may have been granted a lease meanwhile. An object never moves to an earlier position: its id stays, also
    /// that of a group, and a lease only grows.
    fn evict_some(&mut self, want: u64, order: Order) -> Round {
        // A sealed engine commits nothing, and a mark without an eviction would keep readers waiting for ever. A hold
        // may have begun or ended since `order` was made; and in format 1 a rule cannot spare what the old primary may
        // have promised to readers (R6).
        let possible =
            self.in_reader_hold() == order.exempt && (!order.exempt || self.core.format >= Format::Two);
        if self.engine.is_sealed() || !possible {
            return Round::default();
        }
        let soft_pinned = order.soft_pinned;
        let reserved_since = self.exempt_since();
        let mut confined = Confined::to(reserved_since);
        let want = want.min(MAX_VICTIMS as u64) as usize;
        let term_state = &self.core.term_state;
        // Objects with a later id are of this term.
        let newest = if order.inherited { ObjectId(term_state.began.0) } else { ObjectId(u64::MAX) };
        // Only whole buckets: of a part of one the rule would name more objects than were checked here.
        let whole =
            LeaseBucket::of(term_state.hold_until.max(term_state.since)).min(LeaseBucket::ended_by(self.now));
        let ended_by = if order.inherited { whole.end() } else { self.now };
        let mut promised = Vec::new();
        let mut count = 0;
        let mut up_to = None;
        let mut stop = LeaseBucket(u64::MAX);
        // An object written in this term has a replicated lease no earlier than its End, so older buckets can be
        // skipped.
        let first = if order.exempt { LeaseBucket::of(term_state.since) } else { LeaseBucket(0) };
        let from = order.from.max((first, ObjectId(0)));
        let mut next = None;
        let candidates = || self.core.eviction.candidates(from, ended_by, soft_pinned);
        let mut ahead = candidates().filter_map(|(_, id)| self.engine.handle(&self.core, id));
        let (mut members, mut handles) = (Vec::new(), Vec::new());
        for (nth, (bucket, id)) in candidates().enumerate() {
            if count >= want || promised.len() >= CHUNK || bucket >= stop {
                break;
            }
            if order.exempt && nth >= MAX_LOOKS {
                next = Some((bucket, id));
                break;
            }
            if nth % MAX_LOCKED == 0 {
                self.locked.fetch(&self.engine.shards, &mut ahead);
            }
            let Some(handle) = self.engine.handle(&self.core, id) else { continue };
            if !self.is_within(&mut confined, handle) {
                continue;
            }
            members.clear();
            let ended = self.with_object(handle, |object| {
                self.core.with_group(object, &mut members);
                self.core.lease_of(object) <= ended_by
            });
            if ended != Some(true) {
                continue;
            }
            handles.clear();
            handles.extend(members.iter().filter_map(|member| self.engine.handle(&self.core, *member)));
            let found = promised.len();
            if self.engine.doom_all(&mut self.locked, self.now, &handles, newest, &mut promised) {
                count += handles.len();
                up_to = Some((bucket, id));
            }
            let moved_to = promised[found..].iter().map(|(_, lease)| LeaseBucket::of(*lease));
            stop = moved_to.fold(stop, LeaseBucket::min);
        }
        drop(ahead);
        for leases in promised.chunks(CHUNK) {
            self.commit(&Record::RenewLeases { leases });
        }
        if let Some(up_to) = up_to {
            self.commit(&Record::Evict(EvictRule { from, up_to, soft_pinned, reserved_since }));
        }
        Round { evicted: count, renewed: promised.len(), next }
    }
}

impl Engine {
    /// Marks all of these objects and returns true, or marks none and returns false. Then it adds to `promised` the
    /// leases that protect them, and those that are over but were never logged, so that their object is at too early a
    /// position. Objects with an id above `newest` count as just read.
    fn doom_all(
        &self,
        locked: &mut LockedShards<'_>,
        now: LogTime,
        handles: &[Handle],
        newest: ObjectId,
        promised: &mut Vec<(ObjectId, LogTime)>,
    ) -> bool {
        let mut doomed = Vec::with_capacity(handles.len());
        let found = promised.len();
        for handle in handles {
            let mut objects = locked.change(&self.shards, handle.shard());
            let Some(object) = objects.at_mut(handle.slot()) else { continue };
            let fresh = object.id > newest;
            let mark = if fresh || object.owes_renewal() { None } else { object.doom(now, false) };
            match mark {
                Some(lease) => doomed.push((handle, lease)),
                None if fresh => {
                    // Later than now in any case, or the object would be a candidate again at once, for ever.
                    let lease = object.lease().max(now.plus(self.settings.lease_ttl_ms.max(1)));
                    promised.push((object.id, lease));
                }
                None => promised.push((object.id, object.lease())),
            }
        }
        if promised.len() == found {
            return true;
        }
        for (handle, lease) in doomed {
            let mut objects = locked.change(&self.shards, handle.shard());
            if let Some(object) = objects.at_mut(handle.slot()) {
                object.spare(lease);
            }
        }
        false
    }
}
