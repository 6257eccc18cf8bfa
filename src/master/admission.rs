//! How changes wait for admission (R2): HTTP requests asynchronously, long work on blocking threads with short sleeps.
//! Neither holds a lock meanwhile.

use std::time::{Duration, Instant};

use crate::engine::chunks::Chunks;
use crate::engine::ops::CHUNK_BYTES;
use crate::engine::types::SequenceId;
use crate::master::live_state::AnswerGate;
use crate::replication::admission::{Admission, ChunksAhead, Refusal};
use crate::replication::queue_space::{OwnedPermit, Permit};
use crate::replication::term_guard::TermGuard;

/// How often a caller that waits checks whether this master still leads.
pub(super) const LEADERSHIP_CHECK: Duration = Duration::from_millis(20);

/// How often long work checks whether its next chunk is admitted: about as long as a commit takes.
const CHUNK_PAUSE: Duration = Duration::from_millis(1);

/// How many times as long as a chunk took long work rests after it. Its records keep etcd and the standbys busy, too: on a
/// machine that has all of them, other clients would wait for a processor.
const REST: u32 = 2;

/// Longest rest after a chunk. One that took longer has waited for a processor itself.
const LONGEST_REST: Duration = Duration::from_millis(20);

/// Permission of one change to enter the sequencer.
#[derive(Debug)]
pub struct Entry {
    /// Reserved space for its records; `None` without a log.
    _permit: Option<OwnedPermit>,
    /// Guard of the term; `None` without a log.
    _guard: Option<TermGuard>,
}

impl AnswerGate {
    /// Takes a guard of the term. Without a log there are no terms, and none is needed.
    pub fn guard(&self) -> Result<Option<TermGuard>, Refusal> {
        match &self.0 {
            None => Ok(None),
            Some((incarnation, _)) => incarnation.guards.guard().map(Some).ok_or(Refusal::NotLeading),
        }
    }

    /// Waits until a change whose records take at most `bytes` is admitted.
    pub async fn enter(&self, bytes: usize) -> Result<Entry, Refusal> {
        let guard = self.guard()?;
        let Some((incarnation, clock)) = &self.0 else { return Ok(Entry { _permit: None, _guard: guard }) };
        let (mut ticket, since) = (None, Instant::now());
        loop {
            let wait = match incarnation.admit(clock.now(), bytes, &mut ticket, since.elapsed()) {
                Admission::Admitted(permit) => {
                    return Ok(Entry { _permit: Some(incarnation.queue.keep(permit)), _guard: guard });
                }
                Admission::Refused(refusal) => return Err(refusal),
                Admission::Waiting => ticket.as_ref().map(|ticket| ticket.granted()),
            };
            if let Some(granted) = wait {
                let _ = tokio::time::timeout(LEADERSHIP_CHECK, granted).await;
            }
        }
    }
}

/// Admission for long work, chunk by chunk.
#[derive(Debug)]
pub struct ChunkPermits<'p> {
    answer_gate: &'p AnswerGate,
    guard: Option<&'p TermGuard>,
    permit: Option<Permit<'p>>,
    refusal: Option<Refusal>,
    ahead: ChunksAhead,
    /// When the chunk under way was admitted.
    begun: Instant,
    /// When it ended, if its caller did something else after it that makes no records.
    ended: Option<Instant>,
}

impl<'p> ChunkPermits<'p> {
    /// Begins without a permit, for work that holds this guard.
    #[must_use]
    pub fn new(answer_gate: &'p AnswerGate, guard: Option<&'p TermGuard>) -> Self {
        let (ahead, begun) = (ChunksAhead::default(), Instant::now());
        Self { answer_gate, guard, permit: None, refusal: None, ahead, begun, ended: None }
    }

    /// Lets other work have the processor, with a log. Ends early if the work has to stop.
    fn rest(&mut self) {
        let since = Instant::now();
        let worked = self.worked(since);
        loop {
            let left = self.rest_left(worked, since.elapsed());
            if left.is_zero() {
                return;
            }
            std::thread::sleep(left.min(CHUNK_PAUSE));
        }
    }

    /// Returns how long the chunk under way took, if the next one is asked for `now`.
    fn worked(&mut self, now: Instant) -> Duration {
        self.ended.take().unwrap_or(now).saturating_duration_since(self.begun)
    }

    /// Returns how much is left of the rest after a chunk that took `worked`, when it has `rested` for some time.
    fn rest_left(&self, worked: Duration, rested: Duration) -> Duration {
        if self.answer_gate.0.is_none() || self.is_cancelled() {
            return Duration::ZERO;
        }
        (worked * REST).min(LONGEST_REST).saturating_sub(rested)
    }

