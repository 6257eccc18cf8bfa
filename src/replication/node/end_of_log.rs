//! Reading where the log ends, which format it is in, up to where its beginning may be missing, and whether a recovery
//! has begun it: all as of one revision.

use bytes::Bytes;

use super::Node;
use crate::cluster::log_end::{History, Latest, LogId};
use crate::cluster::log_floor::LogFloor;
use crate::cluster::recovered::Recovered;
use crate::coordination::types::{Get, KeyRange, Op, OpResult, Request, Txn};
use crate::engine::Engine;
use crate::engine::types::{LogTime, SequenceId};
use crate::replication::formats::LogFormat;

use super::trust::Trust;

/// Reason for not following when etcd does not answer what was asked.
const UNEXPECTED: &str = "unexpected answer from etcd";

/// The values of the keys `latest`, `format`, `floor` and `recovered`.
pub(super) struct LogEnd {
    pub end: Option<Latest>,
    pub format: Option<Bytes>,
    pub floor: Option<LogFloor>,
    pub recovered: Option<Recovered>,
}

impl LogEnd {
    /// Reads the answer to [`Node::end_request`]. The error is why this master cannot follow this log.
    pub(super) fn of(results: &[OpResult]) -> Result<Self, String> {
        let mut pages = Vec::with_capacity(results.len());
        for result in results {
            let OpResult::Got(page) = result else { return Err(UNEXPECTED.to_owned()) };
            pages.push(page);
        }
        let [latest, format, floor, recovered] = pages[..] else { return Err(UNEXPECTED.to_owned()) };
        let format = format.entries.first().map(|entry| entry.value.clone());
        LogFormat::of_key(format.as_deref()).map_err(|refusal| refusal.to_string())?;
        let latest = latest.entries.first().map(|entry| Latest::from_bytes(&entry.value)).transpose();
        let end = latest.map_err(|error| error.to_string())?;
        let recovered =
            recovered.entries.first().map(|entry| Recovered::from_bytes(&entry.value)).transpose();
        let recovered = recovered.map_err(|error| error.to_string())?;
        // One that cannot be read bars no reader: a gap in the batches shows where the log begins.
        let floor = floor.entries.first().and_then(|entry| LogFloor::from_bytes(&entry.value).ok());
        Ok(Self { end, format, floor, recovered })
    }
}

impl Node {
    /// Returns a request for the end of the log, its format, its floor and its recovery, as of one revision.
    pub(super) fn end_request(&self) -> Request {
        let get = |key| Op::Get(Get::all(KeyRange::key(key)));
        let keys = &self.settings.keys;
        let success = vec![get(keys.latest()), get(keys.format()), get(keys.floor()), get(keys.recovered())];
        Request::Txn(Txn { success, ..Txn::default() })
    }

    /// Returns the recovery that has begun this log; `None` if it was founded by a master.
    pub(super) fn recovery_of(&self, log: LogId) -> Option<&Recovered> {
        self.following.recovered.as_ref().filter(|recovered| recovered.log == log)
    }

    /// Drops the state and the history if the log that ends here was begun by a recovery that supersedes the log which
    /// this master knows. Nothing else makes a master give up what it knows to be durable. Returns whether it did.
    pub(super) fn leave_superseded_log(&mut self, end: Option<&Latest>) -> bool {
        let (Some(end), Some(History(known))) = (end, self.history) else { return false };
        let asked = self.recovery_of(end.log).is_some_and(|recovered| recovered.replaces(&known, end));
        let asked = asked || (planted!(FollowUnasked) && self.misfit(Some(end)).is_some());
        if !asked {
            return false;
        }
        tracing::warn!(
            log = %end.log,
            dropped = %known.log,
            last = known.last.0,
            "the log that this master knows was superseded by a recovery, dropping it and following the new one"
        );
        self.start_over();
        self.following.trust = Trust::default();
        self.history = None;
        self.seen_keys.forget_terms();
        if let Some(snapshots) = &mut self.snapshots {
            snapshots.forget_log();
        }
        true
    }

    /// Returns whether a recovery has begun this log after that record.
    pub(super) fn is_recovered_since(&self, record: SequenceId) -> bool {
        let recovered = self.following.position.log.and_then(|log| self.recovery_of(log));
        recovered.is_some_and(|recovered| record < recovered.began)
    }

    /// Sets the log time before which this primary gives no bytes to writers (R4).
    pub(super) fn hold_starts(&self, engine: &Engine) {
        let recovered = self.following.position.log.and_then(|log| self.recovery_of(log));
        let until = recovered.map_or(LogTime(0), |recovered| recovered.no_starts_before);
        engine.hold_starts_until(until);
        let left_ms = until.0.saturating_sub(engine.log_time().0);
        if left_ms > 0 {
            tracing::info!(left_ms, "the log was begun by a recovery: nothing can be written until then");
        }
    }
}
