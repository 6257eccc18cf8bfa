//! Leading: keeps the lease alive, writes records, and serves clients as long as both work.

use std::time::Duration;

use bytes::Bytes;

use super::campaign::Campaign;
use super::{CallId, Command, Leadership, Node, Phase, Purpose, Stage, status};
use crate::cluster::log_end::History;
use crate::coordination::types::{Compare, Failure, KeyRange, Op, Request, Response, Txn};
use crate::replication::log_position::Position;
use crate::replication::time::Monotonic;
use crate::replication::writer::Written;

/// Interval of heartbeats: a quiet primary writes this often, so that silence means trouble.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Delay before a call without an answer is made again.
const RETRY: Duration = Duration::from_millis(20);

/// Delay before a batch that etcd has refused, for lack of space for instance, is sent again.
const RETRY_REFUSED: Duration = Duration::from_millis(500);

/// How long a node that could not open its port leaves the lead to others.
const RETRY_OPEN: Duration = Duration::from_secs(5);

/// The same for a node that is the only member: its clients wait for nothing else.
const RETRY_OPEN_ALONE: Duration = Duration::from_secs(1);

impl Node {
    fn leadership(&mut self) -> Option<&mut Leadership> {
        match &mut self.phase {
            Phase::Leading(leadership) => Some(leadership),
            _ => None,
        }
    }

    pub(super) fn lead(&mut self, now: Monotonic) {
        self.heed_standbys(now);
        self.keep_lease(now);
        self.beat(now);
        self.raise_format(now);
        self.advance_handover(now);
        self.write(now);
        self.publish(now);
        self.compact(now);
    }

    /// Keeps the lease alive that this node leads with, or stands for election with.
    pub(super) fn keep_lease(&mut self, now: Monotonic) {
        let interval = self.settings.keep_alive;
        let lease = match &mut self.phase {
            Phase::Leading(leadership) => &mut leadership.lease,
            Phase::Campaigning(Campaign::Creating { lease, .. }) => lease,
            _ => return,
        };
        if now < lease.next {
            return;
        }
        lease.next = now.plus(interval);
        let request = Request::LeaseKeepAlive { lease: lease.id };
        let call = self.call(Purpose::KeepAlive, request);
        match &mut self.phase {
            Phase::Leading(leadership) => leadership.lease.asked(call, now),
            Phase::Campaigning(Campaign::Creating { lease, .. }) => lease.asked(call, now),
            _ => {}
        }
    }

    pub(super) fn kept_alive(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let lease = match &mut self.phase {
            Phase::Leading(leadership) => &mut leadership.lease,
            Phase::Campaigning(Campaign::Creating { lease, .. }) => lease,
            _ => return,
        };
        let Some(sent) = lease.answered(call) else { return };
        let sent = if planted!(LeaseFromArrival) { now } else { sent };
        match result {
            Ok(Response::LeaseKeptAlive { ttl_seconds }) if ttl_seconds > 0 => {
                lease.confirm(Duration::from_secs(ttl_seconds.unsigned_abs()), sent);
                if let Phase::Leading(leadership) = &self.phase
                    && leadership.serves()
                {
                    self.incarnation.gate.open_until(leadership.lease.deadline());
                }
            }
            Ok(_) => {
                if matches!(self.phase, Phase::Leading(_)) {
                    self.leave(now, "the lease has ended".to_owned());
                }
            }
            // No answer does not mean that the lease is lost: retry soon. The gate closes by itself when the deadline
            // has passed.
            Err(_) => lease.next = lease.next.min(now.plus(RETRY)),
        }
    }

    /// Reacts to a jump of the clocks: the lease may have ended without this node's clock showing it. Nothing is
    /// answered until etcd has confirmed the lease by a keep-alive that was sent after the jump. If only the wall clock
    /// was set, this costs one round trip and no leadership.
    pub(super) fn clock_jumped(&mut self, now: Monotonic, drift: Duration) {
        let lease = match &mut self.phase {
            Phase::Leading(leadership) => &mut leadership.lease,
            Phase::Campaigning(Campaign::Creating { lease, .. }) => lease,
            _ => return,
        };
        if planted!(IgnoreJump) {
            return;
        }
        lease.forget(now);
        self.close_gate();
        tracing::warn!(
            ?drift,
            "the clocks of this machine jumped, asking etcd whether the lease still holds"
        );
    }