    /// Returns the permit of a chunk that has ended. What its caller does until the next one counts as no work to rest
    /// from.
    pub fn end_chunk(&mut self) {
        self.permit = None;
        self.ended = Some(Instant::now());
    }

    /// Returns whether the work has to stop because its term has ended.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.guard.is_some_and(TermGuard::is_cancelled)
    }

    /// Returns why the work had to stop, if it had to.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        self.refusal
    }

    fn wait(&self) -> Result<Option<Permit<'p>>, Refusal> {
        let (mut ticket, since) = (None, Instant::now());
        loop {
            if self.is_cancelled() {
                return Err(Refusal::NotLeading);
            }
            let Some((incarnation, clock)) = &self.answer_gate.0 else { return Ok(None) };
            let admission = if self.ahead.is_full(incarnation.gate.durable()) {
                incarnation.admit_later(clock.now(), since.elapsed())
            } else {
                incarnation.admit(clock.now(), CHUNK_BYTES, &mut ticket, since.elapsed())
            };
            match admission {
                Admission::Admitted(permit) => return Ok(Some(permit)),
                Admission::Refused(refusal) => return Err(refusal),
                Admission::Waiting => std::thread::sleep(CHUNK_PAUSE),
            }
        }
    }
}

impl Chunks for ChunkPermits<'_> {
    /// Returns the permit of the chunk before, rests, and waits for the next one. Returns false if the work has to stop.
    fn next_chunk(&mut self) -> bool {
        self.permit = None;
        self.ahead.end_chunk();
        if self.refusal.is_none() {
            self.rest();
            match self.wait() {
                Ok(permit) => self.permit = permit,
                Err(refusal) => self.refusal = Some(refusal),
            }
            self.begun = Instant::now();
        }
        self.refusal.is_none()
    }

    fn made(&mut self, last: SequenceId) {
        self.ahead.made(last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::record::Record;
    use crate::engine::settings::EngineSettings;
    use crate::engine::state::Sequencer;
    use crate::engine::types::{Digest, LogTime};
    use crate::replication::admission::{CHUNKS_AHEAD, PATIENCE};
    use crate::replication::incarnation::Incarnation;
    use crate::replication::time::{Monotonic, MonotonicClock};
    use std::sync::Arc;

    fn answer_gate(queue_bytes: usize) -> (AnswerGate, Arc<Incarnation>) {
        let incarnation = Incarnation::new(EngineSettings::default(), queue_bytes);
        incarnation.gate.open_until(Monotonic(u64::MAX));
        incarnation.guards.open();
        (AnswerGate(Some((Arc::clone(&incarnation), MonotonicClock::start()))), incarnation)
    }

    #[tokio::test]
    async fn an_http_change_waits_for_space_and_for_no_closed_term() {
        let (answer_gate, incarnation) = answer_gate(100);
        let taken = incarnation.queue.try_acquire(100).unwrap();
        let mut enters = Box::pin(answer_gate.enter(50));
        assert!(tokio::time::timeout(LEADERSHIP_CHECK * 2, &mut enters).await.is_err());
        drop(taken);
        let entry = enters.await.unwrap();
        assert_eq!(incarnation.queue.bytes(), 50);
        incarnation.guards.close();
        assert!(!incarnation.guards.is_drained(), "the change is under way");
        assert_eq!(answer_gate.enter(1).await.unwrap_err(), Refusal::NotLeading);
        drop(entry);
        assert!(incarnation.guards.is_drained() && incarnation.queue.bytes() == 0);
    }

    fn make_record(sequencer: &mut Sequencer<'_>) -> SequenceId {
        sequencer.commit(&Record::Digest { digest: Digest(0) })
    }

    /// A replica with long work that has begun as many chunks as it may before one of them is durable.
    fn begun<'p>(
        answer_gate: &'p AnswerGate,
        incarnation: &Incarnation,
        guard: Option<&'p TermGuard>,
    ) -> ChunkPermits<'p> {
        let mut chunks = ChunkPermits::new(answer_gate, guard);
        for _ in 0..=CHUNKS_AHEAD {
            assert!(chunks.next_chunk());
            incarnation.engine.run_chunk(LogTime(1), &mut chunks, make_record);
        }
        chunks
    }

    #[test]
    fn long_work_has_few_chunks_that_are_not_durable() {
        let (answer_gate, incarnation) = answer_gate(64 << 20);
        let guard = answer_gate.guard().unwrap();
        std::thread::scope(|scope| {
            let next = scope.spawn(|| begun(&answer_gate, &incarnation, guard.as_ref()).next_chunk());
            std::thread::sleep(LEADERSHIP_CHECK * 3);
            assert!(!next.is_finished(), "no chunk is durable");
            incarnation.gate.advance(SequenceId(1));
            assert!(next.join().unwrap());
        });
    }

    /// A sweep beside busy clients: their records are not its own.
    #[test]
    fn long_work_that_writes_nothing_waits_for_no_record_of_others() {
        let (answer_gate, incarnation) = answer_gate(64 << 20);
        let guard = answer_gate.guard().unwrap();
        let mut chunks = ChunkPermits::new(&answer_gate, guard.as_ref());
        let began = Instant::now();
        for _ in 0..3 * CHUNKS_AHEAD {
            assert!(chunks.next_chunk());
            make_record(&mut incarnation.engine.sequencer(LogTime(1)));
            incarnation.engine.run_chunk(LogTime(1), &mut chunks, |_| ());
        }
        assert!(began.elapsed() < PATIENCE / 2, "it waited for what others wrote");
    }

    #[test]
    fn long_work_that_waits_for_its_chunks_ends_with_the_lease() {
        let (answer_gate, incarnation) = answer_gate(64 << 20);
        let guard = answer_gate.guard().unwrap();
        let mut chunks = begun(&answer_gate, &incarnation, guard.as_ref());
        incarnation.gate.close();
        assert!(!chunks.next_chunk());
        assert_eq!(chunks.refusal(), Some(Refusal::NotLeading));
    }

    #[test]
    fn long_work_rests_twice_as_long_as_it_works_unless_it_is_stopped() {
        let (answer_gate, incarnation) = answer_gate(64 << 20);
        let guard = answer_gate.guard().unwrap();
        let mut chunks = ChunkPermits::new(&answer_gate, guard.as_ref());
        assert!(chunks.next_chunk());
        let (chunk, long) = (Duration::from_millis(8), LONGEST_REST * 5);
        assert_eq!(chunks.rest_left(chunk, Duration::ZERO), chunk * REST);
        assert_eq!(chunks.rest_left(chunk, chunk), chunk);
        assert_eq!(chunks.rest_left(chunk, chunk * (REST + 1)), Duration::ZERO);
        assert_eq!(chunks.rest_left(long, Duration::ZERO), LONGEST_REST);
        incarnation.guards.close();
        assert_eq!(chunks.rest_left(long, Duration::ZERO), Duration::ZERO);
        // Without a log it wakes no other master and no etcd.
        let alone = AnswerGate(None);
        assert_eq!(ChunkPermits::new(&alone, None).rest_left(long, Duration::ZERO), Duration::ZERO);
    }

    /// A search matches keys between two chunks, which keeps neither etcd nor standbys busy.
    #[test]
    fn long_work_rests_from_its_chunks_and_not_from_what_its_caller_did_between_them() {
        let (answer_gate, incarnation) = answer_gate(64 << 20);
        let guard = answer_gate.guard().unwrap();
        let mut chunks = ChunkPermits::new(&answer_gate, guard.as_ref());
        assert!(chunks.next_chunk());
        chunks.end_chunk();
        assert_eq!(incarnation.queue.bytes(), 0, "the permit is kept while keys are matched");
        let (ended, matching) = (chunks.ended.unwrap(), Duration::from_secs(1));
        let chunk = ended - chunks.begun;
        assert_eq!(chunks.worked(ended + matching), chunk);
        assert_eq!(chunks.worked(ended + matching), chunk + matching, "this one was not ended before");
    }

    #[test]
    fn long_work_stops_between_chunks_when_its_term_is_closed() {
        let (answer_gate, incarnation) = answer_gate(1 << 20);
        let guard = answer_gate.guard().unwrap();
        let mut chunks = ChunkPermits::new(&answer_gate, guard.as_ref());
        assert!(chunks.next_chunk() && incarnation.queue.bytes() > 0);
        assert!(chunks.next_chunk());
        incarnation.guards.close();
        assert!(!chunks.next_chunk());
        assert_eq!((chunks.refusal(), incarnation.queue.bytes()), (Some(Refusal::NotLeading), 0));
        incarnation.guards.open();
        assert!(!chunks.next_chunk(), "what was stopped stays so");
    }

    #[test]
    fn long_work_makes_no_record_while_etcd_is_out_of_space() {
        let (answer_gate, incarnation) = answer_gate(1 << 20);
        incarnation.gate.set_log_full(true);
        let guard = answer_gate.guard().unwrap();
        let mut chunks = ChunkPermits::new(&answer_gate, guard.as_ref());
        assert!(!chunks.next_chunk());
        assert_eq!(chunks.refusal(), Some(Refusal::OutOfSpace));
    }
}
