//! The master as its HTTP routes see it: reads of the state, and the entries of the metadata server, which are
//! records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::cluster::role::Role;
use crate::engine::Engine;
use crate::engine::object::Object;
use crate::engine::ops::MAX_LOGGED_VALUE;
use crate::engine::segment::SegmentStatus;
use crate::engine::types::{self, ErrorCode, LogTime};
use crate::engine::walk::Cursor;
use crate::master::admission::ChunkPermits;
use crate::master::etcd_health::EtcdHealthState;
use crate::master::http::{
    Answer, BackendError, BufferInfo, Health, HttpBackend, KeysPiece, NotRemoved, SegmentInfo,
};
use crate::master::live_state::{AnswerGate, LiveState, LiveStateReceiver};
use crate::master::metadata_server::{MetadataError, MetadataStore, Stored, is_exclusive};
use crate::master::metrics::{Gauges, Metrics, ReplicationGauges, SegmentGauges};
use crate::master::reply_encoding::PROTOCOL;
use crate::replication::node::status::Activity;
use crate::wire::functions::Function;

/// The state for the HTTP routes, and through them for people and tools.
#[derive(Debug)]
pub struct MasterBackend {
    /// The state as it is now.
    pub current: LiveStateReceiver,
    pub metrics: Arc<Metrics>,
    pub etcd_health: EtcdHealthState,
    /// How much the metadata server may hold.
    pub metadata_limits: MetadataLimits,
    /// Serialises removals of all objects: each walks the whole store, so they run one after the other.
    pub removal: Arc<Mutex<()>>,
}

/// Limits of the metadata server.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataLimits {
    pub entries: usize,
    /// Bytes of keys and values.
    pub bytes: usize,
}

fn buffers(object: &Object) -> Vec<BufferInfo> {
    let readable = object.replicas().filter(|replica| replica.is_readable());
    readable
        .map(|replica| BufferInfo {
            size: object.size,
            address: replica.address(),
            protocol: text(PROTOCOL),
            transport_endpoint: text(&replica.segment.te_endpoint),
        })
        .collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn backend_error(code: ErrorCode) -> BackendError {
    BackendError { code: code.0, name: code.name().unwrap_or("UNKNOWN") }
}

/// This master does not serve, or no longer may.
const UNAVAILABLE: ErrorCode = ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS;

impl MasterBackend {
    fn current(&self) -> LiveState {
        self.current.borrow().clone()
    }

    /// Returns the state, if clients are served from it.
    fn serving(&self) -> Option<LiveState> {
        Some(self.current()).filter(|current| current.health.service_ready)
    }

    /// Returns what `read` finds in the state, once everything that it may show is durable. Reading locks shards and
    /// waits for the sequencer, so it runs on a blocking thread and delays no connection.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> T + Send + 'static,
    ) -> Answer<'static, Result<T, BackendError>> {
        let current = self.serving();
        Box::pin(async move {
            let LiveState { engine, answer_gate, .. } = current.ok_or(backend_error(UNAVAILABLE))?;
            // Records applied during the read may show in it, whole or in part, so all of them have to be durable
            // (INV-3).
            let read = tokio::task::spawn_blocking(move || (read(&engine), engine.last_visible()));
            let (read, settled) = read.await.map_err(|_| backend_error(ErrorCode::INTERNAL_ERROR))?;
            if answer_gate.wait_durable(settled).await { Ok(read) } else { Err(backend_error(UNAVAILABLE)) }
        })
    }

    /// Returns an answer once the gate lets it pass.
    async fn found(
        answer: Option<types::Answer<Vec<BufferInfo>>>,
        answer_gate: AnswerGate,
    ) -> Result<Vec<BufferInfo>, BackendError> {
        match answer {
            Some(answer) if answer_gate.wait_durable(answer.depends_on).await => {
                answer.result.map_err(backend_error)
            }
            _ => Err(backend_error(UNAVAILABLE)),
        }
    }
}

impl HttpBackend for MasterBackend {
    fn health(&self) -> Health {
        self.current.borrow().health.clone()
    }

