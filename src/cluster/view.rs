//! The keys of one cluster in etcd, from a read and the changes that a watch delivered since. Pure: no client and no
//! clock.

use std::collections::BTreeMap;
use std::fmt;

use super::keys::Keys;
use super::log_end::LogId;
use super::member::{ElectionValue, MemberValue};
use crate::coordination::types::{Change, KeyValue, LeaseId};
use crate::engine::types::Term;

/// The keys of a cluster at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterView {
    /// The revision of etcd up to which this is complete.
    pub revision: u64,
    /// The master that leads; `None` if there is no election key.
    pub leader: Option<Leader>,
    /// The address that Mooncake clients are sent to.
    pub serving: Option<Serving>,
    /// The preferred successor; `None` if there is no key that names one.
    pub successor: Option<Successor>,
    /// The members, by name.
    pub members: BTreeMap<String, Member>,
    /// The etcd that was read.
    pub store: Option<StoreId>,
    /// The log that existed when the keys were read.
    pub log: Option<LogId>,
}

/// The cluster id of an etcd: equal on all of its members, and different for another etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(pub u64);

impl fmt::Display for StoreId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As etcdctl writes it.
        write!(formatter, "{:x}", self.0)
    }
}

/// The master that leads, from the election key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    pub term: Term,
    /// The lease that the key is attached to; zero if the value cannot be read.
    pub lease: LeaseId,
    pub value: ElectionValue,
}

/// The address that Mooncake clients are sent to, from the key `master_view`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Serving {
    /// The address of the primary.
    pub address: String,
    /// The revision that created the key, which clients see as the version of the view.
    pub create_revision: u64,
}

/// The key that names the successor in a switchover.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Successor {
    /// The member that is to lead next; `None` if the value cannot be read.
    pub name: Option<String>,
    pub stamp: Stamp,
}

/// A member's key: its value and its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// The value; `None` if it cannot be read.
    pub value: Option<MemberValue>,
    pub stamp: Stamp,
}

/// The version of a key: enough to delete just that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The revision that changed it last.
    pub mod_revision: u64,
    /// The lease that it is attached to; zero for none.
    pub lease: LeaseId,
}

impl ClusterView {
    /// Returns the view from a read of all keys at a revision.
    #[must_use]
    pub fn read(keys: &Keys, revision: u64, entries: &[KeyValue]) -> Self {
        let mut view = Self { revision, ..Self::default() };
        for entry in entries {
            view.set(keys, entry);
        }
        view
    }

