//! Exemption from the hold: objects that only the present primary can have promised to readers (R6).
//!
//! After a crash a new primary does not know which leases the old one granted, and for a while it neither evicts nor
//! removes. Bytes that were reserved in the present term are exempt: no earlier primary can have given them to a
//! reader. That is decided by replica and not by object: an in-place upsert gives old bytes a new object id, and a copy
//! gives an old object new bytes beside the old ones. A group is exempt as a whole or not at all.

use std::collections::HashMap;

use super::object::Object;
use super::state::Sequencer;
use super::types::SequenceId;
use crate::engine::key::Handle;
use crate::engine::types::ReplicaId;

/// Filter of a rule: the objects that it is confined to. Caches the result for each group while the rule is made or
/// applied, so that a group is checked once, however many of its members are asked for.
#[derive(Debug)]
pub(super) struct Confined {
    since: SequenceId,
    groups: HashMap<Box<[u8]>, bool>,
}

impl Confined {
    /// Confines a rule to objects that were reserved by this record or a later one; zero does not confine it.
    pub fn to(since: SequenceId) -> Self {
        Self { since, groups: HashMap::new() }
    }
}

impl ReplicaId {
    /// Returns the record that reserved it.
    #[must_use]
    pub fn record(self) -> SequenceId {
        SequenceId(self.0 >> 8)
    }
}

impl Object {
    /// Returns whether all its replicas were reserved by this record or a later one.
    fn is_reserved_since(&self, since: SequenceId) -> bool {
        planted!(ExemptByObject => return self.id.0 >= since.0);
        self.replicas().all(|replica| replica.id().record() >= since)
    }
}

impl Sequencer<'_> {
    /// Returns the record that began the term while its hold lasts: what was reserved since is exempt. Returns zero if
    /// there is no hold.
    pub(super) fn exempt_since(&self) -> SequenceId {
        // A hold belongs to a term, which begins with record 1 or later; zero would mean that there is no hold.
        if self.in_reader_hold() { self.core.term_state.began.max(SequenceId(1)) } else { SequenceId(0) }
    }

    /// Returns whether a rule that is confined like this applies to the object.
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
            // Members are in order of id: those of earlier terms come first, so that most groups are decided at once.
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
