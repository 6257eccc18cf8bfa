//! The last step: delete the election key and name the successor, in one transaction.

use std::time::Duration;

use bytes::Bytes;

use super::{Handover, Step};
use crate::coordination::types::{Compare, Failure, KeyRange, LeaseId, Op, Request, Response, Txn};
use crate::replication::node::{CallId, Node, Phase, Purpose};
use crate::replication::time::Monotonic;

/// Delay before a transaction without an answer is sent again.
const RETRY: Duration = Duration::from_millis(20);

impl Node {
    pub(super) fn begin_deleting(&mut self, now: Monotonic, lease: LeaseId, to: Option<String>) {
        let keys = self.settings.keys.clone();
        let until = now.plus(2 * self.settings.call_timeout);
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let mut success =
            vec![Op::Delete(KeyRange::key(keys.election())), Op::Delete(KeyRange::key(keys.master_view()))];
        if let Some(name) = &to {
            success.push(Op::Put { key: keys.switchover(), value: Bytes::from(name.clone()), lease });
        }
        let mut compare = vec![Compare::CreateRevision { key: keys.election(), equals: leadership.term.0 }];
        // A transaction that arrives late, after another record was written, has no effect.
        if let Some(latest) = leadership.writer.end().latest.clone() {
            compare.push(Compare::Value { key: keys.latest(), equals: latest });
        }
        let Some(handover) = &mut leadership.handover else { return };
        handover.to = to;
        handover.times.applied = Some(now);
        let txn = Txn { compare, success, failure: Vec::new() };
        handover.step = Step::Deleting { txn, call: None, retry_at: now, until };
        self.delete_election(now);
    }

    pub(super) fn delete_election(&mut self, now: Monotonic) {
        let Some(Handover { step: Step::Deleting { txn, call: None, retry_at, .. }, .. }) = self.handover()
        else {
            return;
        };
        if now < *retry_at {
            return;
        }
        let txn = txn.clone();
        let asked = self.call(Purpose::Handover, Request::Txn(txn));
        if let Some(Handover { step: Step::Deleting { call, .. }, .. }) = self.handover() {
            *call = Some(asked);
        }
    }

    pub(in crate::replication::node) fn handed_over(
        &mut self,
        now: Monotonic,
        answer: CallId,
        result: Result<Response, Failure>,
    ) {
        let Some(handover) = self.handover() else { return };
        let Step::Deleting { txn, call, retry_at, .. } = &mut handover.step else { return };
        if *call != Some(answer) {
            return;
        }
        *call = None;
        match result {
            // If the compare failed, an attempt without an answer had succeeded, or the lease ran out: this node does
            // not lead either way, and everything it wrote is durable.
            Ok(Response::Txn { .. }) => self.finish_handover(now),
            Err(Failure::LeaseNotFound) if planted!(SuccessorExpired) => {
                *retry_at = now.plus(RETRY);
            }
            Err(Failure::LeaseNotFound) => {
                // This is an answer: the transaction was not carried out, because the lease of the successor's name has
                // ended. Send it without the name.
                txn.success.retain(|op| !matches!(op, Op::Put { .. }));
                *retry_at = now;
            }
            Ok(_) | Err(_) => *retry_at = now.plus(RETRY),
        }
    }
}
