//! A model of etcd: revisions, transactions, leases, watches and compaction as in etcd, but in memory and without a
//! clock, threads or random numbers of its own. Time is an argument, so the same calls at the same times give the same
//! answers. The simulator runs masters against it; the embedded store adds a file and a server to it.
//!
//! It answers as etcd 3.6 does with its default limits; the tests in `tests/coordination` run the same requests against
//! both. One thing is stricter: a transaction that writes a key and deletes an unbounded range that contains it is
//! refused like any other that changes a key twice, where etcd accepts this one.

pub(crate) mod checkpoint;
mod convert;
pub(crate) mod entries;
pub(crate) mod history;
pub(crate) mod leases;
pub(crate) mod steps;
#[cfg(test)]
mod tests;
mod txn;
mod watches;

use std::time::Duration;

use crate::coordination::model::history::History;
use crate::coordination::model::leases::Leases;
use crate::coordination::model::steps::{Found, Outcome, Program, Read, Refusal};
use crate::coordination::model::watches::Watches;
use crate::coordination::types::{Failure, LeaseId, Request, Response};

pub use watches::WatchId;

/// A model of etcd: keys with their history, leases and watches.
#[derive(Clone, Debug)]
pub struct Model {
    history: History,
    leases: Leases,
    watches: Watches,
}

impl Default for Model {
    fn default() -> Self {
        Self::new()
    }
}

impl Model {
    /// Creates a model that was never written to.
    #[must_use]
    pub fn new() -> Self {
        Self { history: History::new(), leases: Leases::default(), watches: Watches::default() }
    }

    /// Returns the newest revision; 1 if nothing was written yet, as in etcd.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.history.revision()
    }

    /// Returns the oldest revision that can be read; zero if none was compacted.
    #[must_use]
    pub fn compacted(&self) -> u64 {
        self.history.compacted()
    }

    /// Answers a request at a time that is not before that of any earlier call.
    ///
    /// # Errors
    ///
    /// If etcd would refuse it.
    pub fn call(&mut self, now: Duration, request: &Request) -> Result<Response, Failure> {
        self.advance(now);
        self.answer(now, request).map_err(|refusal| match refusal {
            Refusal::Compacted => Failure::Compacted { oldest: self.history.compacted() },
            Refusal::LeaseNotFound => Failure::LeaseNotFound,
            other => Failure::Refused(other.to_string()),
        })
    }

    fn answer(&mut self, now: Duration, request: &Request) -> Result<Response, Refusal> {
        match request {
            Request::Txn(txn) => {
                let (succeeded, outcomes) = self.transact(&convert::program(txn))?;
                let results = outcomes.into_iter().filter_map(convert::result).collect();
                Ok(Response::Txn { revision: self.revision(), succeeded, results })
            }
            Request::Get(get) => {
                let page = convert::page(self.read(&convert::read(get))?);
                Ok(Response::Got { revision: self.revision(), page })
            }
            Request::LeaseGrant { ttl_seconds } => {
                let (lease, ttl_seconds) = self.grant(now, LeaseId::default(), *ttl_seconds)?;
                Ok(Response::LeaseGranted { lease, ttl_seconds })
            }
            Request::LeaseKeepAlive { lease } => {
                let ttl_seconds = self.keep_alive(now, *lease).unwrap_or(0);
                Ok(Response::LeaseKeptAlive { ttl_seconds })
            }
            Request::LeaseRevoke { lease } => {
                self.revoke(*lease);
                Ok(Response::LeaseRevoked)
            }
            Request::Compact { revision } => {
                self.compact(*revision)?;
                Ok(Response::Compacted)
            }
        }
    }

    /// Carries out a transaction with all that etcd's API allows in it.
    pub(crate) fn transact(&mut self, program: &Program) -> Result<(bool, Vec<Outcome>), Refusal> {
        program.check()?;
        self.execute(program)
    }

    /// Reads with all options of etcd's API.
    pub(crate) fn read(&self, read: &Read) -> Result<Found, Refusal> {
        if read.range.start.is_empty() {
            return Err(Refusal::EmptyKey);
        }
        self.history.read(read)
    }

    /// Ends the leases whose time is over, each in a revision of its own if it had keys.
    pub fn advance(&mut self, now: Duration) {
        while self.expire_one(now).is_some() {}
    }

    /// Ends the first lease whose time is over.
    pub(crate) fn expire_one(&mut self, now: Duration) -> Option<LeaseId> {
        let (_, lease) = self.leases.first().filter(|(expires, _)| *expires <= now)?;
        self.revoke(lease);
        Some(lease)
    }

    /// Returns when the next lease ends if no client keeps it alive.
    #[must_use]
    pub fn next_expiry(&self) -> Option<Duration> {
        self.leases.first().map(|(expires, _)| expires)
    }

    /// Grants a lease, with the next free id if none is given.
    pub(crate) fn grant(
        &mut self,
        now: Duration,
        id: LeaseId,
        ttl_seconds: i64,
    ) -> Result<(LeaseId, i64), Refusal> {
        self.leases.grant(now, id, ttl_seconds)
    }

    /// Renews a lease. Returns its time to live, or `None` if there is no such lease.
    pub(crate) fn keep_alive(&mut self, now: Duration, lease: LeaseId) -> Option<i64> {
        self.leases.keep_alive(now, lease)
    }

    /// Discards the history before a revision.
    pub(crate) fn compact(&mut self, revision: u64) -> Result<(), Refusal> {
        self.history.compact(revision)
    }

    /// Returns all versions of all keys.
    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    /// Returns all versions of all keys, to compact them in pieces.
    pub(crate) fn history_mut(&mut self) -> &mut History {
        &mut self.history
    }

    /// Returns all leases.
    pub(crate) fn leases(&self) -> &Leases {
        &self.leases
    }

    /// Ends a lease and deletes its keys. Returns whether there was such a lease.
    pub(crate) fn revoke(&mut self, lease: LeaseId) -> bool {
        let Some(lease) = self.leases.remove(lease) else { return false };
        for key in &lease.keys {
            self.history.delete(key);
        }
        self.history.commit();
        true
    }
}
