//! Groups: objects that are read and evicted together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use super::eviction::Standing;
use super::record::LeaseBucket;
use super::types::{LogTime, ObjectId};

/// What readers need of a group: the promise that holds for all its members.
#[derive(Debug)]
pub struct Group {
    /// The name that writers gave it.
    pub id: Box<[u8]>,
    lease: AtomicU64,
}

impl Group {
    /// A group that nobody has read.
    #[must_use]
    pub fn new(id: &[u8]) -> Self {
        Self { id: id.into(), lease: AtomicU64::new(0) }
    }

    /// Until when readers were promised every member.
    #[must_use]
    pub fn lease(&self) -> LogTime {
        LogTime(self.lease.load(Ordering::Acquire))
    }

    /// Promises every member for `ttl_ms`, but only when less than half of that is left of the last promise.
    pub fn promise(&self, now: LogTime, ttl_ms: u64) {
        if self.lease.load(Ordering::Acquire) < now.plus(ttl_ms / 2).0 {
            self.lease.fetch_max(now.plus(ttl_ms).0, Ordering::AcqRel);
        }
    }
}

/// What eviction needs of a group: who is in it and whether it could go. Members with a pin of their own are not
/// counted here: they stand alone, and the rest of the group can go without them.
#[derive(Debug, Default)]
pub struct Membership {
    /// Every object of the group, pinned ones too.
    pub objects: usize,
    /// Every member without a pin.
    pub members: BTreeSet<ObjectId>,
    /// The members that could be evicted, by lease. The group is a candidate when this is all of them, at the place
    /// of its last one.
    pub ready: BTreeSet<(LogTime, ObjectId)>,
}

impl Membership {
    /// The group's standing in the order of eviction, or `None` while some member cannot go.
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        if self.ready.len() != self.members.len() {
            return None;
        }
        let (lease, id) = *self.ready.last()?;
        Some(Standing { bucket: LeaseBucket::of(lease), id, soft_pin_until: LogTime(0) })
    }
}
