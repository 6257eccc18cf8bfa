//! The order of eviction, and who goes by a rule.
//!
//! Objects that could be evicted are kept in order of lease (in small steps) and id, so that finding the next victims
//! costs as much as there are victims, however many objects there are. An object that is being written, hard-pinned or
//! being copied is not in the index at all. Groups go whole or not at all: a group stands in the index once, with the
//! last of its members' leases and the last of their ids, and only while all its members could go.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringTreemap;

use super::record::{EvictRule, LeaseBucket};
use super::types::{LogTime, ObjectId};

/// A record evicts no more once it has so many victims: other clients wait for some milliseconds meanwhile. A group that is the
/// last of them goes whole, whatever its size.
pub const MAX_VICTIMS: usize = 1024;

/// At most so many soft pins are taken off by one record, for the same reason. What a record means rests on this number.
const MAX_PINS: usize = 1024;

/// Who could be evicted, in order.
#[derive(Debug, Default)]
pub struct EvictionIndex {
    plain: Ordered,
    soft: Ordered,
    /// When soft pins end. A pin that has ended is taken off by the next eviction.
    soft_ends: BTreeSet<(LogTime, ObjectId)>,
}

/// Ids by bucket.
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

/// From here on a bitmap is smaller.
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

    /// From a position to the end of a bucket.
    fn iter(
        &self,
        first: (LeaseBucket, ObjectId),
        last: LeaseBucket,
    ) -> impl Iterator<Item = (LeaseBucket, ObjectId)> {
        // A range that ends before it begins is empty, but the map does not take it.
        let buckets = self.buckets.range(first.0.min(last)..=last);
        buckets
            .flat_map(|(bucket, ids)| ids.iter().map(move |id| (*bucket, ObjectId(id))))
            .skip_while(move |place| *place < first)
    }
}

/// Where an object, or the group that it stands for, is in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Its lease.
    pub bucket: LeaseBucket,
    /// Its id.
    pub id: ObjectId,
    /// Until when it is spared if possible; zero if not.
    pub soft_pin_until: LogTime,
}

impl EvictionIndex {
    /// Adds a candidate.
    pub fn insert(&mut self, standing: Standing) {
        if standing.soft_pin_until == LogTime(0) {
            self.plain.insert(standing.bucket, standing.id);
        } else {
            self.soft.insert(standing.bucket, standing.id);
            self.soft_ends.insert((standing.soft_pin_until, standing.id));
        }
    }

    /// Takes a candidate out.
    pub fn remove(&mut self, standing: Standing) {
        if standing.soft_pin_until == LogTime(0) {
            self.plain.remove(standing.bucket, standing.id);
        } else {
            self.soft.remove(standing.bucket, standing.id);
            self.soft_ends.remove(&(standing.soft_pin_until, standing.id));
        }
    }

    /// The candidates whose lease may have ended by `now`, in order from a position on. Those of the last step have to be
    /// looked at.
    pub fn candidates(
        &self,
        from: (LeaseBucket, ObjectId),
        now: LogTime,
        soft_pinned: bool,
    ) -> impl Iterator<Item = (LeaseBucket, ObjectId)> {
        let order = if soft_pinned { &self.soft } else { &self.plain };
        order.iter(from, LeaseBucket::of(now))
    }

    /// The candidates that a rule names: a function of the index and the rule, and of nothing else.
    #[must_use]
    pub fn named_by(&self, rule: &EvictRule) -> Vec<(LeaseBucket, ObjectId)> {
        let order = if rule.soft_pinned { &self.soft } else { &self.plain };
        order.iter(rule.from, rule.up_to.0).take_while(|place| *place <= rule.up_to).collect()
    }

    /// The objects whose soft pin has ended by `now`, those that ended first and no more than one record takes off.
    #[must_use]
    pub fn soft_pins_ended(&self, now: LogTime) -> Vec<ObjectId> {
        let ended = self.soft_ends.iter().take_while(|(until, _)| *until <= now);
        ended.map(|(_, id)| *id).take(MAX_PINS).collect()
    }

    /// Whether any soft pin has ended by `now`.
    #[must_use]
    pub fn has_soft_pins_ended(&self, now: LogTime) -> bool {
        self.soft_ends.first().is_some_and(|(until, _)| *until <= now)
    }
}
