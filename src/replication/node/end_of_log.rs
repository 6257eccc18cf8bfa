//! The keys that say where the log ends, in which format it is, and up to where its beginning may be missing.

use bytes::Bytes;

use super::Node;
use crate::cluster::log_end::Latest;
use crate::cluster::log_floor::LogFloor;
use crate::coordination::types::{Get, KeyRange, Op, OpResult, Request, Txn};
use crate::replication::formats::LogFormat;

impl Node {
    /// Returns a request for the end of the log, its format and its floor, all as of one revision.
    pub(super) fn end_request(&self) -> Request {
        let get = |key| Op::Get(Get::all(KeyRange::key(key)));
        let keys = &self.settings.keys;
        let success = vec![get(keys.latest()), get(keys.format()), get(keys.floor())];
        Request::Txn(Txn { success, ..Txn::default() })
    }
}

/// The values of the keys `latest`, `format` and `floor`.
pub(super) struct LogEnd {
    pub end: Option<Latest>,
    pub format: Option<Bytes>,
    pub floor: Option<LogFloor>,
}

impl LogEnd {
    /// Reads the answer to [`Node::end_request`]. The error is why this master cannot follow this log.
    pub(super) fn of(results: &[OpResult]) -> Result<Self, String> {
        let [OpResult::Got(latest), OpResult::Got(format), OpResult::Got(floor)] = results else {
            return Err("unexpected answer from etcd".to_owned());
        };
        let format = format.entries.first().map(|entry| entry.value.clone());
        LogFormat::of_key(format.as_deref()).map_err(|refusal| refusal.to_string())?;
        let latest = latest.entries.first().map(|entry| Latest::from_bytes(&entry.value)).transpose();
        let end = latest.map_err(|error| error.to_string())?;
        // One that cannot be read bars no reader: a gap in the batches shows where the log begins.
        let floor = floor.entries.first().and_then(|entry| LogFloor::from_bytes(&entry.value).ok());
        Ok(Self { end, format, floor })
    }
}
