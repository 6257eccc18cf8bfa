//! Groups: objects that are read and evicted together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::eviction::Standing;
use super::record::LeaseBucket;
use super::types::{LogTime, ObjectId};

/// What readers need of a group: the promise that holds for all its members.
#[derive(Debug)]
pub struct Group {
    /// The name that writers gave it.
    pub id: Box<[u8]>,
    lease: AtomicU64,
    /// The last object that the promise covers: who joins later has to wait for the next one.
    covers: AtomicU64,
    newest: AtomicU64,
    /// Whether it is on a list of groups whose promise may not be replicated.
    listed: AtomicBool,
}

impl Group {
    /// A group that nobody has read.
    #[must_use]
    pub fn new(id: &[u8]) -> Self {
        Self {
            id: id.into(),
            lease: AtomicU64::new(0),
            covers: AtomicU64::new(0),
            newest: AtomicU64::new(0),
            listed: AtomicBool::new(false),
        }
    }

    /// Until when readers were promised this member.
    #[must_use]
    pub fn lease(&self, member: ObjectId) -> LogTime {
        if member.0 > self.covers.load(Ordering::Acquire) {
            return LogTime(0);
        }
        LogTime(self.lease.load(Ordering::Acquire))
    }

    /// Promises every member for `ttl_ms`, but only when less than half of that is left of the last promise, or when
    /// another member has joined since. True if the group has to be added to a list; the order of steps is that of
    /// [`super::object::Object::promise`].
    pub fn promise(&self, now: LogTime, ttl_ms: u64) -> bool {
        let newest = self.newest.load(Ordering::Acquire);
        let due = self.lease.load(Ordering::Acquire) < now.plus(ttl_ms / 2).0;
        if due || newest > self.covers.load(Ordering::Acquire) {
            self.lease.fetch_max(now.plus(ttl_ms).0, Ordering::SeqCst);
            self.covers.fetch_max(newest, Ordering::SeqCst);
            return !self.listed.load(Ordering::SeqCst) && self.list();
        }
        false
    }

    /// Until when any member was promised.
    #[must_use]
    pub fn until(&self) -> LogTime {
        LogTime(self.lease.load(Ordering::SeqCst))
    }

    /// Marks the group as being on a list. False if it was already.
    pub fn list(&self) -> bool {
        !self.listed.swap(true, Ordering::SeqCst)
    }

    /// Marks the group as taken off its list.
    pub fn unlist(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }

    /// Another member.
    pub fn joined(&self, member: ObjectId) {
        self.newest.fetch_max(member.0, Ordering::AcqRel);
    }
}

/// What eviction needs of a group: who is in it and whether it could go. Members with a pin of their own stand alone, and
/// the rest of the group can go without them.
#[derive(Debug, Default)]
pub struct Membership {
    /// Every member without a pin.
    pub members: BTreeSet<ObjectId>,
    /// Every member with one.
    pub pinned: BTreeSet<ObjectId>,
    /// The members that could be evicted, by lease. The group is a candidate when this is all of them.
    pub ready: BTreeSet<(LogTime, ObjectId)>,
}

impl Membership {
    /// How many objects the group has, pinned ones too.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len() + self.pinned.len()
    }

    /// Whether the group has no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The group's standing in the order of eviction, or `None` while some member cannot go: with the lease that ends
    /// last, under the name of its newest member. That is the same one whoever is promised, so a promise that is
    /// written down moves a group only ever back in the order, as it does an object (INV-7).
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        if self.ready.len() != self.members.len() {
            return None;
        }
        let id = *self.members.last()?;
        Some(Standing { bucket: LeaseBucket::of(self.lease()), id, soft_pin_until: LogTime(0) })
    }

    /// The replicated lease that ends last, of those who could go.
    #[must_use]
    pub fn lease(&self) -> LogTime {
        self.ready.last().map_or(LogTime(0), |(lease, _)| *lease)
    }
}
