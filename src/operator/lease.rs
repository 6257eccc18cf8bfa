//! Leader election among operators: only the holder of a Lease in Kubernetes may write.
//!
//! A Lease counts as abandoned when its record has not changed for its duration, by the clock of the observing
//! operator: wall clocks of two machines are never compared. The holder counts from the moment at which it *sent* the
//! renewal, and stops writing well before others may take over, whatever the API server answers meanwhile.
//!
//! A holder that writes the record and does not learn of it keeps the others waiting and does nothing itself. So each
//! call has its own timeout, and a slow API server costs only the time that its answers take.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube::api::PostParams;
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::metrics::Metrics;
use super::scope::{LEASE, SCOPE_LABEL, Scope};

/// Durations of a Lease. `writable` is shorter than `lasts` by a margin that covers a request under way.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// Time without a renewal after which others may take over.
    pub lasts: Duration,
    /// Time after a renewal in which the holder may write.
    pub writable: Duration,
    /// Time between two renewals, and between two reads of another operator's Lease.
    pub interval: Duration,
    /// Timeout of each call. A renewal is a read and a write, and both fit between `interval` and `writable`.
    pub call: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            lasts: Duration::from_secs(15),
            writable: Duration::from_secs(10),
            interval: Duration::from_secs(2),
            call: Duration::from_secs(3),
        }
    }
}

/// Whether this process may write, and until when unless the Lease is renewed.
#[derive(Clone, Debug)]
pub struct WriteRight(watch::Receiver<Option<Instant>>);

impl WriteRight {
    /// Returns a permanent right, for a process that runs without a Lease. The caller keeps the sender: once it is
    /// dropped, [`Self::lost`] returns.
    #[must_use]
    pub fn unconditional() -> (watch::Sender<Option<Instant>>, Self) {
        // A century from now, because `Instant` has no maximum.
        let (sender, receiver) =
            watch::channel(Some(Instant::now() + Duration::from_secs(100 * 365 * 86_400)));
        (sender, Self(receiver))
    }

    /// Returns whether this process may write now.
    #[must_use]
    pub fn holds(&self) -> bool {
        self.0.borrow().is_some_and(|until| Instant::now() < until)
    }

