//! The admin API's view of a master that replicates.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::{oneshot, watch};

use super::digests::DigestWorker;
use super::host::{SnapshotsWaiting, Waiting};
use super::published_status::PublishedStatus;
use crate::cluster::digests::{DigestRequest, DigestsProgress, DigestsRefused, StateDigests};
use crate::cluster::member::MemberValue;
use crate::cluster::promotion::PromotionReport;
use crate::cluster::role::Role;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotRefused};
use crate::cluster::status::{Fault, Leader, Member, Status};
use crate::cluster::switchover::SwitchoverDone;
use crate::master::admin_api::{Control, ControlError, Pending};
use crate::master::etcd_health::EtcdHealthState;
use crate::master::peer::{Identity, PeerFaults};
use crate::replication::driver::Inputs;
use crate::replication::node::status::{Activity, Promotion};
use crate::replication::node::{HandedOver, HandoverError, HandoverId, Input, SnapshotRequest};
use crate::replication::time::MonotonicClock;

/// How long a switchover waits for the new primary before it reports its result.
const SUCCESSOR_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a request for a snapshot waits for it. A state of ten million objects takes about a minute.
const SNAPSHOT_TIMEOUT: Duration = Duration::from_secs(300);

/// A standby whose last status is older than this does not count as caught up. The node publishes one every 50 ms.
const STALE_STATUS: Duration = Duration::from_secs(1);

/// A node, as the admin API sees it.
#[derive(Debug)]
pub(super) struct NodeControl {
    own: Identity,
    statuses: watch::Receiver<PublishedStatus>,
    inputs: Inputs,
    clock: MonotonicClock,
    waiting: Waiting,
    snapshots_waiting: SnapshotsWaiting,
    next: AtomicU64,
    digests: DigestWorker,
    peer_faults: PeerFaults,
    etcd_health: EtcdHealthState,
}

impl NodeControl {
    pub(super) fn new(
        own: Identity,
        statuses: watch::Receiver<PublishedStatus>,
        inputs: Inputs,
        clock: MonotonicClock,
        peer_faults: PeerFaults,
        etcd_health: EtcdHealthState,
    ) -> Self {
        Self {
            own,
            statuses,
            inputs,
            clock,
            waiting: Waiting::default(),
            snapshots_waiting: SnapshotsWaiting::default(),
            next: AtomicU64::new(0),
            digests: DigestWorker::default(),
            peer_faults,
            etcd_health,
        }
    }

    /// Returns the map of callers that wait for the end of a hand-over.
    pub(super) fn waiting(&self) -> Waiting {
        Arc::clone(&self.waiting)
    }

    /// Returns the map of callers that wait for a snapshot.
    pub(super) fn snapshots_waiting(&self) -> SnapshotsWaiting {
        Arc::clone(&self.snapshots_waiting)
    }
}

fn phase(activity: Activity) -> &'static str {
    match activity {
        Activity::CatchingUp => "catching up",
        Activity::Following => "following",
        Activity::Standing => "standing for election",
        Activity::Promoting => "taking over",
        Activity::Serving => "serving",
        Activity::HandingOver => "handing over",
        Activity::Leaving => "stepping down",
        Activity::Stopped => "stopped",
    }
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn wall_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, ms)
}

