//! Making room: when to evict, how much, and who.

use std::sync::atomic::Ordering;

use crate::engine::eviction::MAX_VICTIMS;
use crate::engine::held::RUN;
use crate::engine::record::{EvictRule, LeaseBucket, Record};
use crate::engine::shard::Handle;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{LogTime, ObjectId, Term};

use super::remove::CHUNK;

impl Engine {
    /// Evicts objects if memory is short, and says how many went. Others get their turn between records.
    pub fn evict(&self, now: LogTime) -> u64 {
        self.evict_while(now, &mut || true)
    }

    /// Evicts objects if memory is short, asking before each chunk whether to go on, and says how many went.
    pub fn evict_while(&self, now: LogTime, go_on: &mut impl FnMut() -> bool) -> u64 {
        let used = self.used_ratio();
        let rules = &self.rules;
        if used <= rules.high_watermark && !self.counts.starved.load(Ordering::Relaxed) {
            return 0;
        }
        // Whoever found no memory is remembered until there may be some (R6).
        if self.is_sealed() || self.sequencer(now).held() {
            return 0;
        }
        self.counts.starved.store(false, Ordering::Relaxed);
        let over = used - rules.high_watermark;
        let target = rules.eviction_ratio.max(over + rules.eviction_ratio);
        let at_least = (target / 2.0).max(over);
        self.end_soft_pins(now, go_on);
        let base = self.sequencer(now).core.evictable as f64;
        let share = |ratio: f64| (base * ratio).ceil().max(0.0) as u64;
        let mut evicted =
            self.evict_up_to(share(target), Order { soft_pinned: false, inherited: false }, now, go_on);
        if evicted < share(at_least) && rules.evict_soft_pinned {
            let order = Order { soft_pinned: true, inherited: false };
            evicted += self.evict_up_to(share(at_least) - evicted, order, now, go_on);
        }
        evicted
    }

    /// Evicts every object of an earlier term whose lease has ended by the time from which on this primary may evict
    /// (R6), and says how many went; those with a soft pin when it has ended. Objects of this term are as good as just
    /// read.
    pub fn evict_expired(&self, now: LogTime) -> u64 {
        self.evict_expired_while(now, &mut || true)
    }

    /// [`Self::evict_expired`], asking before each chunk whether to go on.
    pub fn evict_expired_while(&self, now: LogTime, go_on: &mut impl FnMut() -> bool) -> u64 {
        {
            let sequencer = self.sequencer(now);
            if sequencer.held() || sequencer.core.reign.term == Term(0) {
                return 0;
            }
        }
        self.end_soft_pins(now, go_on);
        self.evict_up_to(u64::MAX, Order { soft_pinned: false, inherited: true }, now, go_on)
    }

    /// Takes all soft pins off whose time has passed. Others get their turn between records.
    fn end_soft_pins(&self, now: LogTime, go_on: &mut impl FnMut() -> bool) {
        while go_on() && self.sequencer(now).end_some_soft_pins() {}
    }

    fn evict_up_to(&self, want: u64, order: Order, now: LogTime, go_on: &mut impl FnMut() -> bool) -> u64 {
        let mut evicted = 0;
        while evicted < want && go_on() {
            let (gone, renewed) = self.sequencer(now).evict_some(want - evicted, order);
            // Renewed objects have moved back in the order, so every round comes closer to the end.
            if gone == 0 && renewed == 0 {
                break;
            }
            evicted += gone as u64;
        }
        evicted
    }
}

/// Who is to go.
#[derive(Clone, Copy)]
struct Order {
    /// Soft-pinned objects, or those without a pin.
    soft_pinned: bool,
    /// Only those of earlier terms, and only as far as their lease ended before this primary could evict at all.
    inherited: bool,
}

