//! The names of keys in etcd. Ids in them have 20 digits, so that key order is number order.

use bytes::Bytes;

use crate::coordination::types::KeyRange;
use crate::engine::types::SequenceId;

/// The keys of one cluster.
#[derive(Clone, Debug)]
pub struct Keys {
    cluster: String,
    log: String,
}

impl Keys {
    /// The keys of the cluster with this id.
    #[must_use]
    pub fn new(cluster_id: &str) -> Self {
        Self {
            cluster: format!("mooncake-store/{cluster_id}/"),
            log: format!("mooncake-store/oplog/{cluster_id}/"),
        }
    }

    /// Whether a cluster can be called that: one to 63 of `[a-z0-9-_]`, and not the name that logs are kept under.
    #[must_use]
    pub fn is_cluster_id(id: &str) -> bool {
        let fits =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_');
        (1..=63).contains(&id.len()) && id.bytes().all(fits) && id != "oplog"
    }

    /// The address of the serving primary: what Mooncake clients read.
    #[must_use]
    pub fn master_view(&self) -> Bytes {
        self.of_cluster("master_view")
    }

    /// Who leads. Its create revision is the term.
    #[must_use]
    pub fn election(&self) -> Bytes {
        self.of_cluster("election")
    }

    /// What a member says of itself.
    #[must_use]
    pub fn member(&self, name: &str) -> Bytes {
        self.of_cluster(&format!("members/{name}"))
    }

    /// The name of the member that a key belongs to, if it is a member's.
    #[must_use]
    pub fn member_name(&self, key: &[u8]) -> Option<String> {
        let rest = key.strip_prefix(self.cluster.as_bytes())?.strip_prefix(b"members/")?;
        String::from_utf8(rest.to_vec()).ok()
    }

    /// All members.
    #[must_use]
    pub fn members(&self) -> KeyRange {
        KeyRange::prefix(self.of_cluster("members/"))
    }

    /// Who is to lead next.
    #[must_use]
    pub fn switchover(&self) -> Bytes {
        self.of_cluster("switchover")
    }

    /// Everything but the log.
    #[must_use]
    pub fn cluster(&self) -> KeyRange {
        KeyRange::prefix(self.cluster.clone())
    }

    /// Everything of the log.
    #[must_use]
    pub fn log(&self) -> KeyRange {
        KeyRange::prefix(self.log.clone())
    }

    /// The format that is written.
    #[must_use]
    pub fn format(&self) -> Bytes {
        self.of_log("format")
    }

    /// The end of the log.
    #[must_use]
    pub fn latest(&self) -> Bytes {
        self.of_log("latest")
    }

    /// The batch whose first record has this id.
    #[must_use]
    pub fn batch(&self, first: SequenceId) -> Bytes {
        self.of_log(&format!("batches/{:020}", first.0))
    }

    /// All batches.
    #[must_use]
    pub fn batches(&self) -> KeyRange {
        KeyRange::prefix(self.of_log("batches/"))
    }

    /// The batches whose first record has this id or a later one.
    #[must_use]
    pub fn batches_from(&self, first: SequenceId) -> KeyRange {
        KeyRange { start: self.batch(first), end: self.batches().end }
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
        assert!(keys.batch(SequenceId(9)) < keys.batch(SequenceId(10)));
        assert!(keys.batches_from(SequenceId(10)).contains(&keys.batch(SequenceId(1000))));
        assert!(!keys.batches_from(SequenceId(10)).contains(&keys.batch(SequenceId(9))));
        assert!(!keys.batches().contains(&keys.latest()));
        assert!(!keys.cluster().contains(&keys.latest()));
        assert_eq!(&keys.batch(SequenceId(7))[..], b"mooncake-store/oplog/demo/batches/00000000000000000007");
    }

    #[test]
    fn cluster_ids_are_plain() {
        assert!(Keys::is_cluster_id("mooncake_cluster"));
        for id in ["", "oplog", "A", "a/b", "a b", &"x".repeat(64)] {
            assert!(!Keys::is_cluster_id(id), "{id}");
        }
    }
}
