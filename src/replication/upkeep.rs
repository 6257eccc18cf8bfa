//! Upkeep: the periodic work of a primary. Decides which chore is due when, and carries each one out chunk by chunk, in
//! code that the master and the simulator both run. Each chore makes the engine commit records; none edits state.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use super::liveness::{Liveness, Pace};
use crate::engine::Engine;
use crate::engine::chunks::Chunks;
use crate::engine::settings::Expired;
use crate::engine::types::{LogTime, SequenceId, Uuid};

/// Interval of checking for memory pressure: a client that found no memory waits no longer than this for the next
/// eviction.
pub const EVICTION_INTERVAL_MS: u64 = 10;

/// Interval of checking reservations, draining segments and tasks.
const LOOK_INTERVAL_MS: u64 = 100;

/// Interval of checking for silent clients.
const EXPIRY_INTERVAL_MS: u64 = 1_000;

/// A piece of work that is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chore {
    /// Evict objects, because memory is short.
    Evict,
    /// Release reservations, unmount drained segments, fail tasks that took too long.
    LookAfter,
    /// Remove objects in unmounted segments.
    Sweep {
        /// The count of unmounts that this sweep covers.
        unmounts: u64,
    },
    /// Write live leases to the log.
    SyncLeases,
    /// Evict objects whose leases of earlier terms have ended.
    EvictExpired,
    Expire(Vec<Uuid>),
}

impl Chore {
    fn kind(&self) -> usize {
        match self {
            Self::Evict => 0,
            Self::LookAfter => 1,
            Self::Sweep { .. } => 2,
            Self::SyncLeases => 3,
            Self::EvictExpired => 4,
            Self::Expire(_) => 5,
        }
    }

    const KINDS: usize = 6;
}

/// The result of a chore.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Done {
    pub evicted: u64,
    /// Reservations whose time was over.
    pub released: usize,
    /// Segments whose grace period was over.
    pub unmounted: usize,
    /// Tasks that took too long.
    pub tasks_failed: usize,
    /// Objects in unmounted segments that were removed.
    pub swept: usize,
    /// Clients that expired with segments, which are unmounted with them.
    pub expired: Vec<Uuid>,
    /// Clients that expired without segments: they had unmounted all, as a client does that is shut down.
    pub closed: Vec<Uuid>,
    /// Whether it was stopped before its end, so that it is due again.
    pub stopped: bool,
}

/// Decides which chores are due. Chores of different kinds may run at the same time, so that a long one holds up no
/// other; of one kind there is one at a time.
#[derive(Debug)]
pub struct Timetable {
    lease_sync_ms: u64,
    next_look: LogTime,
    next_sync: LogTime,
    next_expiry: LogTime,
    pace: Pace,
    /// The count of unmounts that were swept. `None` at first: segments that were unmounted under the previous primary
    /// may not be swept yet.
    swept: Option<u64>,
    running: [bool; Chore::KINDS],
}

impl Timetable {
    /// Creates the timetable of a primary that writes live leases to the log at this interval.
    #[must_use]
    pub fn new(lease_sync_ms: u64) -> Self {
        Self {
            lease_sync_ms,
            next_look: LogTime(0),
            next_sync: LogTime(0),
            next_expiry: LogTime(0),
            pace: Pace::of(EXPIRY_INTERVAL_MS),
            swept: None,
            running: [false; Chore::KINDS],
        }
    }

