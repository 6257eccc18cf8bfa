//! What the keys of one cluster in etcd say, put together from a read and the changes that a watch tells of since.
//! Pure: no client and no clock.

use std::collections::BTreeMap;
use std::fmt;

use crate::coordination::types::{Change, KeyValue, LeaseId};
use crate::engine::types::Term;
use crate::replication::batch::LogId;
use crate::replication::keys::Keys;
use crate::replication::node::{ElectionValue, MemberValue};

/// The keys of a cluster at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Up to which revision of etcd this holds.
    pub revision: u64,
    /// Who leads.
    pub leader: Option<Leader>,
    /// The address that Mooncake clients are sent to.
    pub serving: Option<String>,
    /// The key that names the preferred successor.
    pub successor: Option<Stamp>,
    /// The members, by name.
    pub members: BTreeMap<String, Member>,
    /// etcd is out of space: it writes nothing and grants no lease.
    pub no_space: bool,
    /// The etcd that was read.
    pub store: Option<StoreId>,
    /// The log that was there when the keys were read.
    pub log: Option<LogId>,
}

/// What an etcd calls itself: equal on all members of one etcd, and another one for another etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(pub u64);

impl fmt::Display for StoreId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // As etcdctl writes it.
        write!(formatter, "{:x}", self.0)
    }
}

/// Who leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Leader {
    /// The term.
    pub term: Term,
    /// What the leader says of itself.
    pub value: ElectionValue,
}

/// A member's key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// What the member says of itself; `None` if it cannot be read.
    pub value: Option<MemberValue>,
    /// Which version of the key.
    pub stamp: Stamp,
}

/// Which version of a key: enough to delete just that one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// The revision that changed it last.
    pub mod_revision: u64,
    /// The lease that it ends with; zero for none.
    pub lease: LeaseId,
}

impl View {
    /// What a read of all keys at a revision brought.
    #[must_use]
    pub fn read(keys: &Keys, revision: u64, entries: &[KeyValue]) -> Self {
        let mut view = Self { revision, ..Self::default() };
        for entry in entries {
            view.set(keys, entry);
        }
        view
    }

    /// Takes in changes up to a revision. A watch starts with the revision that was read, so what that one changed is told
    /// twice; to take it in again changes nothing.
    pub fn change(&mut self, keys: &Keys, revision: u64, changes: &[Change]) {
        for change in changes {
            match change {
                Change::Put(entry) => self.set(keys, entry),
                Change::Deleted { key, .. } => self.unset(keys, key),
            }
        }
        self.revision = self.revision.max(revision);
    }

    /// Whether anything differs that somebody should act on: not how far members are.
    #[must_use]
    pub fn is_news_to(&self, before: &Self) -> bool {
        let essence = |member: &Member| {
            let value = member.value.as_ref();
            let said = value.map(|it| (it.boot_id, it.role.clone(), it.caught_up, it.version.clone()));
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
            && self.successor == before.successor
            && self.no_space == before.no_space)
    }

    fn set(&mut self, keys: &Keys, entry: &KeyValue) {
        let stamp = Stamp { mod_revision: entry.mod_revision, lease: entry.lease };
        if entry.key == keys.election() {
            // Somebody leads, even if what is written there makes no sense.
            let value = serde_json::from_slice(&entry.value).unwrap_or_default();
            self.leader = Some(Leader { term: Term(entry.create_revision), value });
        } else if entry.key == keys.master_view() {
            self.serving = Some(String::from_utf8_lossy(&entry.value).into_owned());
        } else if entry.key == keys.switchover() {
            self.successor = Some(stamp);
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
        let read = View::read(&keys, 9, &[election.clone(), member(&keys, "demo-0", 3, true, 6)]);
        let leader = read.leader.as_ref().unwrap();
        assert_eq!((leader.term, leader.value.name.as_str()), (Term(5), "demo-0"));

        let mut view = read.clone();
        let gone = Change::Deleted { key: keys.election(), revision: 10 };
        let joined = Change::Put(member(&keys, "demo-1", 3, true, 11));
        view.change(&keys, 11, &[gone, joined]);
        assert_eq!((view.leader.is_none(), view.members.len(), view.revision), (true, 2, 11));
        assert!(view.is_news_to(&read));
        // An election key that cannot be read is somebody's all the same.
        view.change(&keys, 12, &[Change::Put(entry(keys.election(), "?".into(), 12))]);
        assert_eq!(view.leader.unwrap().term, Term(12));
    }

    #[test]
    fn progress_of_members_is_no_news() {
        let keys = Keys::new("demo");
        let before = View::read(&keys, 9, &[member(&keys, "demo-0", 3, false, 6)]);
        let mut after = before.clone();
        after.change(&keys, 10, &[Change::Put(member(&keys, "demo-0", 4, false, 10))]);
        assert!(!after.is_news_to(&before));
        after.change(&keys, 11, &[Change::Put(member(&keys, "demo-0", 4, true, 11))]);
        assert!(after.is_news_to(&before));
        let mut other = before.clone();
        other.change(&keys, 11, &[Change::Deleted { key: keys.member("demo-0"), revision: 11 }]);
        assert!(other.is_news_to(&before));
    }
}
