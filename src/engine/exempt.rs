//! What only the present primary can have promised to readers (R6).
//!
//! After a crash a new primary does not know what the old one promised, and for a while it neither evicts nor removes.
//! Bytes that were reserved in the present term are exempt: no earlier primary can have told a reader of them. That goes by
//! replica and not by object: an in-place upsert gives old bytes a new object id, and a copy gives an old object new bytes
//! beside the old ones. A group counts as a whole.

use std::collections::HashMap;

use super::object::{Object, ReplicaId};
use super::shard::Handle;
use super::state::Sequencer;
use super::types::SequenceId;
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// What a rule is confined to, and what was found out about groups while it is made or applied: a group is looked through
/// once, however many of its members are asked for.
#[derive(Debug)]
pub(super) struct Confined {
    since: SequenceId,
    groups: HashMap<Box<[u8]>, bool>,
}

impl Confined {
    /// To objects that were reserved by this record or a later one; to nothing if it is zero.
    pub fn to(since: SequenceId) -> Self {
        Self { since, groups: HashMap::new() }
    }
}

impl ReplicaId {
    /// The record that reserved it.
    #[must_use]
    pub fn record(self) -> SequenceId {
        SequenceId(self.0 >> 8)
    }
}

impl Object {
    /// Whether all its replicas were reserved by this record or a later one.
    fn is_reserved_since(&self, since: SequenceId) -> bool {
        #[cfg(feature = "planted")]
        if planted::active(Bug::ExemptByObject) {
            return self.id.0 >= since.0;
        }
        self.replicas().all(|replica| replica.id().record() >= since)
    }
}

impl Sequencer<'_> {
    /// During the hold of a term, the record that began it: what was reserved since is exempt. Zero if nothing is held.
    pub(super) fn exempt_since(&self) -> SequenceId {
        // Every log begins with a term; without one nothing is exempt.
        if self.held() { self.core.reign.began.max(SequenceId(1)) } else { SequenceId(0) }
    }

    /// Whether a rule is about this object.
    pub(super) fn is_within(&self, confined: &mut Confined, handle: Handle) -> bool {
        let since = confined.since;
        if since == SequenceId(0) {
            return true;
        }
        let look = |object: &Object| (object.is_reserved_since(since), object.group().cloned());
        let seen = self.objects(handle.shard()).at(handle.slot()).map(look);
        let Some((true, group)) = seen else { return false };
        let Some(group) = group else { return true };
        if let Some(whole) = confined.groups.get(&group.id) {
            return *whole;
        }
        let whole = self.core.groups.get(&group.id).is_none_or(|(_, membership)| {
            // Members of earlier terms come first, so that most groups are decided at once.
            membership.members.iter().chain(&membership.pinned).all(|member| {
                let Some(handle) = self.engine.handle(&self.core, *member) else { return true };
                let objects = self.objects(handle.shard());
                objects.at(handle.slot()).is_none_or(|member| member.is_reserved_since(since))
            })
        });
        confined.groups.insert(group.id.clone(), whole);
        whole
    }
}