    fn gauges(&self) -> Gauges {
        let mut names: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let LiveState { engine, clock, connections, answer_gate, node, .. } = self.current();
        let replication = answer_gate.0.zip(node).map(|((incarnation, monotonic), node)| {
            let (gate, now) = (&incarnation.gate, monotonic.now());
            let primary = node.role == Role::Primary;
            let hold = if primary { engine.hold_until().0.saturating_sub(clock.now().0) } else { 0 };
            ReplicationGauges {
                primary,
                activity: node.activity,
                ready: node.activity == Activity::Serving || (!primary && node.caught_up),
                term: node.term.0,
                durable: gate.durable().0,
                queue_bytes: incarnation.queue.bytes() as u64,
                commit: gate.writing_for(now),
                lease_left: gate.deadline().since(now),
                hold_left: Duration::from_millis(hold),
                promotion: node.promotion.map(|promotion| promotion.total),
                digest_mismatches: node.divergence.digest_mismatches,
                rebuilds: u64::from(node.rebuilds),
                etcd: self.etcd_health.borrow().clone(),
                snapshots: node.snapshots,
                floor: node.floor,
                batches_deleted: node.batches_deleted,
            }
        });
        for segment in engine.segments() {
            let entry = names.entry(text(&segment.name)).or_default();
            // Clients name the sizes: the sum of a few absurd ones overflows a u64.
            entry.0 = entry.0.saturating_add(segment.used());
            entry.1 = entry.1.saturating_add(segment.size);
        }
        let counts = &engine.counts;
        let reading = engine.reading();
        Gauges {
            allocated_bytes: counts.allocated.load(Ordering::Relaxed),
            capacity_bytes: counts.capacity.load(Ordering::Relaxed),
            segments: names
                .into_iter()
                .map(|(name, (allocated_bytes, capacity_bytes))| SegmentGauges {
                    name,
                    allocated_bytes,
                    capacity_bytes,
                })
                .collect(),
            keys: engine.len().saturating_sub((reading.lost_writes + reading.lost_copies) as u64),
            soft_pinned_keys: counts.soft_pinned.load(Ordering::Relaxed),
            memory_keys: engine.len().saturating_sub((reading.writing + reading.lost_copies) as u64),
            clients: engine.joined_clients() as u64,
            discarded_bytes: reading.discarded_bytes,
            connections: connections.load(Ordering::Relaxed) as u64,
            sequence_id: reading.sequence_id.0,
            digest: reading.digest.0,
            tasks: (reading.tasks_pending as u64, reading.tasks_processing as u64),
            uptime: self.metrics.started.elapsed(),
            replication,
        }
    }

    fn query_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, BackendError>> {
        let current = self.current();
        // The read grants a lease, so it holds a guard: no lease is granted after those of a term were written to the
        // log (R6).
        let guard = current.answer_gate.guard().ok().filter(|_| current.health.service_ready);
        let answer = guard.map(|_guard| current.engine.get(key, current.clock.now(), buffers));
        if let Some(answer) = &answer {
            self.metrics.rpc.call(Function::GetReplicaList, answer.result.is_ok());
            let found = answer.result.as_ref().ok().and_then(|buffers| buffers.first());
            self.metrics.counters.get(found.map(|buffer| buffer.size));
        }
        Box::pin(Self::found(answer, current.answer_gate))
    }

    fn peek_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, BackendError>> {
        let current = self.current();
        let answer = current.health.service_ready.then(|| current.engine.peek(key, buffers));
        Box::pin(Self::found(answer, current.answer_gate))
    }

