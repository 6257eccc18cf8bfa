//! The names of keys in etcd. Sequence ids in them have 20 digits, so that key order is number order.

use bytes::Bytes;

use super::log_end::LogId;
use crate::coordination::types::KeyRange;
use crate::engine::types::SequenceId;

/// Records that a page of a log covers at most. etcd counts all keys of a range, however few it returns, so that pages
/// that go to the end of the log would make a read of the whole log cost the square of its length.
const PAGE_RECORDS: u64 = 4096;

/// The names of the keys of one cluster.
#[derive(Clone, Debug)]
pub struct Keys {
    cluster: String,
    log: String,
}

impl Keys {
    /// Returns the keys of the cluster with this id.
    #[must_use]
    pub fn new(cluster_id: &str) -> Self {
        Self {
            cluster: format!("mooncake-store/{cluster_id}/"),
            log: format!("mooncake-store/oplog/{cluster_id}/"),
        }
    }

    /// Returns whether this is a valid cluster id: one to 63 of `[a-z0-9-_]`, and not the name that logs are kept
    /// under.
    #[must_use]
    pub fn is_cluster_id(id: &str) -> bool {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&id.len()) && id.bytes().all(fits) && id != "oplog"
    }

    /// Returns the key with the address of the serving primary, which Mooncake clients read.
    #[must_use]
    pub fn master_view(&self) -> Bytes {
        self.of_cluster("master_view")
    }

    /// Returns the election key, which names the leader. Its create revision is the term.
    #[must_use]
    pub fn election(&self) -> Bytes {
        self.of_cluster("election")
    }

    /// Returns the key of a member.
    #[must_use]
    pub fn member(&self, name: &str) -> Bytes {
        self.of_cluster(&format!("members/{name}"))
    }

    /// Returns the name of the member that a key belongs to, if it is a member key.
    #[must_use]
    pub fn member_name(&self, key: &[u8]) -> Option<String> {
        let rest = key.strip_prefix(self.cluster.as_bytes())?.strip_prefix(b"members/")?;
        String::from_utf8(rest.to_vec()).ok()
    }

    /// Returns the range of all member keys.
    #[must_use]
    pub fn members(&self) -> KeyRange {
        KeyRange::prefix(self.of_cluster("members/"))
    }

    /// Returns the key with the name of the preferred successor.
    #[must_use]
    pub fn switchover(&self) -> Bytes {
        self.of_cluster("switchover")
    }

    /// Returns the key with the token by which masters authenticate to each other, unless they have it from a file.
    #[must_use]
    pub fn peer_token(&self) -> Bytes {
        self.of_cluster("peer_token")
    }

    /// Returns the range of all keys but those of the log.
    #[must_use]
    pub fn cluster(&self) -> KeyRange {
        KeyRange::prefix(self.cluster.clone())
    }

    /// Returns the range of all keys of the log.
    #[must_use]
    pub fn log(&self) -> KeyRange {
        KeyRange::prefix(self.log.clone())
    }

    /// Returns the key with the format in which the log is written.
    #[must_use]
    pub fn format(&self) -> Bytes {
        self.of_log("format")
    }

    /// Returns the key with the end of the log.
    #[must_use]
    pub fn latest(&self) -> Bytes {
        self.of_log("latest")
    }

    /// Returns the key with the log that a recovery has begun, and the logs that it supersedes.
    #[must_use]
    pub fn recovered(&self) -> Bytes {
        self.of_log("recovered")
    }

    /// Returns the key with the id of the log that a recovery under way is writing.
    #[must_use]
    pub fn recovering(&self) -> Bytes {
        self.of_log("recovering")
    }

    /// Returns the range of all batches of one log.
    #[must_use]
    pub fn batches_of(&self, log: LogId) -> KeyRange {
        KeyRange::prefix(self.of_log(&format!("batches/{log}/")))
    }

    /// Returns the key with the floor of the log: up to where batches may be deleted.
    #[must_use]
    pub fn floor(&self) -> Bytes {
        self.of_log("floor")
    }

    /// Returns the first record of the batch of a log that is under this key, if it is the key of one.
    #[must_use]
    pub fn first_of_batch(&self, log: LogId, key: &[u8]) -> Option<SequenceId> {
        let digits = key.strip_prefix(self.of_log(&format!("batches/{log}/")).as_ref())?;
        std::str::from_utf8(digits).ok()?.parse().ok().map(SequenceId)
    }

    /// Returns the key of the batch of a log whose first record has this id. The log is part of the key, so that no
    /// late write to one log, and no deletion of its batches, can touch another.
    #[must_use]
    pub fn batch(&self, log: LogId, first: SequenceId) -> Bytes {
        self.of_log(&format!("batches/{log}/{:020}", first.0))
    }

    /// Returns the range of all batches, of any log.
    #[must_use]
    pub fn batches(&self) -> KeyRange {
        KeyRange::prefix(self.of_log("batches/"))
    }

    /// Returns the range of a page of a log that ends at `last`, from the batch whose first record is `first` on, and
    /// where the page after it begins. The last page goes to the end of the log's keys: a batch after `last` is found.
    #[must_use]
    pub fn page_of_batches(
        &self,
        log: LogId,
        first: SequenceId,
        last: SequenceId,
    ) -> (KeyRange, Option<SequenceId>) {
        let start = self.batch(log, first);
        let next = SequenceId(first.0.saturating_add(PAGE_RECORDS));
        if next <= last {
            (KeyRange { start, end: Some(self.batch(log, next)) }, Some(next))
        } else {
            (KeyRange { start, end: self.batches_of(log).end }, None)
        }
    }

    fn of_cluster(&self, name: &str) -> Bytes {
        format!("{}{name}", self.cluster).into()
    }

    fn of_log(&self, name: &str) -> Bytes {
        format!("{}{name}", self.log).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_sort_by_number() {
        let keys = Keys::new("demo");
        let batch = |id| keys.batch(LogId(7), SequenceId(id));
        assert!(batch(9) < batch(10));
        assert!(keys.batches().contains(&batch(9)));
        assert!(!keys.batches().contains(&keys.latest()));
        assert!(!keys.cluster().contains(&keys.latest()));
        // Deleted with the cluster, and never taken for a member.
        assert!(keys.cluster().contains(&keys.peer_token()));
        assert_eq!(keys.member_name(&keys.peer_token()), None);
        assert!(!keys.batches().contains(&keys.floor()) && keys.log().contains(&keys.floor()));
        assert_eq!(keys.first_of_batch(LogId(7), &batch(12)), Some(SequenceId(12)));
        assert_eq!(keys.first_of_batch(LogId(8), &batch(12)), None);
        assert_eq!(keys.first_of_batch(LogId(7), &keys.latest()), None);
        assert_eq!(&batch(7)[..], b"mooncake-store/oplog/demo/batches/0000000000000007/00000000000000000007");
    }

    #[test]
    fn pages_of_a_log_meet_and_end_with_it() {
        let keys = Keys::new("demo");
        let batch = |id| keys.batch(LogId(7), SequenceId(id));
        let page = |first, last| keys.page_of_batches(LogId(7), SequenceId(first), SequenceId(last));
        let (range, next) = page(10, 10 + PAGE_RECORDS);
        assert_eq!(next, Some(SequenceId(10 + PAGE_RECORDS)));
        assert!(!range.contains(&batch(9)) && range.contains(&batch(10)));
        assert!(range.contains(&batch(9 + PAGE_RECORDS)) && !range.contains(&batch(10 + PAGE_RECORDS)));
        let (range, next) = page(10, 9 + PAGE_RECORDS);
        assert_eq!(next, None);
        assert!(range.contains(&batch(10)) && range.contains(&batch(u64::MAX)));
        assert!(!range.contains(&keys.batch(LogId(8), SequenceId(10))));
    }

    #[test]
    fn cluster_ids_are_plain() {
        assert!(Keys::is_cluster_id("mooncake_cluster"));
        for id in ["", "oplog", "A", "a/b", "a b", &"x".repeat(64)] {
            assert!(!Keys::is_cluster_id(id), "{id}");
        }
    }
}
