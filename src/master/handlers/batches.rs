//! Calls about many objects. Each item is answered as the single call would be, in order.

use super::put_metrics::PutMetrics;
use super::{Handled, Handlers, INVALID, config, reply_batch};
use crate::engine::Engine;
use crate::engine::key::Key;
use crate::engine::object::Object;
use crate::engine::ops::{ReplicaTypes, Write, WriteRun};
use crate::engine::types::{Answer, SequenceId};
use crate::master::reply_encoding::{Placed, Readable};
use crate::wire::batch::{BatchError, BatchReply};
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{
    BatchPutEndRequest, BatchPutRevokeRequest, BatchRemoveRequest, BatchReplicaClearRequest,
    BatchStartRequest, BatchUpsertEndRequest, BatchUpsertRevokeRequest, KeysRequest, ObjectMeta,
    ReplicateConfig,
};
use crate::wire::types::{ErrorCode, Expected, ReplicaType, Uuid};

/// Items of a batch that are handled before other calls may enter the sequencer.
const TURN: usize = 256;

/// Batches with more items than this run in `block_in_place`, so that they delay no other connection.
const LONG_BATCH: usize = 4096;

/// Runs work on many items without delaying the other connections of this thread.
fn offload<R>(items: usize, work: impl FnOnce() -> R) -> R {
    let many_threads = tokio::runtime::Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    if items > LONG_BATCH && many_threads { tokio::task::block_in_place(work) } else { work() }
}

/// Logs that a reply could not be written, which is a bug here. The client gets an incomplete reply and fails the call.
fn report(written: Result<(), BatchError>) {
    if let Err(error) = written {
        tracing::error!(%error, "cannot write the reply to a batch");
    }
}

/// Results in the order of the items, and the last record that any of them depends on.
struct Results<T> {
    results: Vec<Expected<T>>,
    depends_on: SequenceId,
}

impl<T> Results<T> {
    fn with_room(items: usize) -> Self {
        Self { results: Vec::with_capacity(items), depends_on: SequenceId(0) }
    }

    fn push(&mut self, answer: Answer<T>) {
        self.depends_on = self.depends_on.max(answer.depends_on);
        self.results.push(answer.result);
    }
}

impl Handlers {
    pub(super) fn batch_exist_key<F: Rpc>(&self, request: KeysRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let now = self.now();
        let mut all = Results::with_room(request.keys.len());
        offload(request.keys.len(), || {
            for key in &request.keys {
                all.push(self.engine.exist(key, now));
            }
        });
        reply_batch::<F, _>(&all.results, all.depends_on, out)
    }