impl Control for NodeControl {
    fn status(&self) -> Status {
        let published = self.statuses.borrow().clone();
        let PublishedStatus { status, incarnation, .. } = &published;
        let engine = &incarnation.engine;
        let reading = engine.reading();
        // The digest belongs to exactly this record; another may have been applied since.
        let applied = reading.sequence_id.0;
        let durable = incarnation.gate.durable().0.max(status.durable.0);
        let primary = status.role == Role::Primary;
        // A standby whose node is too busy to publish its status does not keep up.
        let current = primary || self.clock.now().since(published.at) < STALE_STATUS;
        let caught_up = status.caught_up && current;
        let ready = status.activity == Activity::Serving || (!primary && caught_up);
        let log_now = published.clock.map(|clock| clock.now());
        let hold = log_now.map_or(0, |now| engine.hold_until().0.saturating_sub(now.0));
        let starts = log_now.map_or(0, |now| engine.starts_held_until().0.saturating_sub(now.0));
        Status {
            name: self.own.name.clone(),
            boot_id: self.own.boot_id.clone(),
            cluster_id: self.own.cluster_id.clone(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            role: if primary { Role::Primary } else { Role::Standby },
            phase: phase(status.activity).to_owned(),
            waits_for: waits_for(&published).map(str::to_owned),
            ready,
            why_not_ready: (!ready).then(|| why_not_ready(&published)),
            term: status.term.0,
            leader: published.leader.as_ref().map(|name| Leader {
                name: name.clone(),
                address: published.master_view.as_ref().map_or(String::new(), |key| key.address.clone()),
            }),
            applied,
            durable_prefix: durable,
            lag: status.lag.filter(|_| current),
            caught_up,
            digest: format!("{:016x}", reading.digest.0),
            hold_ms_left: hold,
            starts_held_ms_left: starts,
            lease_ms_left: status.lease_left.map_or(0, ms),
            queue_bytes: incarnation.queue.bytes() as u64,
            members: published.members.iter().map(Member::from).collect(),
            promotion: status.promotion.as_ref().map(|promotion| self.promotion(promotion, &published)),
            log_refused: status.refused.clone(),
            etcd: Some(self.etcd_health.borrow().clone()).filter(|health| !health.members.is_empty()),
            history: status.history,
            digest_at: status.against.clone(),
            snapshots: status.snapshots.as_ref().map(|report| report.status.clone()),
            oplog: status.floor.clone(),
            faults: faults(&published, &self.peer_faults),
        }
    }

    fn silent_for(&self) -> Duration {
        let told = self.statuses.borrow().at;
        self.clock.now().since(told)
    }

    fn log_time_ms(&self) -> u64 {
        self.statuses.borrow().incarnation.engine.log_time().0
    }

    fn digests(&self, request: DigestRequest) -> Pending<Result<Arc<StateDigests>, DigestsRefused>> {
        self.digests.request(request, &self.statuses)
    }

    fn digests_progress(&self) -> Option<DigestsProgress> {
        self.digests.progress()
    }

    fn snapshot(&self) -> Pending<Result<HeldSnapshot, SnapshotRefused>> {
        let id = SnapshotRequest(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        self.snapshots_waiting.lock().insert(id, sender);
        let (inputs, waiting) = (self.inputs.clone(), Arc::clone(&self.snapshots_waiting));
        Box::pin(async move {
            inputs.send(Input::TakeSnapshot { id }).await;
            match tokio::time::timeout(SNAPSHOT_TIMEOUT, receiver).await {
                Ok(Ok(result)) => result,
                Ok(Err(_)) => Err(SnapshotRefused::Failed("this master is stopping".to_owned())),
                Err(_) => {
                    waiting.lock().remove(&id);
                    Err(SnapshotRefused::TimedOut(SNAPSHOT_TIMEOUT.as_secs()))
                }
            }
        })
    }

    fn switchover(&self, to: Option<String>) -> Pending<Result<SwitchoverDone, ControlError>> {
        let id = HandoverId(self.next.fetch_add(1, Ordering::Relaxed));
        let (sender, receiver) = oneshot::channel();
        self.waiting.lock().insert(id, sender);
        let (inputs, from) = (self.inputs.clone(), self.own.name.clone());
        let (mut statuses, clock) = (self.statuses.clone(), self.clock);
        // A task of its own: the hand-over goes on when the caller has gone.
        let task = tokio::spawn(async move {
            let begun = Instant::now();
            inputs.send(Input::Switchover { id, to }).await;
            let HandedOver { to, closed_at } = match receiver.await {
                Ok(Ok(done)) => done,
                Ok(Err(error)) => {
                    let published = statuses.borrow();
                    return Err(control_error(error, published.leader.clone(), &published.members));
                }
                Err(_) => return Err(ControlError::GivenUp("this master is stopping".to_owned())),
            };
            let silent = begun.elapsed();
            let leads = |published: &PublishedStatus| {
                published.leader.as_ref().is_some_and(|leader| *leader != from)
                    && published.master_view.is_some()
            };
            let taken_over = tokio::time::timeout(SUCCESSOR_TIMEOUT, statuses.wait_for(leads)).await;
            match taken_over {
                Ok(Ok(published)) => Ok(SwitchoverDone {
                    from: from.clone(),
                    to: published.leader.clone().unwrap_or(to),
                    term: published.status.term.0,
                    unanswered_ms: ms(clock.now().since(closed_at)),
                    total_ms: ms(begun.elapsed()),
                }),
                _ => Err(ControlError::GivenUp(format!(
                    "{from} handed over after {:.1} s, but {to} did not begin to serve within {} s; look at its log",
                    silent.as_secs_f64(),
                    SUCCESSOR_TIMEOUT.as_secs()
                ))),
            }
        });
        Box::pin(async move {
            task.await.unwrap_or_else(|_| Err(ControlError::GivenUp("this master is stopping".to_owned())))
        })
    }
}

impl NodeControl {
    fn promotion(&self, promotion: &Promotion, published: &PublishedStatus) -> PromotionReport {
        let report = published.incarnation.engine.term_report();
        PromotionReport {
            term: promotion.term.0,
            primary: self.own.name.clone(),
            reason: promotion.reason.clone(),
            at_ms: wall_ms().saturating_sub(ms(self.clock.now().since(promotion.at))),
            total_ms: ms(promotion.total),
            after_election_ms: ms(promotion.took),
            objects: report.objects,
            objects_removed: report.objects_removed,
            bytes_removed: report.bytes_removed,
            inherited_clients: report.clients as u64,
            hold_ms: report.hold_ms,
        }
    }
}

fn control_error(error: HandoverError, leader: Option<String>, members: &[MemberValue]) -> ControlError {
    match error {
        HandoverError::NotPrimary => ControlError::NotPrimary { primary: leader },
        HandoverError::Busy => ControlError::Busy,
        HandoverError::AlreadyPrimary(_) | HandoverError::NoTarget => {
            ControlError::NoTarget(error.to_string())
        }
        HandoverError::BadTarget(name) if members.iter().all(|member| member.name != name) => {
            ControlError::NoSuchMember(name)
        }
        HandoverError::BadTarget(_) => ControlError::NoTarget(error.to_string()),
        HandoverError::Failed(_) | HandoverError::Deposed(_) => ControlError::GivenUp(error.to_string()),
    }
}

fn waits_for(published: &PublishedStatus) -> Option<&'static str> {
    match published.status.activity {
        Activity::CatchingUp if published.etcd_heard.is_none() => Some("etcd"),
        Activity::CatchingUp => Some("the end of the log"),
        Activity::Following if published.leader.is_none() => Some("a primary"),
        Activity::Standing | Activity::Promoting => Some("etcd"),
        Activity::HandingOver => Some("the successor"),
        Activity::Leaving => Some("clients to be sent away"),
        Activity::Following | Activity::Serving | Activity::Stopped => None,
    }
}

fn why_not_ready(published: &PublishedStatus) -> String {
    let reason = published.status.trouble.clone();
    reason.unwrap_or_else(|| match waits_for(published) {
        Some(what) => format!("{}: waits for {what}", phase(published.status.activity)),
        None => phase(published.status.activity).to_owned(),
    })
}

fn faults(published: &PublishedStatus, peers: &PeerFaults) -> Vec<Fault> {
    let engine = &published.incarnation.engine;
    let divergence = published.status.divergence;
    let mut faults = Vec::new();
    let mut note = |what: &str, count: u64, last: String| {
        if count > 0 {
            faults.push(Fault { what: what.to_owned(), count, last });
        }
    };
    note(
        "digests that did not match",
        divergence.digest_mismatches,
        divergence
            .digest_mismatch
            .map_or(String::new(), |first| format!("first at record {}", first.record.0)),
    );
    note(
        "records that do not fit the last change of their object",
        divergence.broken_chains,
        divergence
            .broken_chain
            .map_or(String::new(), |broken| format!("first at record {}", broken.record.0)),
    );
    note(
        "records out of order",
        divergence.records_out_of_order,
        divergence.out_of_order.map_or(String::new(), |wrong| format!("first at record {}", wrong.found.0)),
    );
    note(
        "objects dropped because a record did not fit",
        engine.faults(),
        engine.recent_faults().last().map_or(String::new(), |fault| {
            let objects: Vec<String> = fault.objects.iter().map(|id| id.0.to_string()).collect();
            let (record, reason) = (fault.record.0, fault.reason.as_str());
            format!("last at record {record}: {reason}; objects {}", objects.join(", "))
        }),
    );
    let (count, last) = peers.count_and_last();
    note("peer connections that could not be authenticated", count, last);
    note("rebuilds of the state from the log", u64::from(published.status.rebuilds), String::new());
    if let Some(against) = &published.status.against {
        let last = format!("first at record {} of term {}", against.record, against.term);
        note("the primary's digest contradicts the log", 1, last);
    }
    if let Some(reason) = &published.status.refused {
        let last = format!("{reason}; no other master can be elected until etcd accepts writes again");
        note("etcd refuses to write the log", 1, last);
    }
    note("etcd's revision went back", u64::from(published.status.revision_went_back), String::new());
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_switchover_says_which_master_cannot_take_over() {
        let told = |error| control_error(error, None, &[]).to_string();
        let already = told(HandoverError::AlreadyPrimary("m-0".to_owned()));
        assert_eq!(already, "m-0 is the primary already, nothing to do");
        assert!(
            told(HandoverError::NoTarget).starts_with("no standby can take over: one has to be connected")
        );
        assert_eq!(told(HandoverError::BadTarget("m-9".to_owned())), "there is no member called 'm-9'");
        let member = MemberValue { name: "m-1".to_owned(), ..MemberValue::default() };
        let unfit = control_error(HandoverError::BadTarget("m-1".to_owned()), None, &[member]);
        assert!(unfit.to_string().starts_with("m-1 cannot take over: it has to be connected"), "{unfit}");
        assert_eq!(unfit.code(), "no_target");
    }
}
