//! The order of eviction, and which objects a rule names.
//!
//! Objects that could be evicted are kept in order of lease (in small buckets) and id, so that the cost of finding the
//! next victims depends on their number, not on that of all objects. An object that is being written, hard-pinned or
//! being copied is not in the index at all. Groups are evicted as a whole or not at all: a group is in the index once,
//! with the last of its members' leases and the last of their ids, and only while all its members could be evicted.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringTreemap;

use super::record::{EvictRule, LeaseBucket};
use super::types::{LogTime, ObjectId};

/// A record evicts no more once it has this many victims: other clients wait for some milliseconds meanwhile. A group
/// that is the last of them is evicted whole, whatever its size.
pub const MAX_VICTIMS: usize = 1024;

/// Most soft pins that one record removes, for the same reason. To change this number changes what a record means
/// (INV-8).
const MAX_PINS: usize = 1024;

/// Candidates for eviction, in order.
#[derive(Debug, Default)]
pub struct EvictionIndex {
    plain: Ordered,
    soft: Ordered,
    /// Ends of soft pins. A pin that has ended is removed by the next eviction.
    soft_ends: BTreeSet<(LogTime, ObjectId)>,
}

/// Ids of candidates, by the bucket of their lease.
#[derive(Debug, Default)]
struct Ordered {
    buckets: BTreeMap<LeaseBucket, Ids>,
}

/// Ids in order. A bitmap of many takes a bit or two for each object where a tree would take some thirty bytes, but it
/// takes hundreds of bytes to begin with.
#[derive(Debug)]
enum Ids {
    Few(Vec<u64>),
    Many(RoaringTreemap),
}

/// With more ids than this a bitmap is smaller.
const MANY: usize = 48;

impl Default for Ids {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl Ids {
    fn insert(&mut self, id: u64) {
        match self {
            Self::Few(ids) => {
                let Err(place) = ids.binary_search(&id) else { return };
                ids.insert(place, id);
                if ids.len() > MANY {
                    *self = Self::Many(ids.iter().copied().collect());
                }
            }
            Self::Many(ids) => {
                ids.insert(id);
            }
        }
    }

    fn remove(&mut self, id: u64) {
        match self {
            Self::Few(ids) => {
                if let Ok(place) = ids.binary_search(&id) {
                    ids.remove(place);
                }
            }
            Self::Many(ids) => {
                ids.remove(id);
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Few(ids) => ids.is_empty(),
            Self::Many(ids) => ids.is_empty(),
        }
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        let (few, many) = match self {
            Self::Few(ids) => (Some(ids.iter().copied()), None),
            Self::Many(ids) => (None, Some(ids.iter())),
        };
        few.into_iter().flatten().chain(many.into_iter().flatten())
    }
}

impl Ordered {
    fn insert(&mut self, bucket: LeaseBucket, id: ObjectId) {
        self.buckets.entry(bucket).or_default().insert(id.0);
    }

    fn remove(&mut self, bucket: LeaseBucket, id: ObjectId) {
        if let Some(ids) = self.buckets.get_mut(&bucket) {
            ids.remove(id.0);
            if ids.is_empty() {
                self.buckets.remove(&bucket);
            }
        }
    }

    /// Iterates from a position to the end of a bucket.
    fn iter(
        &self,
        first: (LeaseBucket, ObjectId),
        last: LeaseBucket,
    ) -> impl Iterator<Item = (LeaseBucket, ObjectId)> {
        // `BTreeMap::range` panics if the range ends before it begins.
        let buckets = self.buckets.range(first.0.min(last)..=last);
        buckets
            .flat_map(|(bucket, ids)| ids.iter().map(move |id| (*bucket, ObjectId(id))))
            .skip_while(move |place| *place < first)
    }
}

/// Position of an object, or of the group that it stands for, in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    pub bucket: LeaseBucket,
    pub id: ObjectId,
    /// Until when it is spared if possible; zero if not.
    pub soft_pin_until: LogTime,
}

impl EvictionIndex {
    /// Adds a candidate, with or without a soft pin.
    pub fn insert(&mut self, standing: Standing) {
        if standing.soft_pin_until == LogTime(0) {
            self.plain.insert(standing.bucket, standing.id);
        } else {
            self.soft.insert(standing.bucket, standing.id);
            self.soft_ends.insert((standing.soft_pin_until, standing.id));
        }
    }

    /// Removes a candidate, which has to be as it was inserted.
    pub fn remove(&mut self, standing: Standing) {
        if standing.soft_pin_until == LogTime(0) {
            self.plain.remove(standing.bucket, standing.id);
        } else {
            self.soft.remove(standing.bucket, standing.id);
            self.soft_ends.remove(&(standing.soft_pin_until, standing.id));
        }
    }

    /// Returns the candidates whose lease may have ended by `now`, in order, from a position on. The caller has to
    /// check the leases of those in the last bucket.
    pub fn candidates(
        &self,
        from: (LeaseBucket, ObjectId),
        now: LogTime,
        soft_pinned: bool,
    ) -> impl Iterator<Item = (LeaseBucket, ObjectId)> {
        let order = if soft_pinned { &self.soft } else { &self.plain };
        order.iter(from, LeaseBucket::of(now))
    }

    /// Returns the candidates that a rule names: a function of the index and the rule, and of nothing else.
    #[must_use]
    pub fn named_by(&self, rule: &EvictRule) -> Vec<(LeaseBucket, ObjectId)> {
        let order = if rule.soft_pinned { &self.soft } else { &self.plain };
        order.iter(rule.from, rule.up_to.0).take_while(|place| *place <= rule.up_to).collect()
    }

    /// Returns the objects whose soft pin has ended by `now`, the earliest first and no more than one record handles.
    #[must_use]
    pub fn soft_pins_ended(&self, now: LogTime) -> Vec<ObjectId> {
        let ended = self.soft_ends.iter().take_while(|(until, _)| *until <= now);
        ended.map(|(_, id)| *id).take(MAX_PINS).collect()
    }

    /// Returns whether any soft pin has ended by `now`.
    #[must_use]
    pub fn has_soft_pins_ended(&self, now: LogTime) -> bool {
        self.soft_ends.first().is_some_and(|(until, _)| *until <= now)
    }
}