    pub(super) fn batch_get_replica_list<F: Rpc>(
        &self,
        request: KeysRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let now = self.now();
        let lease_ttl = self.engine.settings.lease_ttl_ms;
        let mut depends_on = SequenceId(0);
        let mut failed = 0;
        let mut reply = BatchReply::<F>::begin(out, request.keys.len());
        offload(request.keys.len(), || {
            for key in &request.keys {
                if reply.is_full() {
                    failed += 1;
                    report(reply.push(&Err::<Readable<'_>, _>(INVALID)));
                    continue;
                }
                let answer = self.engine.get(key, now, |object| {
                    report(reply.push(&Ok::<_, ErrorCode>(Readable::new(object, lease_ttl))));
                    object.size
                });
                depends_on = depends_on.max(answer.depends_on);
                if let Err(code) = answer.result {
                    failed += 1;
                    report(reply.push(&Err::<Readable<'_>, _>(code)));
                }
                self.metrics.counters.get(answer.result.ok());
            }
        });
        report(reply.finish());
        Handled::batch(request.keys.len(), failed, depends_on)
    }

    pub(super) fn batch_put_start<F: Rpc>(
        &self,
        request: BatchStartRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.batch_start::<F>(&request, false, out)
    }

    pub(super) fn batch_upsert_start<F: Rpc>(
        &self,
        request: BatchStartRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.batch_start::<F>(&request, true, out)
    }

    fn batch_start<F: Rpc>(
        &self,
        request: &BatchStartRequest<'_>,
        upsert: bool,
        out: &mut Vec<u8>,
    ) -> Handled {
        let items = request.keys.len();
        let groups = request.config.group_ids.as_deref();
        if request.slice_lengths.len() != items || groups.is_some_and(|groups| groups.len() != items) {
            let results: Vec<Expected<Placed<'_>>> = request.keys.iter().map(|_| Err(INVALID)).collect();
            return reply_batch::<F, _>(&results, SequenceId(0), out);
        }
        let mut reply = BatchReply::<F>::begin(out, items);
        let (failed, starved, depends_on) = offload(items, || self.start_all(request, upsert, &mut reply));
        report(reply.finish());
        Handled::batch(items, failed, depends_on).with_starved(starved)
    }

    /// Starts all writes of a batch. Returns how many failed, how many found no memory if nothing was changed (else
    /// zero), and the last record that the answers depend on.
    fn start_all<F: Rpc>(
        &self,
        request: &BatchStartRequest<'_>,
        upsert: bool,
        reply: &mut BatchReply<'_, F>,
    ) -> (usize, u32, SequenceId) {
        let config: &ReplicateConfig<'_> = &request.config;
        let client = request.client_id;
        let groups = config.group_ids.as_deref();
        let preferred = config::preferred(config);
        // With `prefer_alloc_in_same_node`, later items of a put prefer the endpoint of the first one.
        let mut follow: Option<Box<[u8]>> = None;
        let mut starts = PutMetrics::default();
        let mut failed = 0;
        let mut depends_on = SequenceId(0);
        let mut nth = 0;
        self.in_runs(
            &request.keys,
            |key| key,
            |run, _, key| {
                let followed: [&[u8]; 1] = [follow.as_deref().unwrap_or_default()];
                let preferred: &[&[u8]] = if follow.is_some() { &followed } else { &preferred };
                let length = request.slice_lengths[nth];
                let group = groups.map(|groups| groups[nth]);
                let first = nth == 0 && config.prefer_alloc_in_same_node && !upsert;
                nth += 1;
                let (full, next) = (reply.is_full(), run.next_id());
                let tell = |object: &Object| {
                    report(reply.push(&Ok::<_, ErrorCode>(Placed(object))));
                    starts.began(config.replica_num, object, self);
                    let last = object.replicas().last().filter(|_| first);
                    last.map(|replica| replica.segment.te_endpoint.clone())
                };
                let answer =
                    match config::check(config, key.bytes, length, group, preferred, &self.engine.settings) {
                        Ok(_) if full => Answer::invalid(INVALID),
                        Err(code) => Answer::invalid(code),
                        Ok(config) => {
                            let write = Write { client, key, size: length, config };
                            if upsert { run.upsert_start(&write, tell) } else { run.put_start(&write, tell) }
                        }
                    };
                starts.answered(&answer, run.next_id() != next);
                depends_on = depends_on.max(answer.depends_on);
                match answer.result {
                    Ok(endpoint) => follow = endpoint.or(follow.take()),
                    Err(code) => {
                        failed += 1;
                        report(reply.push(&Err::<Placed<'_>, _>(code)));
                    }
                }
            },
        );
        (failed, starts.count(self), depends_on)
    }

    /// Passes items with their keys to `each`, in order. A chunk of them shares one hold of the sequencer, and a few of
    /// a chunk share one run.
    fn in_runs<'k, I>(
        &self,
        items: &'k [I],
        key: impl Fn(&'k I) -> &'k [u8],
        mut each: impl FnMut(&mut WriteRun<'_, '_>, &'k I, Key<'k>),
    ) {
        let engine: &Engine = &self.engine;
        let mut keys = Vec::with_capacity(items.len().min(TURN));
        for turn in items.chunks(TURN) {
            keys.clear();
            keys.extend(turn.iter().map(|item| Key::new(key(item))));
            let mut sequencer = engine.sequencer(|| self.now());
            for (items, keys) in turn.chunks(WriteRun::LENGTH).zip(keys.chunks(WriteRun::LENGTH)) {
                let mut run = sequencer.run(keys);
                items.iter().zip(keys).for_each(|(item, key)| each(&mut run, item, *key));
            }
        }
    }

    pub(super) fn batch_put_end<F: Rpc>(
        &self,
        request: BatchPutEndRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.batch_end::<F>(
            request.client_id,
            &request.object_metas,
            config::types(request.replica_type),
            out,
        )
    }

    pub(super) fn batch_upsert_end<F: Rpc>(
        &self,
        request: BatchUpsertEndRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.batch_end::<F>(request.client_id, &request.object_metas, config::types(ReplicaType::ALL), out)
    }

    fn batch_end<F: Rpc>(
        &self,
        client: Uuid,
        metas: &[ObjectMeta<'_>],
        types: ReplicaTypes,
        out: &mut Vec<u8>,
    ) -> Handled {
        self.in_turns::<F, _>(
            metas,
            |meta| meta.key,
            out,
            |run, meta, key| run.end(client, key, types, meta.object_checksum),
        )
    }

    pub(super) fn batch_put_revoke<F: Rpc>(
        &self,
        request: BatchPutRevokeRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let types = config::types(request.replica_type);
        self.in_turns::<F, _>(
            &request.keys,
            |key| key,
            out,
            |run, _, key| run.revoke(request.client_id, key, types),
        )
    }

    pub(super) fn batch_upsert_revoke<F: Rpc>(
        &self,
        request: BatchUpsertRevokeRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let types = config::types(ReplicaType::ALL);
        self.in_turns::<F, _>(
            &request.keys,
            |key| key,
            out,
            |run, _, key| run.revoke(request.client_id, key, types),
        )
    }

    /// Answers a batch in which each item is one operation without a result value.
    fn in_turns<'k, F: Rpc, I>(
        &self,
        items: &'k [I],
        key: impl Fn(&'k I) -> &'k [u8],
        out: &mut Vec<u8>,
        mut each: impl FnMut(&mut WriteRun<'_, '_>, &'k I, Key<'k>) -> Answer<()>,
    ) -> Handled {
        let mut all = Results::with_room(items.len());
        offload(items.len(), || self.in_runs(items, key, |run, item, key| all.push(each(run, item, key))));
        reply_batch::<F, _>(&all.results, all.depends_on, out)
    }

    pub(super) fn batch_remove<F: Rpc>(&self, request: BatchRemoveRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let mut results: Vec<Expected<()>> = Vec::with_capacity(request.keys.len());
        let mut depends_on = SequenceId(0);
        offload(request.keys.len(), || {
            for turn in request.keys.chunks(TURN) {
                let mut sequencer = self.engine.sequencer(self.now());
                let rests_on = sequencer.batch_remove(turn, request.force, |result| results.push(result));
                depends_on = depends_on.max(rests_on);
            }
        });
        reply_batch::<F, _>(&results, depends_on, out)
    }

    pub(super) fn batch_replica_clear<F: Rpc>(
        &self,
        request: BatchReplicaClearRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let keys = &request.object_keys;
        let mut cleared: Vec<&[u8]> = Vec::new();
        let mut depends_on = SequenceId(0);
        offload(keys.len(), || {
            for turn in keys.chunks(TURN) {
                let mut sequencer = self.engine.sequencer(self.now());
                for key in turn {
                    let answer = sequencer.replica_clear(request.client_id, key, request.segment_name);
                    depends_on = depends_on.max(answer.depends_on);
                    if answer.result == Ok(true) {
                        cleared.push(key);
                    }
                }
            }
        });
        let failed = keys.len() - cleared.len();
        encode_response::<F, _>(&Ok::<_, ErrorCode>(cleared), out);
        Handled::batch(keys.len(), failed, depends_on)
    }
}