    /// Waits until this process may write.
    pub async fn gained(&mut self) {
        if self.0.wait_for(|until| until.is_some_and(|until| Instant::now() < until)).await.is_err() {
            // The task that renews the Lease has ended, so the right will never come.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process may no longer write.
    pub async fn lost(&mut self) {
        loop {
            let until = *self.0.borrow_and_update();
            let Some(until) = until.filter(|until| Instant::now() < *until) else { return };
            tokio::select! {
                changed = self.0.changed() => if changed.is_err() { return },
                () = tokio::time::sleep_until(until) => {}
            }
        }
    }
}

/// Why a Lease could not be read or written.
#[derive(Debug, thiserror::Error)]
enum LeaseError {
    /// The API server refused, or cannot be reached.
    #[error(transparent)]
    Kubernetes(#[from] kube::Error),
    /// The API server has not answered in time. It may have executed the call all the same.
    #[error("no answer from the API server")]
    NoAnswer,
}

/// What to do about a Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// There is none: make it.
    Create,
    /// It is ours: renew it.
    Renew,
    /// It has no holder, or its holder has not renewed it in time: take it.
    TakeOver,
    /// Another operator holds it: wait.
    Wait,
}

/// Decides what to do about a Lease whose record has not changed for `unchanged`.
fn decide(seen: Option<&LeaseSpec>, me: &str, unchanged: Duration, ours: Timing) -> Decision {
    let Some(seen) = seen else { return Decision::Create };
    match seen.holder_identity.as_deref() {
        None | Some("") => Decision::TakeOver,
        Some(holder) if holder == me => Decision::Renew,
        Some(_) => {
            // Its holder decides how long it lasts: the record has the duration.
            let lasts = seen.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let lasts = lasts.map_or(ours.lasts, Duration::from_secs);
            if unchanged >= lasts { Decision::TakeOver } else { Decision::Wait }
        }
    }
}

/// Builds the record to write.
fn record(seen: Option<&LeaseSpec>, me: &str, decision: Decision, now: Timestamp, ours: Timing) -> LeaseSpec {
    let now = MicroTime(now);
    let before = seen.cloned().unwrap_or_default();
    let renewed = decision == Decision::Renew;
    let transitions = before.lease_transitions.unwrap_or_default();
    LeaseSpec {
        acquire_time: if renewed { before.acquire_time } else { Some(now.clone()) },
        holder_identity: Some(me.to_owned()),
        lease_duration_seconds: i32::try_from(ours.lasts.as_secs()).ok(),
        lease_transitions: Some(if renewed || seen.is_none() { transitions } else { transitions + 1 }),
        renew_time: Some(now),
        ..before
    }
}

/// An operator that competes for a Lease.
pub struct Candidate {
    api: Api<Lease>,
    name: String,
    labels: BTreeMap<String, String>,
    me: String,
    timing: Timing,
    metrics: Metrics,
    /// The record as last read, and since when it has been the same.
    seen: Option<(LeaseSpec, Instant)>,
}

impl Candidate {
    /// Creates a candidate called `me` for the Lease of an operator that runs in the namespace `own` and has this
    /// scope.
    #[must_use]
    pub fn new(client: Client, own: &str, scope: &Scope, me: &str, timing: Timing, metrics: Metrics) -> Self {
        let api = Api::namespaced(client, scope.lease_namespace(own));
        let labels = BTreeMap::from([(SCOPE_LABEL.to_owned(), scope.label().to_owned())]);
        Self { api, name: LEASE.to_owned(), labels, me: me.to_owned(), timing, metrics, seen: None }
    }

    /// Returns the right to write, and the future that acquires and renews the Lease until `stop`.
    pub fn start(
        mut self,
        mut stop: watch::Receiver<bool>,
    ) -> (WriteRight, impl Future<Output = ()> + Send + 'static) {
        let (sender, receiver) = watch::channel(None);
        (WriteRight(receiver), async move { self.hold(&sender, &mut stop).await })
    }

    async fn hold(&mut self, right: &watch::Sender<Option<Instant>>, stop: &mut watch::Receiver<bool>) {
        loop {
            let mut pause = self.timing.interval;
            match self.attempt().await {
                Ok(Some(sent)) => {
                    if right.borrow().is_none() {
                        tracing::info!(lease = self.name, me = self.me, "acquired the lease, and may write");
                    }
                    right.send_replace(Some(sent + self.timing.writable));
                }
                Ok(None) => {
                    if right.send_replace(None).is_some() {
                        tracing::warn!(lease = self.name, "lost the lease to another operator");
                    }
                }
                // The right expires by itself unless a later attempt succeeds.
                Err(error) => {
                    tracing::warn!(lease = self.name, %error, "cannot renew the lease");
                    if matches!(error, LeaseError::NoAnswer) {
                        // Time has passed, and the next call uses another connection.
                        pause = Duration::ZERO;
                    }
                }
            }
            if right.borrow().is_some_and(|until| until <= Instant::now()) {
                right.send_replace(None);
                tracing::warn!(lease = self.name, "the lease was not renewed in time");
            }
            self.metrics.leads(right.borrow().is_some());
            tokio::select! {
                biased;
                _ = stop.wait_for(|stop| *stop) => break,
                () = sleep(pause) => {}
            }
        }
        // Nothing is written from here on, so the Lease is released and the next operator need not wait for it to
        // expire.
        if right.send_replace(None).is_some()
            && let Err(error) = self.release().await
        {
            tracing::warn!(lease = self.name, %error, "cannot release the lease");
        }
    }

    /// Reads the Lease and writes it if that is allowed. Returns when the write was sent if this operator holds the
    /// Lease now, and nothing if another one does.
    async fn attempt(&mut self) -> Result<Option<Instant>, LeaseError> {
        let found = self.answered(self.api.get_opt(&self.name)).await?;
        let spec = found.as_ref().map(|lease| lease.spec.clone().unwrap_or_default());
        let now = Instant::now();
        self.seen = match (spec.clone(), self.seen.take()) {
            (Some(spec), Some((before, since))) if before == spec => Some((spec, since)),
            (spec, _) => spec.map(|spec| (spec, now)),
        };
        let unchanged = self.seen.as_ref().map_or(Duration::ZERO, |(_, since)| now - *since);
        let decision = decide(spec.as_ref(), &self.me, unchanged, self.timing);
        let spec = record(spec.as_ref(), &self.me, decision, Timestamp::now(), self.timing);
        let params = PostParams::default();
        let written = match (decision, found) {
            (Decision::Wait, _) => return Ok(None),
            (_, None) => {
                let (name, labels) = (Some(self.name.clone()), Some(self.labels.clone()));
                let metadata = ObjectMeta { name, labels, ..ObjectMeta::default() };
                let lease = Lease { metadata, spec: Some(spec) };
                self.answered(self.api.create(&params, &lease)).await
            }
            // With the resource version that was read: if another operator has written since, the write is refused.
            (_, Some(mut found)) => {
                found.labels_mut().extend(self.labels.clone());
                let lease = Lease { spec: Some(spec), ..found };
                self.answered(self.api.replace(&self.name, &params, &lease)).await
            }
        };
        match written {
            Ok(lease) => {
                self.metrics.wrote_lease();
                self.seen = lease.spec.map(|spec| (spec, now));
                // The write was sent right after this moment.
                Ok(Some(now))
            }
            Err(LeaseError::Kubernetes(kube::Error::Api(status))) if status.code == 409 => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn release(&mut self) -> Result<(), LeaseError> {
        let Some(mut lease) = self.answered(self.api.get_opt(&self.name)).await? else { return Ok(()) };
        let spec = lease.spec.get_or_insert_default();
        if spec.holder_identity.as_deref() != Some(&self.me) {
            return Ok(());
        }
        spec.holder_identity = None;
        self.answered(self.api.replace(&self.name, &PostParams::default(), &lease)).await?;
        self.metrics.wrote_lease();
        Ok(())
    }

    /// Waits for the answer to a call, at most for the timeout of a call.
    async fn answered<T>(&self, call: impl Future<Output = kube::Result<T>>) -> Result<T, LeaseError> {
        timeout(self.timing.call, call).await.map_or(Err(LeaseError::NoAnswer), |answer| Ok(answer?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held_by(holder: &str, seconds: i32) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            lease_duration_seconds: Some(seconds),
            lease_transitions: Some(3),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn only_an_abandoned_lease_is_taken() {
        let ours = Timing::default();
        let after = |lease: &LeaseSpec, seconds| decide(Some(lease), "a", Duration::from_secs(seconds), ours);
        assert_eq!(decide(None, "a", Duration::ZERO, ours), Decision::Create);
        assert_eq!(after(&held_by("a", 15), 0), Decision::Renew);
        assert_eq!(after(&held_by("b", 15), 14), Decision::Wait);
        assert_eq!(after(&held_by("b", 15), 15), Decision::TakeOver);
        // The duration in the record counts, not our own setting.
        assert_eq!(after(&held_by("b", 60), 59), Decision::Wait);
        assert_eq!(after(&held_by("", 15), 0), Decision::TakeOver);
        assert_eq!(after(&LeaseSpec::default(), 0), Decision::TakeOver);
    }

    #[test]
    fn a_transition_is_counted_when_the_holder_changes() {
        let now = Timestamp::from_second(1000).unwrap();
        let ours = Timing::default();
        let renewed = record(Some(&held_by("a", 15)), "a", Decision::Renew, now, ours);
        assert_eq!(renewed.lease_transitions, Some(3));
        assert_eq!(renewed.acquire_time, Some(MicroTime(Timestamp::UNIX_EPOCH)));
        assert_eq!(renewed.renew_time, Some(MicroTime(now)));
        let taken = record(Some(&held_by("b", 15)), "a", Decision::TakeOver, now, ours);
        assert_eq!((taken.lease_transitions, taken.holder_identity.as_deref()), (Some(4), Some("a")));
        assert_eq!(taken.acquire_time, Some(MicroTime(now)));
        assert_eq!(record(None, "a", Decision::Create, now, ours).lease_transitions, Some(0));
    }

    #[tokio::test]
    async fn the_right_ends_by_itself_or_when_it_is_taken() {
        let (sender, receiver) = watch::channel(None);
        let mut right = WriteRight(receiver);
        assert!(!right.holds());
        sender.send_replace(Some(Instant::now() + Duration::from_millis(20)));
        right.gained().await;
        right.lost().await;
        assert!(!right.holds());
        // An expired right is not gained again before it is renewed.
        assert!(timeout(Duration::from_millis(1), right.gained()).await.is_err());
        sender.send_replace(Some(Instant::now() + Duration::from_secs(3600)));
        assert!(right.holds());
        sender.send_replace(None);
        right.lost().await;
        assert!(!right.holds());
    }
}
