//! What this member says of itself in etcd, under a lease of its own: it goes when the process does.

use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::trust::DigestAt;
use super::{BootId, CallId, Node, Phase, Purpose};
use crate::coordination::types::{Failure, LeaseId, Op, Request, Response, Txn};
use crate::engine::format::Format;
use crate::replication::history::History;
use crate::replication::time::Monotonic;

/// How long a member that is gone is still listed.
const TTL_SECONDS: i64 = 10;

/// How often the lease is kept alive, and the key written again if it has changed.
const INTERVAL: Duration = Duration::from_secs(2);

/// Where a member is reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Addresses {
    /// By Mooncake clients, while it leads.
    #[serde(rename = "rpc_address")]
    pub rpc: String,
    /// By browsers and monitoring.
    #[serde(rename = "http_address")]
    pub http: String,
    /// By other masters.
    #[serde(rename = "peer_address")]
    pub peer: String,
    /// By whoever may change things.
    #[serde(rename = "admin_address")]
    pub admin: String,
}

/// What a member says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberValue {
    /// Its name.
    pub name: String,
    /// Its process.
    pub boot_id: BootId,
    /// `primary` or `standby`.
    pub role: String,
    /// Where it is reached.
    #[serde(flatten)]
    pub addresses: Addresses,
    /// The last record that it had applied when it wrote this.
    pub applied: u64,
    /// Whether it serves, or could take over at once.
    pub caught_up: bool,
    /// Records that it is behind; `None` if it does not know.
    #[serde(default)]
    pub lag: Option<u64>,
    /// What it knows to be durable.
    #[serde(default)]
    pub history: Option<History>,
    /// Its state is in doubt, or being built anew because it was.
    #[serde(default)]
    pub in_doubt: bool,
    /// Its state is being built anew.
    #[serde(default)]
    pub rebuilding: bool,
    /// The digest of the primary in the present term that its own, built anew from the log, contradicts.
    #[serde(default)]
    pub digest_at: Option<DigestAt>,
    /// The formats of the log that it can read.
    pub formats: Vec<u32>,
    /// The version of the program.
    pub version: String,
}

/// What a leader says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ElectionValue {
    /// Its name.
    pub name: String,
    /// Its process.
    pub boot_id: BootId,
    /// Its lease, in milliseconds.
    pub lease_ms: u64,
    /// Where it is reached.
    #[serde(flatten)]
    pub addresses: Addresses,
}

/// The member key of this process.
#[derive(Debug, Default)]
pub(super) struct Member {
    lease: Option<LeaseId>,
    call: Option<CallId>,
    keep_alive: Option<CallId>,
    next: Monotonic,
    /// What was last written.
    written: Option<MemberValue>,
    writing: Option<MemberValue>,
}

impl Member {
    /// The key may be gone, or say what it said long ago: it is written anew.
    pub(super) fn forget(&mut self) {
        self.written = None;
        self.next = Monotonic::default();
    }

    /// The lease of the key.
    pub(super) fn lease(&self) -> Option<LeaseId> {
        self.lease
    }
}

impl Node {
    fn member_value(&self, now: Monotonic) -> MemberValue {
        let leads = matches!(self.phase, Phase::Leading(_));
        let (position, trust) = (&self.following.position, &self.following.trust);
        let applied = self.replica.engine.applied();
        MemberValue {
            name: self.settings.name.clone(),
            boot_id: self.settings.boot_id,
            role: if leads { "primary" } else { "standby" }.to_owned(),
            addresses: self.settings.addresses.clone(),
            applied: applied.0,
            caught_up: leads || self.following.is_caught_up(now),
            lag: if leads { Some(0) } else { self.following.heard.lag(now, position.log, applied) },
            history: self.history,
            in_doubt: !leads && (trust.doubt().is_some() || trust.is_rebuilding()),
            rebuilding: !leads && trust.is_rebuilding(),
            digest_at: trust.against(position.term).filter(|_| !leads).cloned(),
            formats: Format::readable_numbers(),
            version: self.settings.version.clone(),
        }
    }

    pub(super) fn keep_member(&mut self, now: Monotonic) {
        if self.member.call.is_some() {
            return;
        }
        let value = self.member_value(now);
        // A new role is told at once, a new position now and then.
        let told = |written: &MemberValue| {
            written.role == value.role
                && written.caught_up == value.caught_up
                && written.in_doubt == value.in_doubt
                && written.rebuilding == value.rebuilding
                && written.digest_at == value.digest_at
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
