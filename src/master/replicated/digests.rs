//! Computes digests of the state of this master when the admin API asks for them, one request at a time, on a thread of
//! their own.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::published_status::PublishedStatus;
use crate::cluster::digests::{DigestRequest, DigestsProgress, DigestsRefused, StateDigests};
use crate::engine::snapshot::{BeginError, Capture, KeyRange, Part, PlanError, PlannedCapture};
use crate::engine::types::{LogTime, SequenceId};
use crate::master::admin_api::Pending;
use crate::replication::incarnation::Incarnation;
use crate::replication::snapshot::{self, Progress};

/// How long a request waits for the record. A quiet primary writes a digest each second; a standby may be behind.
const WAIT: Duration = Duration::from_secs(60);

/// Interval at which the thread checks whether the record has come. Until then changes are kept in memory.
const POLL: Duration = Duration::from_millis(10);

/// How long the record may take to become durable after everything was read.
const DURABLE_WITHIN: Duration = Duration::from_secs(10);

type Outcome = Result<Arc<StateDigests>, DigestsRefused>;

/// The last request, and its result. The result is kept until the next request, because the answer may have to be asked
/// for again.
#[derive(Debug)]
struct Computation {
    request: DigestRequest,
    begun: Arc<AtomicBool>,
    progress: Arc<Progress>,
    outcome: watch::Receiver<Option<Outcome>>,
}

impl Computation {
    fn is_running(&self) -> bool {
        // Without a sender, the thread has ended.
        self.outcome.borrow().is_none() && self.outcome.has_changed().is_ok()
    }
}

/// Computes digests.
#[derive(Debug, Default)]
pub(super) struct DigestWorker {
    last: Mutex<Option<Computation>>,
}

impl DigestWorker {
    /// Begins to compute digests, or joins the computation for an equal request.
    pub(super) fn request(
        &self,
        request: DigestRequest,
        statuses: &watch::Receiver<PublishedStatus>,
    ) -> Pending<Outcome> {
        let outcome = self.outcome_of(request, statuses);
        Box::pin(async move {
            let ended = || DigestsRefused::Failed("the thread that computes digests has ended".to_owned());
            let mut outcome = outcome?;
            let outcome = outcome.wait_for(Option::is_some).await.map_err(|_| ended())?;
            outcome.clone().unwrap_or_else(|| Err(ended()))
        })
    }

    /// Returns how far the computation under way is.
    pub(super) fn progress(&self) -> Option<DigestsProgress> {
        let last = self.last.lock();
        let running = last.as_ref().filter(|last| last.is_running())?;
        Some(DigestsProgress {
            from_ms: running.request.from_ms,
            begun: running.begun.load(Ordering::Relaxed),
            objects: running.progress.objects.load(Ordering::Relaxed),
            of: running.progress.of.load(Ordering::Relaxed),
        })
    }

    fn outcome_of(
        &self,
        request: DigestRequest,
        statuses: &watch::Receiver<PublishedStatus>,
    ) -> Result<watch::Receiver<Option<Outcome>>, DigestsRefused> {
        let range = match &request.range {
            Some(range) => Some(range.parse().ok_or(DigestsRefused::NoSuchRange)?),
            None => None,
        };
        let mut last = self.last.lock();
        match &*last {
            Some(last) if last.request == request => return Ok(last.outcome.clone()),
            Some(last) if last.is_running() => return Err(DigestsRefused::Busy),
            _ => {}
        }
        let (sender, outcome) = watch::channel(None);
        let (begun, progress) = (Arc::new(AtomicBool::new(false)), Arc::new(Progress::default()));
        let from = LogTime(request.from_ms);
        let task = Task {
            statuses: statuses.clone(),
            from,
            range,
            begun: Arc::clone(&begun),
            progress: Arc::clone(&progress),
        };
        let work = move || {
            let panicked =
                |_| Err(DigestsRefused::Failed("the thread that computed them panicked".to_owned()));
            let outcome =
                catch_unwind(AssertUnwindSafe(|| task.run().map(Arc::new))).unwrap_or_else(panicked);
            sender.send_replace(Some(outcome));
        };
        thread::Builder::new()
            .name("digests".to_owned())
            .spawn(work)
            .map_err(|error| DigestsRefused::Failed(format!("cannot start a thread: {error}")))?;
        *last = Some(Computation { request, begun, progress, outcome: outcome.clone() });
        Ok(outcome)
    }
}

/// The computation of one request.
struct Task {
    statuses: watch::Receiver<PublishedStatus>,
    from: LogTime,
    range: Option<KeyRange>,
    begun: Arc<AtomicBool>,
    progress: Arc<Progress>,
}

impl Task {
    fn run(&self) -> Result<StateDigests, DigestsRefused> {
        let incarnation = Arc::clone(&self.statuses.borrow().incarnation);
        let capture = self.wait_for_record(&incarnation)?;
        self.begun.store(true, Ordering::Relaxed);
        let history = self.statuses.borrow().status.history;
        let log = history.ok_or_else(|| DigestsRefused::Failed("it knows no log yet".to_owned()))?.0.log;
        let term = incarnation.engine.term().0;
        let digests = snapshot::digests(capture, self.range, &self.progress)
            .map_err(|error| DigestsRefused::Failed(error.to_string()))?;
        wait_until_durable(&incarnation, digests.at)?;
        Ok(StateDigests::new(log.to_string(), term, digests))
    }

    /// Waits for the first digest of the primary from the requested time on.
    fn wait_for_record(&self, incarnation: &Arc<Incarnation>) -> Result<Capture, DigestsRefused> {
        let part = self.range.map_or(Part::Whole, KeyRange::part);
        let engine = &incarnation.engine;
        let mut planned = PlannedCapture::new(engine, self.from, part).map_err(|error| match error {
            PlanError::TooLate { now, from } => DigestsRefused::TooLate { now, from },
            PlanError::Planned => DigestsRefused::Busy,
        })?;
        let deadline = Instant::now() + WAIT;
        loop {
            match planned.begun() {
                Some(Ok(capture)) => return Ok(capture),
                Some(Err(BeginError::UnderWay)) => return Err(DigestsRefused::SnapshotUnderWay),
                Some(Err(error)) => return Err(DigestsRefused::Failed(error.to_string())),
                None => {}
            }
            if !Arc::ptr_eq(&self.statuses.borrow().incarnation, incarnation) {
                return Err(DigestsRefused::Replaced);
            }
            if Instant::now() >= deadline {
                let applied = engine.applied().0;
                return Err(DigestsRefused::NoRecord { seconds: WAIT.as_secs(), applied });
            }
            thread::sleep(POLL);
        }
    }
}

/// Waits until this state's record is durable: a primary applies its records first, and if it is deposed, they may never
/// be part of the log.
fn wait_until_durable(incarnation: &Incarnation, at: SequenceId) -> Result<(), DigestsRefused> {
    let deadline = Instant::now() + DURABLE_WITHIN;
    while incarnation.gate.durable() < at {
        if Instant::now() >= deadline {
            return Err(DigestsRefused::NotDurable(at.0));
        }
        thread::sleep(POLL);
    }
    Ok(())
}