    /// Returns the chores to begin now; none while this master may not answer. Call [`Self::finished`] after each.
    /// While this master may not answer, it cannot hear clients either, and their deadlines stand still.
    pub fn due(&mut self, now: LogTime, engine: &Engine, liveness: &Liveness, serves: bool) -> Vec<Chore> {
        let mut due = Vec::new();
        if !serves {
            // A primary that may not answer makes no records, but the time counts.
            if now >= self.next_expiry {
                self.next_expiry = now.plus(EXPIRY_INTERVAL_MS);
                liveness.postpone(self.pace.beat(now, false));
            }
            return due;
        }
        if is_memory_short(engine) {
            // During the hold (R6) little can be evicted, so it is tried only for a write that found no memory, and
            // less often.
            let starved = engine.counts.starved.load(Ordering::Relaxed);
            if engine.hold_until() <= now || (starved && now >= self.next_look) {
                self.begin(Chore::Evict, &mut due);
            }
        }
        if now >= self.next_look {
            self.next_look = now.plus(LOOK_INTERVAL_MS);
            self.begin(Chore::LookAfter, &mut due);
            let unmounts = engine.counts.unmounts.load(Ordering::Acquire);
            if self.swept != Some(unmounts) {
                self.begin(Chore::Sweep { unmounts }, &mut due);
            }
        }
        if now >= self.next_sync {
            self.next_sync = now.plus(self.lease_sync_ms);
            self.begin(Chore::SyncLeases, &mut due);
        }
        if now >= self.next_expiry {
            self.next_expiry = now.plus(EXPIRY_INTERVAL_MS);
            if engine.settings.expired == Expired::Evict {
                self.begin(Chore::EvictExpired, &mut due);
            }
            // One reading of the clock for both: a process that is stopped in between expires no client.
            liveness.postpone(self.pace.beat(now, true));
            if !self.running[Chore::Expire(Vec::new()).kind()] {
                let silent = liveness.take_silent(now);
                if !silent.is_empty() {
                    self.begin(Chore::Expire(silent), &mut due);
                }
            }
        }
        due
    }

    fn begin(&mut self, chore: Chore, due: &mut Vec<Chore>) {
        if !std::mem::replace(&mut self.running[chore.kind()], true) {
            due.push(chore);
        }
    }

    /// Records that a chore has ended.
    pub fn finished(&mut self, chore: &Chore, done: &Done) {
        self.running[chore.kind()] = false;
        if let Chore::Sweep { unmounts } = chore
            && !done.stopped
        {
            self.swept = Some(*unmounts);
        }
    }
}

/// Returns whether memory is short: a write found none, or the high watermark is exceeded.
fn is_memory_short(engine: &Engine) -> bool {
    engine.counts.starved.load(Ordering::Relaxed) || engine.used_ratio() > engine.settings.high_watermark
}

/// Returns the keys of the metadata server's entries about a segment with this name.
pub type EntriesOf = fn(&[u8]) -> Vec<Vec<u8>>;

/// Carries out the chores that are due.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chores {
    /// Returns the entries of the metadata server to delete with a segment of an expired client; `None` if they stay.
    pub metadata_of: Option<EntriesOf>,
}

/// The caller of a chore, which is not asked again once it has stopped the chore.
struct UntilStopped<'c> {
    chunks: &'c mut dyn Chunks,
    stopped: bool,
}

impl Chunks for UntilStopped<'_> {
    fn next_chunk(&mut self) -> bool {
        self.stopped = self.stopped || !self.chunks.next_chunk();
        !self.stopped
    }

    fn made(&mut self, last: SequenceId) {
        self.chunks.made(last);
    }
}

impl Chores {
    /// Carries a chore out. Asks before each chunk: there may be no space in the log, or this master may no longer lead.
    /// `cancelled` is asked where no space in the log is needed. Silent clients whose expiry was not written stay silent.
    pub fn perform(
        &self,
        chore: &Chore,
        engine: &Engine,
        liveness: &Liveness,
        now: LogTime,
        chunks: &mut dyn Chunks,
        cancelled: &dyn Fn() -> bool,
    ) -> Done {
        let mut chunks = UntilStopped { chunks, stopped: false };
        let mut done = Done::default();
        match chore {
            Chore::Evict => done.evicted = engine.evict_while(now, &mut chunks),
            Chore::LookAfter => {
                let looked = engine.upkeep_while(now, &mut chunks);
                (done.released, done.unmounted) = (looked.released, looked.unmounted);
                done.tasks_failed = looked.tasks_failed;
            }
            Chore::Sweep { .. } => done.swept = engine.sweep_while(now, &mut chunks),
            Chore::SyncLeases => _ = engine.replicate_leases_while(now, &mut chunks, cancelled),
            Chore::EvictExpired => done.evicted = engine.evict_expired_while(now, &mut chunks),
            Chore::Expire(clients) => {
                for client in clients {
                    let Some(known) = engine.client(*client) else { continue };
                    if !self.expire(*client, engine, now, &mut chunks) {
                        liveness.still_silent(*client);
                        continue;
                    }
                    if known.segments.is_empty() {
                        done.closed.push(*client);
                    } else {
                        done.expired.push(*client);
                    }
                }
            }
        }
        done.stopped = chunks.stopped;
        if done.stopped && *chore == Chore::Evict {
            // Eviction clears this flag when it begins. It was stopped before its end, so it has to run again.
            engine.counts.starved.store(true, Ordering::Relaxed);
        }
        done
    }

