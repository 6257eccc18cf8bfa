//! The master as its HTTP routes see it: reads of the state, and entries of the metadata server as records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::engine::Engine;
use crate::engine::object::Object;
use crate::engine::ops::MAX_LOGGED_VALUE;
use crate::engine::segment::SegmentStatus;
use crate::engine::shard::SHARDS;
use crate::engine::types::{self, ErrorCode, LogTime};
use crate::master::current::{Current, CurrentState, Passage};
use crate::master::describe::PROTOCOL;
use crate::master::http::{AdminView, Answer, BufferInfo, Health, SegmentInfo, ViewError};
use crate::master::metadata_server::{MetadataError, MetadataStore, Stored, is_exclusive};
use crate::master::metrics::{Gauges, Metrics, ReplicationGauges, SegmentGauges};
use crate::replication::node::status::{Activity, Role};
use crate::wire::functions::Function;

/// The state as people and their tools see it.
#[derive(Debug)]
pub struct Admin {
    /// The state as it is now.
    pub current: CurrentState,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// How much the metadata server may hold.
    pub metadata_limits: MetadataLimits,
    /// Held by whoever removes all objects: one after the other, since each goes through all of them.
    pub removal: Arc<Mutex<()>>,
}

/// How much the metadata server may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct MetadataLimits {
    /// Entries.
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

fn view_error(code: ErrorCode) -> ViewError {
    ViewError { code: code.0, name: code.name().unwrap_or("UNKNOWN") }
}

/// This master does not serve, or no longer may.
const UNAVAILABLE: ErrorCode = ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS;

impl Admin {
    fn current(&self) -> Current {
        self.current.borrow().clone()
    }

    /// The state, if clients are served from it.
    fn serving(&self) -> Option<Current> {
        Some(self.current()).filter(|current| current.health.service_ready)
    }

    /// What is read from the state, once all that it may show is durable.
    fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Engine) -> T,
    ) -> Answer<'static, Result<T, ViewError>> {
        let read = self.serving().map(|Current { engine, passage, .. }| {
            let read = read(&engine);
            // Records that came while it was read may be in it.
            (read, engine.applied(), passage)
        });
        Box::pin(async move {
            let (read, applied, passage) = read.ok_or(view_error(UNAVAILABLE))?;
            if passage.settle(applied).await { Ok(read) } else { Err(view_error(UNAVAILABLE)) }
        })
    }

    /// An answer to a question, once it may be given.
    async fn found(
        answer: Option<types::Answer<Vec<BufferInfo>>>,
        passage: Passage,
    ) -> Result<Vec<BufferInfo>, ViewError> {
        match answer {
            Some(answer) if passage.settle(answer.depends_on).await => answer.result.map_err(view_error),
            _ => Err(view_error(UNAVAILABLE)),
        }
    }
}

impl AdminView for Admin {
    fn health(&self) -> Health {
        self.current.borrow().health.clone()
    }

    fn gauges(&self) -> Gauges {
        let mut names: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        let Current { engine, clock, connections, passage, node, .. } = self.current();
        let replication = passage.0.zip(node).map(|((replica, monotonic), node)| {
            let (gate, now) = (&replica.gate, monotonic.now());
            let primary = node.role == Role::Primary;
            let hold = if primary { engine.hold_until().0.saturating_sub(clock.now().0) } else { 0 };
            ReplicationGauges {
                primary,
                activity: node.activity,
                ready: node.activity == Activity::Serving || (!primary && node.caught_up),
                term: node.term.0,
                durable: gate.durable().0,
                queue_bytes: replica.queue.bytes() as u64,
                commit: gate.writing_for(now),
                lease_left: gate.deadline().since(now),
                hold_left: Duration::from_millis(hold),
                promotion: node.promotion.map(|promotion| promotion.total),
                digest_mismatches: engine.doubts().digest_mismatches,
                rebuilds: u64::from(node.rebuilds),
            }
        });
        for segment in engine.segments() {
            let entry = names.entry(text(&segment.name)).or_default();
            // Clients name the sizes, and a few absurd ones are more than a word can tell.
            entry.0 = entry.0.saturating_add(segment.used());
            entry.1 = entry.1.saturating_add(segment.size);
        }
        let counts = &engine.counts;
        let reading = engine.sequencer(LogTime(0)).reading();
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

    fn query_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, ViewError>> {
        let current = self.current();
        let serving = current.health.service_ready;
        let answer = serving.then(|| current.engine.get(key, current.clock.now(), buffers));
        if let Some(answer) = &answer {
            self.metrics.rpc.call(Function::GetReplicaList, answer.result.is_ok());
            let found = answer.result.as_ref().ok().and_then(|buffers| buffers.first());
            self.metrics.counters.get(found.map(|buffer| buffer.size));
        }
        Box::pin(Self::found(answer, current.passage))
    }

    fn peek_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, ViewError>> {
        let current = self.current();
        let answer = current.health.service_ready.then(|| current.engine.peek(key, buffers));
        Box::pin(Self::found(answer, current.passage))
    }

    fn keys_of_shard(&self, shard: usize) -> Answer<'_, Result<Option<Vec<u8>>, ViewError>> {
        let read = (shard < SHARDS).then(|| {
            self.read(|engine| {
                let mut lines = Vec::new();
                engine.walk(shard, |object| {
                    if object.is_readable() {
                        lines.extend_from_slice(&object.key);
                        lines.push(b'\n');
                    }
                });
                lines
            })
        });
        Box::pin(async move {
            match read {
                None => Ok(None),
                Some(read) => read.await.map(Some),
            }
        })
    }

