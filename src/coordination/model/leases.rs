//! Leases: the time to live of each, and the keys that are attached to it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;

use crate::coordination::model::steps::Refusal;
use crate::coordination::types::LeaseId;

/// etcd raises shorter times to live to one and a half election timeouts, rounded up to seconds.
const MIN_TTL_SECONDS: i64 = 2;

/// etcd refuses longer times to live.
const MAX_TTL_SECONDS: i64 = 9_000_000_000;

/// A lease with its keys.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub ttl_seconds: i64,
    pub expires: Duration,
    pub keys: BTreeSet<Bytes>,
}

/// All leases, also in the order in which they end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Leases {
    leases: BTreeMap<LeaseId, Lease>,
    by_expiry: BTreeSet<(Duration, LeaseId)>,
    last: i64,
}

impl Leases {
    /// Grants a lease, with the next free id if none is given.
    pub(crate) fn grant(
        &mut self,
        now: Duration,
        id: LeaseId,
        ttl_seconds: i64,
    ) -> Result<(LeaseId, i64), Refusal> {
        if ttl_seconds > MAX_TTL_SECONDS {
            return Err(Refusal::TtlTooLarge);
        }
        let id = if id == LeaseId::default() { self.next_id() } else { id };
        if self.leases.contains_key(&id) {
            return Err(Refusal::LeaseExists);
        }
        let ttl_seconds = ttl_seconds.max(MIN_TTL_SECONDS);
        let expires = now.saturating_add(seconds(ttl_seconds));
        self.leases.insert(id, Lease { ttl_seconds, expires, keys: BTreeSet::new() });
        self.by_expiry.insert((expires, id));
        Ok((id, ttl_seconds))
    }

    fn next_id(&mut self) -> LeaseId {
        loop {
            self.last = self.last.wrapping_add(1).max(1);
            if !self.leases.contains_key(&LeaseId(self.last)) {
                return LeaseId(self.last);
            }
        }
    }

    /// Renews a lease. Returns its time to live, or `None` if there is no such lease.
    pub(crate) fn keep_alive(&mut self, now: Duration, id: LeaseId) -> Option<i64> {
        let lease = self.leases.get_mut(&id)?;
        self.by_expiry.remove(&(lease.expires, id));
        lease.expires = now.saturating_add(seconds(lease.ttl_seconds));
        self.by_expiry.insert((lease.expires, id));
        Some(lease.ttl_seconds)
    }

    /// Ends a lease; the caller has to delete its keys.
    pub(crate) fn remove(&mut self, id: LeaseId) -> Option<Lease> {
        let lease = self.leases.remove(&id)?;
        self.by_expiry.remove(&(lease.expires, id));
        Some(lease)
    }

    pub(crate) fn get(&self, id: LeaseId) -> Option<&Lease> {
        self.leases.get(&id)
    }

    pub(crate) fn count(&self) -> usize {
        self.leases.len()
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = LeaseId> {
        self.leases.keys().copied()
    }

    /// Attaches a key to a lease, so that it is deleted with it.
    pub(crate) fn attach(&mut self, id: LeaseId, key: &Bytes) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.insert(key.clone());
        }
    }

    /// Detaches a key from a lease.
    pub(crate) fn detach(&mut self, id: LeaseId, key: &[u8]) {
        if let Some(lease) = self.leases.get_mut(&id) {
            lease.keys.remove(key);
        }
    }

    /// Returns the lease that ends first, and when.
    pub(crate) fn first(&self) -> Option<(Duration, LeaseId)> {
        self.by_expiry.first().copied()
    }
}

fn seconds(seconds: i64) -> Duration {
    Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
}