    fn keys_from(&self, mut cursor: Cursor) -> Answer<'_, Result<Option<KeysPiece>, BackendError>> {
        self.read(move |engine| {
            let mut lines = Vec::new();
            let more = engine.walk_piece(&mut cursor, |object| {
                if object.is_readable() {
                    lines.extend_from_slice(&object.key);
                    lines.push(b'\n');
                }
            });
            more.then_some((lines, cursor))
        })
    }

    fn segments(&self) -> Answer<'_, Result<Vec<SegmentInfo>, BackendError>> {
        let info = |segment: &crate::engine::segment::Segment| SegmentInfo {
            name: segment.name.to_vec(),
            id: (segment.id.first, segment.id.second),
            client_id: (segment.client.first, segment.client.second),
            base: segment.base,
            size: segment.size,
            te_endpoint: text(&segment.te_endpoint),
            protocol: text(&segment.protocol),
            draining: segment.status() == SegmentStatus::GracefullyUnmounting,
            used_bytes: segment.used(),
        };
        self.read(move |engine| engine.segments().iter().map(|segment| info(segment)).collect())
    }

    fn remove_all(&self, force: bool) -> Answer<'_, Result<i64, NotRemoved>> {
        Box::pin(async move {
            let turn = Arc::clone(&self.removal).lock_owned().await;
            let Some(LiveState { engine, clock, answer_gate, .. }) = self.serving() else {
                return Err(NotRemoved::NotServing);
            };
            let guard = answer_gate.guard()?;
            let admitted = answer_gate.clone();
            let removal = tokio::task::spawn_blocking(move || {
                // The removal goes on after its caller has hung up, and keeps the lock until it ends.
                let _turn = turn;
                let mut chunks = ChunkPermits::new(&admitted, guard.as_ref());
                let removed = engine.remove_all_while(force, clock.now(), &mut chunks);
                chunks.refusal().map_or(Ok(removed), Err)
            });
            self.metrics.rpc.call(Function::RemoveAll, true);
            let (count, depends_on) = removal.await.map_err(|_| NotRemoved::Failed)??;
            if answer_gate.wait_durable(depends_on).await {
                Ok(count as i64)
            } else {
                Err(NotRemoved::NotServing)
            }
        })
    }
}

/// Most bytes that a change of an entry adds to the log beside its key and value.
const ENTRY_BYTES: usize = 256;

impl MasterBackend {
    /// Makes a change once it is admitted (R2), and returns its result once it is durable. Waits for the sequencer on a
    /// blocking thread, so that no connection is delayed.
    async fn change<T: Send + 'static>(
        &self,
        bytes: usize,
        change: impl FnOnce(&Engine, LogTime) -> T + Send + 'static,
    ) -> Result<T, MetadataError> {
        let LiveState { engine, clock, answer_gate, .. } =
            self.serving().ok_or(MetadataError::Unavailable)?;
        let entry = answer_gate.enter(bytes).await?;
        let changed = tokio::task::spawn_blocking(move || {
            let changed = change(&engine, clock.now());
            drop(entry);
            // A refusal depends on the entries that were found, which any earlier record may have made.
            (changed, engine.last_visible())
        });
        let (changed, settled) = changed.await.map_err(|_| MetadataError::Unavailable)?;
        if answer_gate.wait_durable(settled).await { Ok(changed) } else { Err(MetadataError::Unknown) }
    }
}

impl MetadataStore for MasterBackend {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Option<Bytes>, MetadataError>> {
        Box::pin(async move {
            let Some(LiveState { engine, answer_gate, .. }) = self.serving() else {
                return Err(MetadataError::Unavailable);
            };
            let entry = engine.metadata(key);
            let depends_on = match &entry {
                Some((_, id)) => *id,
                // An absent key may have been deleted by any record.
                None => {
                    let settled = tokio::task::spawn_blocking(move || engine.last_visible()).await;
                    settled.map_err(|_| MetadataError::Unavailable)?
                }
            };
            if !answer_gate.wait_durable(depends_on).await {
                return Err(MetadataError::Unavailable);
            }
            Ok(entry.map(|(value, _)| Bytes::copy_from_slice(&value)))
        })
    }

    fn put<'a>(&'a self, key: &'a [u8], value: Bytes) -> Answer<'a, Result<Stored, MetadataError>> {
        let limits = self.metadata_limits;
        Box::pin(async move {
            let has_log = self.current.borrow().engine.has_log();
            if has_log && value.len() > MAX_LOGGED_VALUE {
                return Err(MetadataError::TooLarge);
            }
            let key = key.to_vec();
            let bytes = ENTRY_BYTES + key.len() + value.len();
            let put = move |engine: &Engine, now: LogTime| {
                engine.sequencer(now).put_metadata(&key, &value, |old, entries, bytes| {
                    if let Some(old) = old.filter(|_| is_exclusive(&key)) {
                        return Err(if *old == *value {
                            Ok(Stored::Unchanged)
                        } else {
                            Err(MetadataError::Duplicate)
                        });
                    }
                    if bytes > limits.bytes || entries > limits.entries {
                        return Err(Err(MetadataError::Full));
                    }
                    Ok(())
                })
            };
            match self.change(bytes, put).await? {
                Ok(_) => Ok(Stored::Updated),
                Err(refused) => refused,
            }
        })
    }