    /// Commits a digest each second. It is a heartbeat, and lets standbys compare their state with this one.
    fn beat(&mut self, now: Monotonic) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        let quiet = leadership.handover.as_ref().is_some_and(|handover| handover.is_resigned());
        if !leadership.serves() || quiet || now < leadership.next_heartbeat {
            return;
        }
        leadership.next_heartbeat = now.plus(HEARTBEAT);
        let at = leadership.clock.at(now);
        self.incarnation.engine.sequencer(at).commit_digest();
    }

    fn write(&mut self, now: Monotonic) {
        let queue = std::sync::Arc::clone(&self.incarnation.queue);
        let Some(leadership) = self.leadership() else { return };
        let txn = match leadership.retry_at {
            Some(at) if now < at => return,
            Some(_) => {
                leadership.retry_at = None;
                planted!(Repack => leadership.writer.repack(&queue));
                leadership.writer.again()
            }
            None if leadership.writer.is_busy() => None,
            None if leadership.serves()
                && !queue.has_full_batch()
                && leadership.linger.delays(now, queue.records_after(leadership.writer.end().last)) =>
            {
                None
            }
            None => match leadership.writer.next(&queue) {
                Ok(txn) => txn,
                Err(gap) => return self.leave(now, gap.to_string()),
            },
        };
        if let Some(txn) = txn {
            if self.incarnation.gate.writing_for(now).is_zero() {
                self.incarnation.gate.set_writing(Some(now));
            }
            let call = self.call(Purpose::Write, Request::Txn(txn));
            if let Some(leadership) = self.leadership() {
                leadership.writing = Some(call);
            }
        }
    }

    pub(super) fn written(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let incarnation = std::sync::Arc::clone(&self.incarnation);
        let Some(leadership) = self.leadership() else { return };
        // The answer to a write of an earlier term means nothing in this one.
        let ours = leadership.writing == Some(call);
        let ours = ours || planted!(AnyWriteAnswer);
        if !ours {
            return;
        }
        leadership.writing = None;
        let before = leadership.writer.end().last;
        let refused = match &result {
            Err(Failure::Refused(reason)) => Some(reason.clone()),
            _ => None,
        };
        match leadership.writer.answered(result, &incarnation.queue) {
            Written::Durable(id) => {
                let (answered, waiting) = (id.0 - before.0, incarnation.queue.records_after(id));
                leadership.linger.committed(now, answered, waiting, incarnation.gate.writing_for(now));
                incarnation.gate.set_writing(None);
                incarnation.gate.advance(id);
                let position = Position::behind(leadership.writer.end(), leadership.term);
                let reopening = leadership.stage;
                self.history = History::newer(self.history, History::at(&position));
                self.log_accepted();
                if let Stage::Beginning(first) = reopening
                    && id >= first
                {
                    self.open();
                }
            }
            Written::Unknown => {
                let wait = if refused.is_some() { RETRY_REFUSED } else { RETRY };
                leadership.retry_at = Some(now.plus(wait));
                if let Some(reason) = refused {
                    self.log_refused(reason);
                }
            }
            Written::Deposed => self.leave(now, "another master leads, or none".to_owned()),
            Written::Broken => self.leave(now, "the log does not end where this primary left it".to_owned()),
        }
    }

    /// Records that etcd refuses to write the log. The batch stays in flight with the same bytes (R5); new changes are
    /// refused before anything is applied, and reads continue.
    fn log_refused(&mut self, reason: String) {
        // etcd's own message does not name the alarm that an administrator has to look for.
        let out_of_space = reason.contains("database space exceeded");
        let reason = if out_of_space { format!("out of space, alarm NOSPACE ({reason})") } else { reason };
        if self.refused.as_ref() != Some(&reason) {
            tracing::error!(
                %reason,
                "etcd refuses to write the log: changes are refused, and no other master can be elected, until it accepts writes again"
            );
        }
        self.incarnation.gate.set_log_full(true);
        self.refused = Some(reason);
    }

    /// Records that etcd has written a batch.
    fn log_accepted(&mut self) {
        if self.refused.take().is_some() {
            tracing::info!("etcd accepts writes to the log again");
            self.incarnation.gate.set_log_full(false);
        }
    }

    /// Opens the gate and the port.
    pub(super) fn open(&mut self) {
        let incarnation = std::sync::Arc::clone(&self.incarnation);
        let Some(leadership) = self.leadership() else { return };
        leadership.stage = Stage::Opening;
        incarnation.gate.open_until(leadership.lease.deadline());
        let (clock, term) = (leadership.clock, leadership.term);
        self.commands.push(Command::Open { incarnation, clock, term });
    }

    pub(super) fn opened(&mut self, now: Monotonic) {
        let Some(leadership) = self.leadership() else { return };
        if leadership.stage == Stage::Opening {
            leadership.stage = Stage::Publishing { call: None, retry_at: now };
        }
    }

    /// Clients cannot be served: another process has the port, for instance. To stand again at once would win again, and
    /// keep out the masters that can serve.
    pub(super) fn open_failed(&mut self, now: Monotonic, reason: &str) {
        let alone = self.seen_keys.members().all(|member| member.name == self.settings.name);
        let wait = if alone { RETRY_OPEN_ALONE } else { RETRY_OPEN };
        self.stand_after = self.stand_after.max(now.plus(wait));
        self.leave(now, format!("cannot serve: {reason}"));
    }

    /// Publishes the address of this primary in `master_view`, once the port is open.
    fn publish(&mut self, now: Monotonic) {
        let key = self.settings.keys.master_view();
        let election = self.settings.keys.election();
        let successor = KeyRange::key(self.settings.keys.switchover());
        let address = Bytes::from(self.settings.addresses.rpc.clone());
        let Some(leadership) = self.leadership() else { return };
        let Stage::Publishing { call: None, retry_at } = leadership.stage else { return };
        if now < retry_at {
            return;
        }
        let txn = Txn {
            compare: vec![Compare::CreateRevision { key: election, equals: leadership.term.0 }],
            // The name of the successor has served its purpose: the next election shall not wait for it.
            success: vec![Op::Put { key, value: address, lease: leadership.lease.id }, Op::Delete(successor)],
            failure: Vec::new(),
        };
        let asked = self.call(Purpose::Publish, Request::Txn(txn));
        if let Some(leadership) = self.leadership() {
            leadership.stage = Stage::Publishing { call: Some(asked), retry_at };
        }
    }

    pub(super) fn published(&mut self, now: Monotonic, answer: CallId, result: Result<Response, Failure>) {
        let Some(leadership) = self.leadership() else { return };
        let Stage::Publishing { call: Some(asked), .. } = leadership.stage else { return };
        if asked != answer {
            return;
        }
        match result {
            Ok(Response::Txn { succeeded: true, .. }) => {
                leadership.stage = Stage::Serving;
                if std::mem::replace(&mut leadership.told, true) {
                    tracing::info!(
                        term = leadership.term.0,
                        "serving again after a hand-over that was given up"
                    );
                    return;
                }
                let promotion = status::Promotion {
                    term: leadership.term,
                    at: now,
                    reason: leadership.reason.clone(),
                    total: now.since(leadership.gone_at),
                    took: now.since(leadership.won_at),
                };
                let (term, reason) = (promotion.term.0, promotion.reason.as_str());
                tracing::info!(term, reason, total = ?promotion.total, took = ?promotion.took, "serving as primary");
                self.report = Some(promotion);
            }
            Ok(Response::Txn { succeeded: false, .. }) | Err(Failure::LeaseNotFound) => {
                self.leave(now, "lost the election while opening".to_owned());
            }
            Ok(_) | Err(_) => leadership.stage = Stage::Publishing { call: None, retry_at: now.plus(RETRY) },
        }
    }
}

impl Leadership {
    /// Returns whether clients may be answered.
    pub(super) fn serves(&self) -> bool {
        !matches!(self.stage, Stage::Beginning(_) | Stage::Closed)
    }
}
