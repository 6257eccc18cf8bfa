//! Making room: when to evict, how much, and who.

use std::sync::atomic::Ordering;

use crate::engine::eviction::MAX_VICTIMS;
use crate::engine::exempt::Confined;
use crate::engine::format::Format;
use crate::engine::held::RUN;
use crate::engine::record::{EvictRule, LeaseBucket, Record};
use crate::engine::shard::Handle;
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{LogTime, ObjectId, SequenceId, Term};

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
        if self.is_sealed() {
            return 0;
        }
        if self.sequencer(now).held() {
            return self.evict_exempt(now, go_on);
        }
        self.counts.starved.store(false, Ordering::Relaxed);
        let over = used - rules.high_watermark;
        let target = rules.eviction_ratio.max(over + rules.eviction_ratio);
        let at_least = (target / 2.0).max(over);
        self.end_soft_pins(now, go_on);
        let base = self.sequencer(now).core.evictable as f64;
        let share = |ratio: f64| (base * ratio).ceil().max(0.0) as u64;
        let mut evicted = self.evict_up_to(share(target), Order::default(), now, go_on);
        if evicted < share(at_least) && rules.evict_soft_pinned {
            let order = Order { soft_pinned: true, ..Order::default() };
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
        self.evict_up_to(u64::MAX, Order { inherited: true, ..Order::default() }, now, go_on)
    }

    /// Evicts what only this primary can have promised, while everything else is held (R6), and says how many went: these
    /// are the youngest objects, so no more than a few, and only for a write that found no memory. One that finds none
    /// still is remembered until the hold ends.
    fn evict_exempt(&self, now: LogTime, go_on: &mut impl FnMut() -> bool) -> u64 {
        if !self.counts.starved.load(Ordering::Relaxed) {
            return 0;
        }
        let share = self.sequencer(now).core.evictable as f64 * self.rules.eviction_ratio;
        let want = (share.ceil().max(0.0) as u64).min(MAX_EXEMPT);
        let evicted = self.evict_up_to(want, Order { exempt: true, ..Order::default() }, now, go_on);
        if evicted > 0 {
            self.counts.starved.store(false, Ordering::Relaxed);
        }
        evicted
    }

    /// Takes all soft pins off whose time has passed. Others get their turn between records.
    fn end_soft_pins(&self, now: LogTime, go_on: &mut impl FnMut() -> bool) {
        while go_on() && self.sequencer(now).end_some_soft_pins() {}
    }

    fn evict_up_to(
        &self,
        want: u64,
        mut order: Order,
        now: LogTime,
        go_on: &mut impl FnMut() -> bool,
    ) -> u64 {
        let mut evicted = 0;
        while evicted < want && go_on() {
            let round = self.sequencer(now).evict_some(want - evicted, order);
            // Renewed objects have moved back in the order, so every round comes closer to the end.
            if round.evicted == 0 && round.renewed == 0 && round.next.is_none() {
                break;
            }
            order.from = round.next.unwrap_or(order.from);
            evicted += round.evicted as u64;
        }
        evicted
    }
}

/// Who is to go.
#[derive(Clone, Copy, Default)]
struct Order {
    /// Soft-pinned objects, or those without a pin.
    soft_pinned: bool,
    /// Only those of earlier terms, and only as far as their lease ended before this primary could evict at all.
    inherited: bool,
    /// Only those that no earlier primary can have promised (R6).
    exempt: bool,
    /// Those before this position were looked at.
    from: (LeaseBucket, ObjectId),
}

/// What became of a few candidates.
#[derive(Clone, Copy, Default)]
struct Round {
    evicted: usize,
    /// Promises that were written down.
    renewed: usize,
    /// Where to go on, if those that were looked at are done with.
    next: Option<(LeaseBucket, ObjectId)>,
}

/// At most so many objects go at once while others are held: the youngest ones, for a write that found no memory.
const MAX_EXEMPT: u64 = 8 * MAX_VICTIMS as u64;

/// At most so many candidates are looked at for one record while most of them are held: other clients wait meanwhile.
const MAX_LOOKS: usize = 4 * MAX_VICTIMS;

impl Sequencer<'_> {
    /// Takes soft pins off whose time has passed, as many as one record does, and says whether there were any. A rule
    /// that names nobody does that and nothing else.
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
    /// Candidates whose live lease is longer than what is replicated get that written down first, so that the rule
    /// does not name them on any replica. The rest are marked before the record is made: from then on no reader is
    /// promised them. A promise that is over moves its object to a later place when it is written down, unmarked: the
    /// rule stops before that place, or it would name an object that a reader may have been promised meanwhile. Never to
    /// an earlier one: the id stays, also that of a group, and a lease only grows.
    fn evict_some(&mut self, want: u64, order: Order) -> Round {
        // A mark that no record follows would keep readers waiting for ever. A hold may have begun or ended since the
        // order was given; and an earlier format has no rule that spares what the old primary may have promised.
        let possible = self.held() == order.exempt && (!order.exempt || self.core.format >= Format::Two);
        if self.engine.is_sealed() || !possible {
            return Round::default();
        }
        let soft_pinned = order.soft_pinned;
        let reserved_since = self.exempt_since();
        let mut confined = Confined::to(reserved_since);
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
        // What was written in this term has a lease since its End at least: nothing before that need be looked at.
        let first = if order.exempt { LeaseBucket::of(reign.since) } else { LeaseBucket(0) };
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
            if nth % RUN == 0 {
                self.held.fetch(&self.engine.shards, &mut ahead);
            }
            let Some(handle) = self.engine.handle(&self.core, id) else { continue };
            if !self.is_within(&mut confined, handle) {
                continue;
            }
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
            self.commit(&Record::Evict(EvictRule { from, up_to, soft_pinned, reserved_since }));
        }
        Round { evicted: count, renewed: promised.len(), next }
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