    fn delete<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<bool, MetadataError>> {
        Box::pin(async move {
            let key = key.to_vec();
            let delete =
                move |engine: &Engine, now: LogTime| engine.sequencer(now).delete_metadata(&key).is_some();
            self.change(ENTRY_BYTES, delete).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::engine::settings::EngineSettings;
    use crate::replication::time::RunningClock;

    fn admin(entries: usize, bytes: usize) -> MasterBackend {
        admin_of(Engine::new(EngineSettings::default()), entries, bytes)
    }

    fn admin_of(engine: Engine, entries: usize, bytes: usize) -> MasterBackend {
        let engine = Arc::new(engine);
        let (_, current) =
            tokio::sync::watch::channel(LiveState::alone(engine, RunningClock::start(), Arc::default()));
        let metadata_limits = MetadataLimits { entries, bytes };
        let etcd_health = crate::master::etcd_health::no_etcd();
        MasterBackend {
            current,
            metrics: Metrics::new(),
            etcd_health,
            metadata_limits,
            removal: Arc::default(),
        }
    }

    async fn put(store: &MasterBackend, key: &str, value: &'static str) -> Result<Stored, MetadataError> {
        store.put(key.as_bytes(), Bytes::from_static(value.as_bytes())).await
    }

    #[tokio::test]
    async fn metadata_is_bounded_and_counted() {
        let store = admin(2, 20);
        assert_eq!(put(&store, "a", "12345").await, Ok(Stored::Updated));
        assert_eq!(put(&store, "b", "12345").await, Ok(Stored::Updated));
        assert_eq!(put(&store, "c", "").await, Err(MetadataError::Full));
        assert_eq!(put(&store, "a", "1234567890123").await, Ok(Stored::Updated));
        assert_eq!(put(&store, "a", "12345678901234").await, Err(MetadataError::Full));
        assert_eq!(store.delete(b"a").await, Ok(true));
        assert_eq!(store.delete(b"a").await, Ok(false));
        assert_eq!(put(&store, "c", "1234567890123").await, Ok(Stored::Updated));
        assert_eq!(put(&store, "c", "12345678901234").await, Err(MetadataError::Full));
    }

    #[derive(Debug)]
    struct Forgetful;

    impl crate::engine::Log for Forgetful {
        fn append(
            &self,
            _: crate::engine::format::Format,
            _: types::SequenceId,
            _: types::LogTime,
            record: &crate::engine::record::Record<'_>,
        ) {
            assert!(record.size_bound() <= crate::engine::record_size::MAX_RECORD);
        }
    }

    #[tokio::test]
    async fn a_value_fits_into_a_record_if_there_is_a_log() {
        let large = Bytes::from(vec![b'x'; MAX_LOGGED_VALUE + 1]);
        let lone = admin(9, usize::MAX);
        assert_eq!(lone.put(b"a", large.clone()).await, Ok(Stored::Updated));
        let logged =
            admin_of(Engine::with_log(EngineSettings::default(), Box::new(Forgetful)), 9, usize::MAX);
        assert_eq!(logged.put(b"a", large.clone()).await, Err(MetadataError::TooLarge));
        assert_eq!(logged.put(&[b'k'; 4096], large.slice(1..)).await, Ok(Stored::Updated));
    }

    #[tokio::test]
    async fn all_objects_are_removed_by_one_at_a_time() {
        let store = admin(9, 1000);
        let turn = Arc::clone(&store.removal).lock_owned().await;
        let mut second = store.remove_all(true);
        assert!(tokio::time::timeout(Duration::ZERO, &mut second).await.is_err());
        drop(turn);
        assert_eq!(second.await, Ok(0));
    }

    #[tokio::test]
    async fn a_name_is_claimed_once() {
        let store = admin(9, 1000);
        assert_eq!(put(&store, "x/rpc_meta/h", "1").await, Ok(Stored::Updated));
        assert_eq!(put(&store, "x/rpc_meta/h", "1").await, Ok(Stored::Unchanged));
        assert_eq!(put(&store, "x/rpc_meta/h", "2").await, Err(MetadataError::Duplicate));
        assert_eq!(store.delete(b"x/rpc_meta/h").await, Ok(true));
        assert_eq!(put(&store, "x/rpc_meta/h", "2").await, Ok(Stored::Updated));
    }
}