    fn expire(&self, client: Uuid, engine: &Engine, now: LogTime, chunks: &mut dyn Chunks) -> bool {
        if let Some(entries_of) = self.metadata_of {
            let (own, others): (Vec<_>, Vec<_>) =
                engine.segments().into_iter().partition(|segment| segment.client == client);
            let own: BTreeSet<&[u8]> = own.iter().map(|segment| &*segment.name).collect();
            let others: BTreeSet<&[u8]> = others.iter().map(|segment| &*segment.name).collect();
            // A client that was restarted under the same name has its own entries there.
            for name in own.difference(&others) {
                for key in entries_of(name) {
                    if !chunks.next_chunk() {
                        return false;
                    }
                    engine.run_chunk(now, chunks, |sequencer| _ = sequencer.delete_metadata(&key));
                }
            }
        }
        engine.expire_client_while(client, now, chunks).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::ops::{ReplicaTypes, WriteConfig};
    use crate::engine::segment::SegmentSpec;
    use crate::engine::settings::EngineSettings;

    const OLD: Uuid = Uuid { first: 1, second: 1 };
    const NEW: Uuid = Uuid { first: 2, second: 2 };

    fn mount(engine: &Engine, client: Uuid, name: &[u8]) {
        let id = Uuid { first: client.first, second: name.len() as u64 };
        let (base, size) = (1 << 32, 1 << 20);
        let spec = SegmentSpec { id, name, base, size, te_endpoint: name, protocol: b"tcp", host_id: b"" };
        assert!(engine.sequencer(LogTime(1)).mount(&spec, client).result.is_ok());
        for key in entries_of(name) {
            let put = engine.sequencer(LogTime(1)).put_metadata(&key, b"v", |_, _, _| Ok::<_, ()>(()));
            assert!(put.is_ok());
        }
    }

    fn entries_of(name: &[u8]) -> Vec<Vec<u8>> {
        vec![[b"ram/", name].concat(), [b"rpc/", name].concat()]
    }

    fn entries(engine: &Engine, name: &[u8]) -> usize {
        entries_of(name).iter().filter(|key| engine.metadata(key).is_some()).count()
    }

    #[test]
    fn the_silent_take_their_metadata_along_unless_another_has_their_name() {
        let (engine, liveness) = (Engine::new(EngineSettings::default()), Liveness::new(1));
        mount(&engine, OLD, b"10.0.0.1:1");
        mount(&engine, OLD, b"10.0.0.22:2");
        mount(&engine, NEW, b"10.0.0.22:2");
        let chores = Chores { metadata_of: Some(entries_of) };
        let expire = |client: Uuid| {
            chores.perform(
                &Chore::Expire(vec![client]),
                &engine,
                &liveness,
                LogTime(2),
                &mut || true,
                &|| false,
            )
        };
        assert_eq!(expire(OLD).expired, [OLD]);
        assert_eq!((entries(&engine, b"10.0.0.1:1"), entries(&engine, b"10.0.0.22:2")), (0, 2));
        assert_eq!(expire(NEW).expired, [NEW]);
        assert_eq!(entries(&engine, b"10.0.0.22:2"), 0);
    }

    #[test]
    fn a_client_that_had_unmounted_everything_was_closed() {
        let (engine, liveness) = (Engine::new(EngineSettings::default()), Liveness::new(1));
        let told = |name: &[u8]| Uuid { first: OLD.first, second: name.len() as u64 };
        mount(&engine, OLD, b"10.0.0.1:1");
        assert!(engine.remount(&[], OLD, LogTime(1)).result.is_ok());
        assert!(engine.sequencer(LogTime(1)).unmount(told(b"10.0.0.1:1")).result.is_ok());
        mount(&engine, NEW, b"10.0.0.2:2");
        let chore = Chore::Expire(vec![OLD, NEW]);
        let done = Chores::default().perform(&chore, &engine, &liveness, LogTime(2), &mut || true, &|| false);
        assert_eq!((done.closed, done.expired), (vec![OLD], vec![NEW]));
        assert!(engine.client(OLD).is_none());
    }

    #[test]
    fn an_expiry_that_could_not_be_written_is_due_again() {
        let (engine, liveness) = (Engine::new(EngineSettings::default()), Liveness::new(1_000));
        mount(&engine, OLD, b"a");
        liveness.heard(OLD, LogTime(0));
        let mut timetable = Timetable::new(1_000);
        let mut expire = |now: u64, go_on: bool| {
            let mut expired = Vec::new();
            for chore in timetable.due(LogTime(now), &engine, &liveness, true) {
                let done = Chores::default().perform(
                    &chore,
                    &engine,
                    &liveness,
                    LogTime(now),
                    &mut || go_on,
                    &|| false,
                );
                timetable.finished(&chore, &done);
                expired.extend(done.expired);
            }
            expired
        };
        assert_eq!(expire(0, true), []);
        assert_eq!(expire(1_001, false), []);
        assert_eq!(expire(1_500, true), [], "looked for each second");
        assert_eq!(expire(2_001, true), [OLD]);
        assert!(engine.segments().is_empty());
    }

    #[test]
    fn a_long_chore_holds_up_no_other_and_is_not_begun_twice() {
        let (engine, liveness) = (Engine::new(EngineSettings::default()), Liveness::new(1_000));
        let mut timetable = Timetable::new(1_000);
        let sweep = Chore::Sweep { unmounts: 0 };
        let first = timetable.due(LogTime(0), &engine, &liveness, true);
        assert_eq!(first, [Chore::LookAfter, sweep.clone(), Chore::SyncLeases]);
        timetable.finished(&Chore::LookAfter, &Done::default());
        timetable.finished(&Chore::SyncLeases, &Done::default());
        assert_eq!(timetable.due(LogTime(50), &engine, &liveness, true), []);
        assert_eq!(timetable.due(LogTime(100), &engine, &liveness, true), [Chore::LookAfter]);
        timetable.finished(&Chore::LookAfter, &Done::default());
        engine.counts.starved.store(true, Ordering::Relaxed);
        assert_eq!(timetable.due(LogTime(110), &engine, &liveness, true), [Chore::Evict]);
        // A sweep that was stopped is due again, one that went through is not.
        timetable.finished(&sweep, &Done { stopped: true, ..Done::default() });
        assert_eq!(timetable.due(LogTime(200), &engine, &liveness, true), [Chore::LookAfter, sweep.clone()]);
        timetable.finished(&Chore::LookAfter, &Done::default());
        timetable.finished(&sweep, &Done::default());
        assert_eq!(timetable.due(LogTime(300), &engine, &liveness, true), [Chore::LookAfter]);
    }

    #[test]
    fn promises_take_space_in_the_log_record_by_record() {
        let (engine, liveness) = (Engine::new(EngineSettings::default()), Liveness::new(1_000));
        mount(&engine, OLD, b"a");
        let config = WriteConfig { replicas: 1, ..WriteConfig::default() };
        for number in 0..2_500 {
            let key = format!("key-{number}");
            let mut sequencer = engine.sequencer(LogTime(2));
            assert!(sequencer.put_start(OLD, key.as_bytes(), 64, &config).result.is_ok());
            assert!(sequencer.end(OLD, key.as_bytes(), ReplicaTypes::Memory, None).result.is_ok());
            drop(sequencer);
            assert!(engine.exist(key.as_bytes(), LogTime(2)).result == Ok(true));
        }
        let sync = |permits: u64| {
            let (mut asked, before) = (0, engine.applied().0);
            let mut go_on = || {
                asked += 1;
                asked <= permits
            };
            let done = Chores::default().perform(
                &Chore::SyncLeases,
                &engine,
                &liveness,
                LogTime(3),
                &mut go_on,
                &|| false,
            );
            (asked, engine.applied().0 - before, done.stopped)
        };
        assert_eq!(sync(1), (2, 1, true), "one permit is for one record (R2)");
        assert_eq!(sync(9), (2, 2, false));
        assert_eq!(sync(9), (0, 0, false), "a sync that writes nothing asks for no space");
    }
}
