//! What people do to the log past all masters: keys that are deleted, damaged or another log's, and a store that is
//! restored from a backup. Some time later all is put back. Meanwhile no master may take what is left for the log: the
//! right thing is that none serves another history, and that the cluster goes on when the keys are back.

use bytes::Bytes;
use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::coordination::model::Model;
use moonkeeper::coordination::types::{
    Compare, Get, KeyRange, KeyValue, LeaseId, Op, Request, Response, Txn,
};
use moonkeeper::engine::record::Record;
use moonkeeper::engine::types::{LogTime, SequenceId};
use moonkeeper::replication::batch::{self, Batch, Body};

use super::plan::{MS, SECOND};
use super::truth::Cause;
use super::{Event, Sim};

/// What has to be undone.
pub enum Damage {
    /// Keys as they were.
    Keys(Vec<KeyValue>),
    /// A key that was not there, and the value that it was given.
    Forged(Bytes, Bytes),
    /// The store as it was.
    Store(Box<Model>),
}

/// A state of the store to go back to.
pub struct Backup {
    model: Model,
    /// Where its log ends.
    end: SequenceId,
}

impl Sim {
    /// Whether etcd runs from a backup.
    pub fn is_restored(&self) -> bool {
        matches!(self.etcd.damage, Some(Damage::Store(_)))
    }

    /// Whether the log is not what the masters wrote.
    pub fn is_damaged(&self) -> bool {
        self.etcd.damage.is_some()
    }

    /// The least that a master that runs knows to be durable; `None` if one knows nothing yet.
    fn least_known(&self) -> Option<SequenceId> {
        let nodes = self.masters.iter().filter_map(|master| master.node.as_ref());
        nodes.map(|node| node.incarnation().gate.durable()).min().filter(|least| least.0 > 0)
    }

    /// How long it takes until the mistake is noticed.
    fn unnoticed(&mut self) -> u64 {
        let ttl = self.plan.leader_ttl.as_micros() as u64;
        500 * MS + self.rng.below(ttl + 6 * SECOND)
    }

    fn mend_later(&mut self, damage: Damage) {
        let long = self.unnoticed();
        self.etcd.damage = Some(damage);
        self.watchdog.trouble(self.now + long);
        self.after(long, Event::Mend);
    }

    /// Keys of the log are deleted or changed.
    pub fn damage_log(&mut self) {
        let Some(least) = self.least_known() else { return };
        let range = self.keys.log();
        let Ok(Response::Got { page, .. }) = self.by_hand(&Request::Get(Get::all(range))) else { return };
        let (latest, mut batches): (Vec<_>, Vec<_>) = page
            .entries
            .iter()
            .filter(|entry| entry.key == self.keys.latest() || self.keys.batches().contains(&entry.key))
            .cloned()
            .partition(|entry| entry.key == self.keys.latest());
        let Some(latest) = latest.into_iter().next() else { return };
        let delete = |entry: &KeyValue| Op::Delete(KeyRange::key(entry.key.clone()));
        let put = |key: &Bytes, value: Bytes| Op::Put { key: key.clone(), value, lease: LeaseId(0) };
        let nth = self.rng.below(batches.len().max(1) as u64) as usize;
        // Alone, a master has no other to tell it that there was a log.
        let alone = self.masters.iter().filter(|master| master.node.is_some()).count() == 1;
        let kind = if alone && self.rng.percent(50) { 0 } else { self.rng.below(8) };
        let (what, changed, ops): (&str, Vec<KeyValue>, Vec<Op>) = match kind {
            0 => ("the prefix is deleted", page.entries.clone(), vec![Op::Delete(self.keys.log())]),
            1 => ("the end is deleted", vec![latest.clone()], vec![delete(&latest)]),
            2 => {
                let Ok(mut other) = Latest::from_bytes(&latest.value) else { return };
                other.log = LogId(other.log.0 ^ 1);
                ("the end is another log's", vec![latest.clone()], vec![put(&latest.key, other.to_bytes())])
            }
            3 => {
                // Shorter than what any master knows.
                let ends = |entry: &KeyValue| Batch::open(&entry.value).ok().map(|batch| batch.header);
                let kept = batches.iter().rposition(|entry| ends(entry).is_some_and(|end| end.last < least));
                let Some(kept) = kept else { return };
                let Ok(batch) = Batch::open(&batches[kept].value) else { return };
                let header = batch.header;
                let end = Latest {
                    log: header.log,
                    term: header.term,
                    last: header.last,
                    checksum: batch.checksum,
                };
                let mut changed = batches.split_off(kept + 1);
                let mut ops: Vec<Op> = changed.iter().map(delete).collect();
                ops.push(put(&latest.key, end.to_bytes()));
                changed.push(latest);
                ("the log is shortened", changed, ops)
            }
            4 | 5 => {
                // It says that it follows a batch that is not the last one.
                let Ok(end) = Latest::from_bytes(&latest.value) else { return };
                let mut body = Body::default();
                let record = Record::MetadataPut { key: b"forged", value: b"1" };
                let _ = body.try_push(self.truth.engine.sequencer(LogTime(0)).now, &record);
                let first = SequenceId(end.last.0 + 1);
                let sealed = batch::seal(end.log, end.term, first, Checksum(end.checksum.0 ^ 1), &body);
                (
                    "a forged batch is added",
                    Vec::new(),
                    vec![put(&self.keys.batch(end.log, first), sealed.bytes)],
                )
            }
            6 => {
                let Some(entry) = batches.get(nth) else { return };
                ("a batch is deleted", vec![entry.clone()], vec![delete(entry)])
            }
            _ => {
                let Some(entry) = batches.get(nth) else { return };
                let mut value = entry.value.to_vec();
                let at = self.rng.below(value.len() as u64) as usize;
                value[at] ^= 1 << self.rng.below(8);
                ("a batch is damaged", vec![entry.clone()], vec![put(&entry.key, value.into())])
            }
        };
        note!(self, "by hand: {what}");
        let forged = match ops.as_slice() {
            [Op::Put { key, value, .. }] if changed.is_empty() => {
                Some(Damage::Forged(key.clone(), value.clone()))
            }
            _ => None,
        };
        let done = self.by_hand(&Request::Txn(Txn { success: ops, ..Txn::default() }));
        self.look(Cause::Hand);
        if done.is_ok() {
            self.mend_later(forged.unwrap_or(Damage::Keys(changed)));
        }
    }

