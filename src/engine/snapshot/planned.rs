//! A capture that begins by itself at a record which all replicas agree on without a word between them: the first
//! `Digest` from a given log time on. So the states of all masters can be compared at one sequence id while the primary
//! goes on.

use std::sync::Arc;

use super::capture::{Capture, MAX_WAITING};
use super::plan::{BeginError, Part, Plan};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::LogTime;

/// Why a capture cannot be planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// There is one plan at a time.
    #[error("another capture is planned")]
    Planned,
    /// The record may have been applied already.
    #[error("records of log time {now} have been applied, the capture was to begin from {from} on", now = .now.0, from = .from.0)]
    TooLate {
        /// Timestamp of the last record.
        now: LogTime,
        from: LogTime,
    },
}

/// A planned capture. Dropping it cancels the plan, or the capture if that has begun; the caller must not hold the
/// sequencer then.
#[derive(Debug)]
pub struct PlannedCapture {
    engine: Arc<Engine>,
    /// Whether the plan of the engine is still this one.
    planned: bool,
}

impl PlannedCapture {
    /// Plans a capture of a part of the state after the first `Digest` record with the timestamp `from` or a later one.
    /// That it has to be later than all records so far ensures that every replica that accepts the plan means the same
    /// record.
    pub fn new(engine: &Arc<Engine>, from: LogTime, part: Part) -> Result<Self, PlanError> {
        let sequencer = engine.sequencer(LogTime(0));
        let now = sequencer.core.log_time;
        if now >= from {
            return Err(PlanError::TooLate { now, from });
        }
        let mut plan = engine.plan.lock();
        if !matches!(*plan, Plan::None) {
            return Err(PlanError::Planned);
        }
        *plan = Plan::Waiting { from, part };
        Ok(Self { engine: Arc::clone(engine), planned: true })
    }

    /// Returns the capture once, or why it could not begin; `None` before the record. The caller must not hold the
    /// sequencer.
    #[must_use]
    pub fn begun(&mut self) -> Option<Result<Capture, BeginError>> {
        let mut plan = self.engine.plan.lock();
        if !self.planned || !matches!(*plan, Plan::Begun(_)) {
            return None;
        }
        let Plan::Begun(begun) = std::mem::take(&mut *plan) else { return None };
        self.planned = false;
        Some(begun.map(|beginning| Capture::new(Arc::clone(&self.engine), *beginning)))
    }
}

impl Drop for PlannedCapture {
    fn drop(&mut self) {
        if !self.planned {
            return;
        }
        let plan = std::mem::take(&mut *self.engine.plan.lock());
        // Its hooks have to go with it, which takes the sequencer.
        if let Plan::Begun(Ok(beginning)) = plan {
            drop(Capture::new(Arc::clone(&self.engine), *beginning));
        }
    }
}

impl Sequencer<'_> {
    /// Begins the planned capture if this `Digest` record is the one that it waits for. It takes milliseconds, however
    /// many objects there are.
    pub(in crate::engine) fn begin_planned(&mut self) {
        let mut plan = self.engine.plan.lock();
        if let Plan::Waiting { from, part } = *plan
            && self.core.log_time >= from
        {
            *plan = Plan::Begun(self.begin_capture(part, MAX_WAITING, |_| Ok(())).map(Box::new));
        }
    }
}