impl Sequencer<'_> {
    /// Takes soft pins off whose time has passed, as many as one record does, and says whether there were any. A rule
    /// that names nobody does that and nothing else.
    fn end_some_soft_pins(&mut self) -> bool {
        let ended = !self.engine.is_sealed() && self.core.eviction.has_soft_pins_ended(self.now);
        if ended {
            let rule = EvictRule { up_to: (LeaseBucket(0), ObjectId(0)), soft_pinned: false };
            self.commit(&Record::Evict(rule));
        }
        ended
    }

    /// Evicts about `want` objects, but not many more than one record should. Says how many, and how many promises were
    /// written down.
    ///
    /// Candidates whose live lease is longer than what is replicated get that written down first, so that the rule
    /// does not name them on any replica. The rest are marked before the record is made: from then on no reader is
    /// promised them. A promise that is over moves its object to a later place when it is written down, unmarked: the
    /// rule stops before that place, or it would name an object that a reader may have been promised meanwhile. Never to
    /// an earlier one: the id stays, also that of a group, and a lease only grows.
    fn evict_some(&mut self, want: u64, order: Order) -> (usize, usize) {
        // A mark that no record follows would keep readers waiting for ever.
        if self.engine.is_sealed() {
            return (0, 0);
        }
        let soft_pinned = order.soft_pinned;
        let want = want.min(MAX_VICTIMS as u64) as usize;
        let reign = &self.core.reign;
        // Objects with a later id are of this term.
        let newest = if order.inherited { ObjectId(reign.began.0) } else { ObjectId(u64::MAX) };
        // A whole step of the order: of one that is cut, the rule would name more than were looked at here.
        let whole = LeaseBucket::of(reign.hold_until.max(reign.since)).min(LeaseBucket::ended_by(self.now));
        let ended_by = if order.inherited { whole.end() } else { self.now };
        let mut promised = Vec::new();
        let mut count = 0;
        let mut up_to = None;
        let mut stop = LeaseBucket(u64::MAX);
        let candidates = || self.core.eviction.candidates(ended_by, soft_pinned);
        let mut ahead = candidates().filter_map(|(_, id)| self.engine.handle(&self.core, id));
        let (mut members, mut handles) = (Vec::new(), Vec::new());
        for (nth, (bucket, id)) in candidates().enumerate() {
            if count >= want || promised.len() >= CHUNK || bucket >= stop {
                break;
            }
            if nth % RUN == 0 {
                self.held.fetch(&self.engine.shards, &mut ahead);
            }
            let Some(handle) = self.engine.handle(&self.core, id) else { continue };
            members.clear();
            let ended = self.view(handle, |object| {
                self.core.with_group(object, &mut members);
                self.core.lease_of(object) <= ended_by
            });
            if ended != Some(true) {
                continue;
            }
            handles.clear();
            handles.extend(members.iter().filter_map(|member| self.engine.handle(&self.core, *member)));
            let found = promised.len();
            if self.doom_all(&handles, newest, &mut promised) {
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
            self.commit(&Record::Evict(EvictRule { up_to, soft_pinned }));
        }
        (count, promised.len())
    }

    /// Marks all of these, or none: then the promises that hold them, or that are over but were never written down and
    /// so left their object in the wrong place, are added to the list. Objects after `newest` count as just read.
    fn doom_all(
        &self,
        handles: &[Handle],
        newest: ObjectId,
        promised: &mut Vec<(ObjectId, LogTime)>,
    ) -> bool {
        let mut doomed = Vec::with_capacity(handles.len());
        let found = promised.len();
        for handle in handles {
            let mut objects = self.engine.shards[handle.shard()].objects.write();
            let Some(object) = objects.at_mut(handle.slot()) else { continue };
            let fresh = object.id > newest;
            let mark = if fresh || object.owes_renewal() { None } else { object.doom(self.now, false) };
            match mark {
                Some(lease) => doomed.push((handle, lease)),
                None if fresh => {
                    // Later than now in any case, or it would be looked at for ever.
                    let lease = object.lease().max(self.now.plus(self.engine.rules.lease_ttl.max(1)));
                    promised.push((object.id, lease));
                }
                None => promised.push((object.id, object.lease())),
            }
        }
        if promised.len() == found {
            return true;
        }
        for (handle, lease) in doomed {
            let mut objects = self.engine.shards[handle.shard()].objects.write();
            if let Some(object) = objects.at_mut(handle.slot()) {
                object.spare(lease);
            }
        }
        false
    }
}