    /// A backup is taken now and then.
    pub fn back_up(&mut self) {
        if !self.is_damaged() {
            self.etcd.backup = Some(Backup { model: self.etcd.model.clone(), end: self.truth.last });
        }
    }

    /// etcd is restored from the backup: revisions go back.
    pub fn restore(&mut self) {
        let Some(backup) = self.etcd.backup.take() else { return };
        // A master that knows no more than the backup cannot tell that it is one.
        if self.least_known().is_none_or(|least| least <= backup.end) {
            return;
        }
        note!(self, "etcd is restored from a backup that ends at {}", backup.end.0);
        self.break_watches();
        let used = self.next_lease();
        let now = std::mem::replace(&mut self.etcd.model, backup.model);
        self.mend_later(Damage::Store(Box::new(now)));
        self.skip_leases(used);
        // Leaders of that time have long lost their leases.
        let election = Request::Get(Get::all(KeyRange::key(self.keys.election())));
        let mut leases: Vec<LeaseId> = self.truth.leader.iter().map(|leader| leader.1).collect();
        if let Ok(Response::Got { page, .. }) = self.by_hand(&election) {
            leases.extend(page.entries.iter().map(|entry| entry.lease));
        }
        for lease in leases {
            let _ = self.by_hand(&Request::LeaseRevoke { lease });
        }
        self.look(Cause::Time);
    }

    fn next_lease(&mut self) -> LeaseId {
        let granted = self.by_hand(&Request::LeaseGrant { ttl_seconds: 1 });
        let Ok(Response::LeaseGranted { lease, .. }) = granted else { return LeaseId(i64::MAX) };
        let _ = self.by_hand(&Request::LeaseRevoke { lease });
        lease
    }

    /// Ids of leases are random in etcd and ascend in the model: those of another store are not given again.
    fn skip_leases(&mut self, used: LeaseId) {
        while self.next_lease() < used {}
    }

    /// What was done by hand is undone.
    pub fn mend(&mut self) {
        match self.etcd.damage.take() {
            None => {}
            Some(Damage::Keys(entries)) => {
                note!(self, "by hand: the keys are put back");
                for KeyValue { key, value, .. } in entries {
                    let put = Op::Put { key, value, lease: LeaseId(0) };
                    let _ = self.by_hand(&Request::Txn(Txn { success: vec![put], ..Txn::default() }));
                }
                self.look(Cause::Hand);
            }
            Some(Damage::Forged(key, value)) => {
                note!(self, "by hand: the forged batch is deleted");
                // A primary that has overwritten it meanwhile wrote the real one.
                let compare = vec![Compare::Value { key: key.clone(), equals: value }];
                let success = vec![Op::Delete(KeyRange::key(key))];
                let _ = self.by_hand(&Request::Txn(Txn { compare, success, ..Txn::default() }));
                self.look(Cause::Hand);
            }
            Some(Damage::Store(model)) => {
                note!(self, "etcd is restored from the newest backup");
                self.break_watches();
                let used = self.next_lease();
                self.etcd.model = *model;
                self.skip_leases(used);
                self.look(Cause::Time);
            }
        }
    }
}
