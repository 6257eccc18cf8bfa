//! The master as its HTTP routes see it: reads of the state, and entries of the metadata server as records.

use std::collections::BTreeMap;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;

use crate::engine::Engine;
use crate::engine::object::Object;
use crate::engine::ops::MAX_LOGGED_VALUE;
use crate::engine::segment::SegmentStatus;
use crate::engine::shard::SHARDS;
use crate::engine::types::{self, ErrorCode};
use crate::master::clock::Clock;
use crate::master::describe::PROTOCOL;
use crate::master::http::{AdminView, Answer, BufferInfo, Health, Role, SegmentInfo, ViewError};
use crate::master::metadata_server::{MetadataError, MetadataStore, Stored, is_exclusive};
use crate::master::metrics::{Gauges, Metrics, SegmentGauges};
use crate::wire::functions::Function;

/// The state as people and their tools see it.
#[derive(Debug)]
pub struct Admin {
    /// The metadata.
    pub engine: Arc<Engine>,
    /// Log time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Open connections of Mooncake clients.
    pub connections: Arc<AtomicUsize>,
    /// How much the metadata server may hold.
    pub metadata_limits: MetadataLimits,
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

impl Admin {
    fn found(answer: types::Answer<Vec<BufferInfo>>) -> Result<Vec<BufferInfo>, ViewError> {
        answer.result.map_err(view_error)
    }
}

impl AdminView for Admin {
    fn health(&self) -> Health {
        Health {
            role: Role::Leader,
            state: "serving",
            service_ready: true,
            leader_address: None,
            view_version: None,
        }
    }

    fn gauges(&self) -> Gauges {
        let mut names: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for segment in self.engine.segments() {
            let entry = names.entry(text(&segment.name)).or_default();
            entry.0 += segment.used();
            entry.1 += segment.size;
        }
        let counts = &self.engine.counts;
        let reading = self.engine.sequencer(self.clock.now()).reading();
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
            keys: self.engine.len(),
            soft_pinned_keys: counts.soft_pinned.load(Ordering::Relaxed),
            memory_keys: self.engine.len(),
            clients: self.engine.joined_clients() as u64,
            discarded_bytes: reading.discarded_bytes,
            connections: self.connections.load(Ordering::Relaxed) as u64,
            sequence_id: reading.sequence_id.0,
            digest: reading.digest.0,
            tasks: (reading.tasks_pending as u64, reading.tasks_processing as u64),
            uptime: Duration::from_millis(self.clock.uptime_ms()),
        }
    }

    fn query_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, ViewError>> {
        let answer = self.engine.get(key, self.clock.now(), buffers);
        self.metrics.rpc.call(Function::GetReplicaList, answer.result.is_ok());
        let size = answer.result.as_ref().ok().and_then(|buffers| buffers.first()).map(|buffer| buffer.size);
        self.metrics.counters.get(size);
        Box::pin(ready(Self::found(answer)))
    }

    fn peek_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, ViewError>> {
        Box::pin(ready(Self::found(self.engine.peek(key, buffers))))
    }

    fn keys_of_shard(&self, shard: usize, each: &mut dyn FnMut(&[u8])) -> bool {
        if shard < SHARDS {
            self.engine.walk(shard, |object| each(&object.key));
        }
        shard < SHARDS
    }

    fn segments(&self) -> Vec<SegmentInfo> {
        let info = |segment: &crate::engine::segment::Segment| {
            let status = segment.status();
            SegmentInfo {
                name: segment.name.to_vec(),
                id: (segment.id.first, segment.id.second),
                client_id: (segment.client.first, segment.client.second),
                base: segment.base,
                size: segment.size,
                te_endpoint: text(&segment.te_endpoint),
                protocol: text(&segment.protocol),
                status: match status {
                    SegmentStatus::Ok => (status as i32, "OK"),
                    SegmentStatus::GracefullyUnmounting => (status as i32, "GRACEFULLY_UNMOUNTING"),
                },
                used_bytes: segment.used(),
                capacity_bytes: if status == SegmentStatus::Ok { segment.size } else { 0 },
            }
        };
        self.engine.segments().iter().map(|segment| info(segment)).collect()
    }

    fn remove_all(&self, force: bool) -> Answer<'_, Result<i64, ViewError>> {
        let (engine, now) = (Arc::clone(&self.engine), self.clock.now());
        Box::pin(async move {
            let removal = tokio::task::spawn_blocking(move || engine.remove_all(force, now));
            match removal.await {
                Ok((count, _)) => Ok(count as i64),
                Err(_) => Err(view_error(ErrorCode::INTERNAL_ERROR)),
            }
        })
    }
}

impl MetadataStore for Admin {
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Option<Bytes>> {
        let value = self.engine.metadata(key).map(|(value, _)| Bytes::copy_from_slice(&value));
        Box::pin(ready(value))
    }

    fn put<'a>(&'a self, key: &'a [u8], value: Bytes) -> Answer<'a, Result<Stored, MetadataError>> {
        if self.engine.has_log() && value.len() > MAX_LOGGED_VALUE {
            return Box::pin(ready(Err(MetadataError::TooLarge)));
        }
        let limits = self.metadata_limits;
        let result =
            self.engine.sequencer(self.clock.now()).put_metadata(key, &value, |old, entries, bytes| {
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
        Box::pin(ready(match result {
            Ok(_) => Ok(Stored::Updated),
            Err(refused) => refused,
        }))
    }

    fn delete<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<bool, MetadataError>> {
        let deleted = self.engine.sequencer(self.clock.now()).delete_metadata(key);
        Box::pin(ready(Ok(deleted.is_some())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::rules::Rules;

    fn admin(entries: usize, bytes: usize) -> Admin {
        Admin {
            engine: Arc::new(Engine::new(Rules::default())),
            clock: Clock::start(),
            metrics: Metrics::new(),
            connections: Arc::default(),
            metadata_limits: MetadataLimits { entries, bytes },
        }
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