    fn segments(&self) -> Answer<'_, Result<Vec<SegmentInfo>, ViewError>> {
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
        self.read(|engine| engine.segments().iter().map(|segment| info(segment)).collect())
    }

    fn remove_all(&self, force: bool) -> Answer<'_, Result<i64, ViewError>> {
        Box::pin(async move {
            let turn = Arc::clone(&self.removal).lock_owned().await;
            let Some(Current { engine, clock, passage, .. }) = self.serving() else {
                return Err(view_error(UNAVAILABLE));
            };
            let removal = tokio::task::spawn_blocking(move || {
                // It goes on when nobody waits for the answer any more, and is the one under way until it ends.
                let _turn = turn;
                engine.remove_all(force, clock.now())
            });
            self.metrics.rpc.call(Function::RemoveAll, true);
            match removal.await {
                Ok((count, depends_on)) if passage.settle(depends_on).await => Ok(count as i64),
                Ok(_) => Err(view_error(UNAVAILABLE)),
                Err(_) => Err(view_error(ErrorCode::INTERNAL_ERROR)),
            }
        })
    }
}

impl MetadataStore for Admin {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Option<Bytes>, MetadataError>> {
        let current = self.serving();
        let found = current.map(|current| {
            let entry = current.engine.metadata(key);
            // What is not there may have been deleted by any record.
            let depends_on = entry.as_ref().map_or_else(|| current.engine.applied(), |(_, id)| *id);
            (entry.map(|(value, _)| Bytes::copy_from_slice(&value)), depends_on, current.passage)
        });
        Box::pin(async move {
            match found {
                Some((value, depends_on, passage)) if passage.settle(depends_on).await => Ok(value),
                _ => Err(MetadataError::Unavailable),
            }
        })
    }

    fn put<'a>(&'a self, key: &'a [u8], value: Bytes) -> Answer<'a, Result<Stored, MetadataError>> {
        let limits = self.metadata_limits;
        let done = self.serving().ok_or(MetadataError::Unavailable).and_then(|current| {
            let Current { engine, clock, passage, .. } = current;
            if engine.has_log() && value.len() > MAX_LOGGED_VALUE {
                return Err(MetadataError::TooLarge);
            }
            let stored = engine.sequencer(clock.now()).put_metadata(key, &value, |old, entries, bytes| {
                if let Some(old) = old.filter(|_| is_exclusive(key)) {
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
            });
            Ok((stored, engine.applied(), passage))
        });
        Box::pin(async move {
            let (stored, applied, passage) = done?;
            // A refusal rests on what was there, which any record before may have made.
            if !passage.settle(applied).await {
                return Err(MetadataError::Unavailable);
            }
            match stored {
                Ok(_) => Ok(Stored::Updated),
                Err(refused) => refused,
            }
        })
    }

    fn delete<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<bool, MetadataError>> {
        let done = self.serving().map(|Current { engine, clock, passage, .. }| {
            let deleted = engine.sequencer(clock.now()).delete_metadata(key);
            (deleted.is_some(), engine.applied(), passage)
        });
        Box::pin(async move {
            match done {
                Some((deleted, applied, passage)) if passage.settle(applied).await => Ok(deleted),
                _ => Err(MetadataError::Unavailable),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::engine::rules::Rules;
    use crate::master::clock::Clock;

    fn admin(entries: usize, bytes: usize) -> Admin {
        admin_of(Engine::new(Rules::default()), entries, bytes)
    }

    fn admin_of(engine: Engine, entries: usize, bytes: usize) -> Admin {
        let engine = Arc::new(engine);
        let (_, current) =
            tokio::sync::watch::channel(Current::alone(engine, Clock::start(), Arc::default()));
        let metadata_limits = MetadataLimits { entries, bytes };
        Admin { current, metrics: Metrics::new(), metadata_limits, removal: Arc::default() }
    }

    async fn put(store: &Admin, key: &str, value: &'static str) -> Result<Stored, MetadataError> {
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
            _: types::SequenceId,
            _: types::LogTime,
            record: &crate::engine::record::Record<'_>,
        ) {
            assert!(record.size_bound() <= crate::engine::bounds::MAX_RECORD);
        }
    }

    #[tokio::test]
    async fn a_value_fits_into_a_record_if_there_is_a_log() {
        let large = Bytes::from(vec![b'x'; MAX_LOGGED_VALUE + 1]);
        let lone = admin(9, usize::MAX);
        assert_eq!(lone.put(b"a", large.clone()).await, Ok(Stored::Updated));
        let logged = admin_of(Engine::with_log(Rules::default(), Box::new(Forgetful)), 9, usize::MAX);
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
