//! Groups: objects that are read and evicted together.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::eviction::Standing;
use super::record::LeaseBucket;
use super::types::{LogTime, ObjectId};

/// The part of a group that readers use: the lease that covers its members.
#[derive(Debug)]
pub struct Group {
    /// The name that writers gave it.
    pub id: Box<[u8]>,
    lease: AtomicU64,
    /// The last object id that the lease covers: a member that joins later is covered by the next lease.
    covers: AtomicU64,
    newest: AtomicU64,
    /// Whether it is on a list of groups whose lease may not be replicated.
    listed: AtomicBool,
}

impl Group {
    /// Creates a group without a lease.
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

    /// Returns until when readers were promised this member.
    #[must_use]
    pub fn lease(&self, member: ObjectId) -> LogTime {
        if member.0 > self.covers.load(Ordering::Acquire) {
            return LogTime(0);
        }
        LogTime(self.lease.load(Ordering::Acquire))
    }

    /// Grants a lease of `ttl_ms` on every member, but only when less than half of that is left of the last one, or
    /// when another member has joined since. Returns whether the group has to be added to a list. The order of steps is
    /// that of [`super::object::Object::promise`].
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

    /// Returns until when any member was promised to readers.
    #[must_use]
    pub fn until(&self) -> LogTime {
        LogTime(self.lease.load(Ordering::SeqCst))
    }

    /// Marks the group as being on a list. Returns false if it was already.
    pub fn list(&self) -> bool {
        !self.listed.swap(true, Ordering::SeqCst)
    }

    /// Marks the group as taken off its list.
    pub fn unlist(&self) {
        self.listed.store(false, Ordering::SeqCst);
    }

    /// Notes a new member: the newest one has the highest id.
    pub fn joined(&self, member: ObjectId) {
        self.newest.fetch_max(member.0, Ordering::AcqRel);
    }
}

/// The part of a group that eviction uses: its members, and whether it could be evicted. Members with a pin of their
/// own stand alone, and the rest of the group can be evicted without them.
#[derive(Debug, Default)]
pub struct Membership {
    /// Every member without a pin.
    pub members: BTreeSet<ObjectId>,
    pub pinned: BTreeSet<ObjectId>,
    /// The members that could be evicted, by lease. The group is a candidate when this is all of them.
    pub ready: BTreeSet<(LogTime, ObjectId)>,
}

impl Membership {
    /// Returns how many objects the group has, pinned ones too.
    #[must_use]
    pub fn len(&self) -> usize {
        self.members.len() + self.pinned.len()
    }

    /// Returns whether the group has no object.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the group's standing in the order of eviction, or `None` while some member cannot be evicted: with the
    /// lease that ends last, and the id of its newest member. That id does not depend on which member was leased, so a
    /// lease that is written to the log moves a group only to a later position, as it does an object (INV-7).
    #[must_use]
    pub fn standing(&self) -> Option<Standing> {
        if self.ready.len() != self.members.len() {
            return None;
        }
        let id = *self.members.last()?;
        Some(Standing { bucket: LeaseBucket::of(self.lease()), id, soft_pin_until: LogTime(0) })
    }

    /// Returns the replicated lease that ends last, of members that could be evicted.
    #[must_use]
    pub fn lease(&self) -> LogTime {
        self.ready.last().map_or(LogTime(0), |(lease, _)| *lease)
    }
}
