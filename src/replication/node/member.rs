//! The member key of this process in etcd. It has a lease of its own, so it disappears with the process.

use std::time::Duration;

use bytes::Bytes;

use super::need::is_told;
use super::{CallId, Node, Phase, Purpose, Snapshots};
use crate::cluster::member::{MAX_TROUBLE_CHARS, MemberValue};
use crate::cluster::role::Role;
use crate::coordination::types::{Failure, LeaseId, Op, Request, Response, Txn};
use crate::engine::format::Format;
use crate::replication::time::Monotonic;

/// Time to live of the member key's lease: for so long a dead member is still listed.
const TTL_SECONDS: i64 = 10;

/// Interval of keep-alives, and of writing the key if its value has changed.
const INTERVAL: Duration = Duration::from_secs(2);

/// The member key of this process.
#[derive(Debug, Default)]
pub(super) struct Member {
    lease: Option<LeaseId>,
    call: Option<CallId>,
    keep_alive: Option<CallId>,
    next: Monotonic,
    written: Option<MemberValue>,
    writing: Option<MemberValue>,
}

impl Member {
    /// Forces the key to be written again: it may be gone, or have an old value.
    pub(super) fn forget(&mut self) {
        self.written = None;
        self.next = Monotonic::default();
    }

    /// Returns the value that etcd has, as far as this node knows.
    pub(super) fn written(&self) -> Option<&MemberValue> {
        self.written.as_ref()
    }

    /// Returns the lease of the key.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.lease
    }
}

impl Node {
    fn member_value(&self, now: Monotonic) -> MemberValue {
        let leads = matches!(self.phase, Phase::Leading(_));
        let (position, trust) = (&self.following.position, &self.following.trust);
        let applied = self.incarnation.engine.applied();
        MemberValue {
            name: self.settings.name.clone(),
            boot_id: self.settings.boot_id,
            role: if leads { Role::Primary } else { Role::Standby },
            addresses: self.settings.addresses.clone(),
            applied: applied.0,
            caught_up: leads || self.following.is_caught_up(now),
            lag: if leads { Some(0) } else { self.following.heard.lag(now, position.log, applied) },
            history: self.history,
            in_doubt: !leads && (trust.doubt().is_some() || trust.is_rebuilding()),
            rebuilding: !leads && trust.is_rebuilding(),
            digest_at: trust.against(position.term).filter(|_| !leads).cloned(),
            trouble: self
                .log_trouble()
                .filter(|_| !leads)
                .map(|why| why.chars().take(MAX_TROUBLE_CHARS).collect()),
            snapshots: self.snapshots.as_ref().map_or(Vec::new(), Snapshots::listed),
            proven: self.snapshots.as_ref().map_or(Vec::new(), Snapshots::proven),
            needs: if leads { None } else { self.following.need() },
            floor: self.floor_state(),
            unsaved_ms: self.snapshots.as_ref().map(|it| it.unsaved_ms(self.incarnation.engine.log_time())),
            snapshot_error: self.snapshots.as_ref().and_then(Snapshots::error),
            formats: Format::readable_numbers(),
            version: self.settings.version.clone(),
        }
    }

    pub(super) fn keep_member(&mut self, now: Monotonic) {
        if self.member.call.is_some() {
            return;
        }
        let value = self.member_value(now);
        // A change of role or readiness, and of what the floor rests on, is written at once, a new position at the interval.
        let told = |written: &MemberValue| {
            written.role == value.role
                && written.caught_up == value.caught_up
                && written.in_doubt == value.in_doubt
                && written.rebuilding == value.rebuilding
                && written.digest_at == value.digest_at
                && written.trouble == value.trouble
                && written.snapshots == value.snapshots
                && written.proven == value.proven
                && is_told(value.needs.as_ref(), written)
        };
        let news = self.member.lease.is_some() && !self.member.written.as_ref().is_some_and(told);
        if now < self.member.next && !news {
            return;
        }
        self.member.next = now.plus(INTERVAL);
        let Some(lease) = self.member.lease else {
            let request = Request::LeaseGrant { ttl_seconds: TTL_SECONDS };
            self.member.call = Some(self.call(Purpose::MemberLease, request));
            return;
        };
        if self.member.keep_alive.is_none() {
            self.member.keep_alive =
                Some(self.call(Purpose::MemberKeepAlive, Request::LeaseKeepAlive { lease }));
        }
        if self.member.written.as_ref() != Some(&value)
            && let Ok(bytes) = serde_json::to_vec(&value)
        {
            let key = self.settings.keys.member(&self.settings.name);
            self.member.writing = Some(value);
            let put = Op::Put { key, value: Bytes::from(bytes), lease };
            let txn = Txn { success: vec![put], ..Txn::default() };
            self.member.call = Some(self.call(Purpose::MemberKey, Request::Txn(txn)));
        }
    }

    pub(super) fn member_lease_granted(
        &mut self,
        now: Monotonic,
        call: CallId,
        result: Result<Response, Failure>,
    ) {
        if self.member.call != Some(call) {
            return;
        }
        self.member.call = None;
        if let Ok(Response::LeaseGranted { lease, .. }) = result {
            self.member.lease = Some(lease);
            self.member.written = None;
            self.member.next = now;
        }
    }

    pub(super) fn member_kept_alive(
        &mut self,
        now: Monotonic,
        call: CallId,
        result: Result<Response, Failure>,
    ) {
        if self.member.keep_alive != Some(call) {
            return;
        }
        self.member.keep_alive = None;
        if let Ok(Response::LeaseKeptAlive { ttl_seconds }) = result
            && ttl_seconds <= 0
        {
            self.member.lease = None;
            self.member.next = now;
        }
    }

    pub(super) fn member_key_written(
        &mut self,
        now: Monotonic,
        call: CallId,
        result: Result<Response, Failure>,
    ) {
        if self.member.call != Some(call) {
            return;
        }
        self.member.call = None;
        match result {
            Ok(_) => self.member.written = self.member.writing.take(),
            Err(Failure::LeaseNotFound) => {
                self.member.lease = None;
                self.member.next = now;
            }
            Err(_) => {}
        }
    }
}