    /// Applies changes up to a revision. A watch may deliver changes late that a read has included already: they are
    /// skipped.
    pub fn change(&mut self, keys: &Keys, revision: u64, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(entry) if entry.mod_revision > self.revision => self.set(keys, entry),
                Change::Deleted { key, revision } if *revision > self.revision => self.unset(keys, key),
                Change::Put(_) | Change::Deleted { .. } => {}
            }
        }
        self.revision = self.revision.max(revision);
    }

    /// Returns whether anything differs that the operator should act on. How many records members have applied does not
    /// count.
    #[must_use]
    pub fn is_news_to(&self, before: &Self) -> bool {
        let essence = |member: &Member| {
            let value = member.value.as_ref();
            let said = value.map(|it| {
                (
                    it.boot_id,
                    it.role,
                    it.caught_up,
                    it.version.clone(),
                    it.trouble.clone(),
                    it.digest_at.clone(),
                    it.snapshots.iter().map(|held| held.sequence_id).collect::<Vec<_>>(),
                    it.snapshot_error.clone(),
                )
            });
            (said, member.stamp.lease == LeaseId(0))
        };
        let same_members = self.members.len() == before.members.len()
            && self
                .members
                .iter()
                .zip(&before.members)
                .all(|((name, member), (other, was))| name == other && essence(member) == essence(was));
        !(same_members
            && self.leader == before.leader
            && self.serving == before.serving
            && self.successor == before.successor)
    }

    fn set(&mut self, keys: &Keys, entry: &KeyValue) {
        let stamp = Stamp { mod_revision: entry.mod_revision, lease: entry.lease };
        if entry.key == keys.election() {
            // The cluster has a leader even if its value cannot be read: no other master may stand for election.
            let (value, lease) = match serde_json::from_slice(&entry.value) {
                Ok(value) => (value, entry.lease),
                Err(error) => {
                    tracing::warn!(%error, "cannot read the election key");
                    (ElectionValue::default(), LeaseId(0))
                }
            };
            self.leader = Some(Leader { term: Term(entry.create_revision), lease, value });
        } else if entry.key == keys.master_view() {
            let address = String::from_utf8_lossy(&entry.value).into_owned();
            self.serving = Some(Serving { address, create_revision: entry.create_revision });
        } else if entry.key == keys.switchover() {
            let name = String::from_utf8(entry.value.to_vec()).ok();
            self.successor = Some(Successor { name, stamp });
        } else if let Some(name) = keys.member_name(&entry.key) {
            let value = serde_json::from_slice(&entry.value).ok();
            self.members.insert(name, Member { value, stamp });
        }
    }

    fn unset(&mut self, keys: &Keys, key: &[u8]) {
        if *key == *keys.election() {
            self.leader = None;
        } else if *key == *keys.master_view() {
            self.serving = None;
        } else if *key == *keys.switchover() {
            self.successor = None;
        } else if let Some(name) = keys.member_name(key) {
            self.members.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn entry(key: Bytes, value: String, revision: u64) -> KeyValue {
        KeyValue {
            key,
            value: value.into(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: LeaseId(7),
        }
    }

    fn member(keys: &Keys, name: &str, applied: u64, caught_up: bool, revision: u64) -> KeyValue {
        let value = MemberValue { name: name.into(), applied, caught_up, ..MemberValue::default() };
        entry(keys.member(name), serde_json::to_string(&value).unwrap(), revision)
    }

    #[test]
    fn a_read_and_the_changes_since_make_the_view() {
        let keys = Keys::new("demo");
        let election = ElectionValue { name: "demo-0".into(), ..ElectionValue::default() };
        let election = entry(keys.election(), serde_json::to_string(&election).unwrap(), 5);
        let read = ClusterView::read(&keys, 9, &[election.clone(), member(&keys, "demo-0", 3, true, 6)]);
        let leader = read.leader.as_ref().unwrap();
        assert_eq!((leader.term, leader.value.name.as_str()), (Term(5), "demo-0"));

        let mut view = read.clone();
        let gone = Change::Deleted { key: keys.election(), revision: 10 };
        let joined = Change::Put(member(&keys, "demo-1", 3, true, 11));
        view.change(&keys, 11, &[gone, joined]);
        assert_eq!((view.leader.is_none(), view.members.len(), view.revision), (true, 2, 11));
        assert!(view.is_news_to(&read));
        // An election key that cannot be read still means that a master leads.
        view.change(&keys, 12, &[Change::Put(entry(keys.election(), "?".into(), 12))]);
        assert_eq!(view.leader.unwrap().term, Term(12));
    }

    #[test]
    fn progress_of_members_is_no_news() {
        let keys = Keys::new("demo");
        let before = ClusterView::read(&keys, 9, &[member(&keys, "demo-0", 3, false, 6)]);
        let mut after = before.clone();
        after.change(&keys, 10, &[Change::Put(member(&keys, "demo-0", 4, false, 10))]);
        assert!(!after.is_news_to(&before));
        after.change(&keys, 11, &[Change::Put(member(&keys, "demo-0", 4, true, 11))]);
        assert!(after.is_news_to(&before));
        // What it reports about the log.
        let value = MemberValue {
            name: "demo-0".into(),
            applied: 4,
            trouble: Some("gone".into()),
            ..MemberValue::default()
        };
        let value = serde_json::to_string(&value).unwrap();
        let mut stuck = before.clone();
        stuck.change(&keys, 11, &[Change::Put(entry(keys.member("demo-0"), value, 11))]);
        assert!(stuck.is_news_to(&before));
        let mut other = before.clone();
        other.change(&keys, 11, &[Change::Deleted { key: keys.member("demo-0"), revision: 11 }]);
        assert!(other.is_news_to(&before));
    }
}
