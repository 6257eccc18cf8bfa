//! Calls about many objects. Each item is answered as the single call would be, in order.

use super::{Handled, Handlers, INVALID, config, constant, reply_batch};
use crate::engine::ops::ReplicaTypes;
use crate::engine::types::{Answer, SequenceId};
use crate::engine::{Engine, Sequencer};
use crate::master::describe::{Located, Readable};
use crate::wire::batch::{BatchError, BatchReply};
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{
    BatchPutEndRequest, BatchPutRevokeRequest, BatchRemoveRequest, BatchReplicaClearRequest,
    BatchStartRequest, BatchUpsertEndRequest, BatchUpsertRevokeRequest, KeysRequest, ObjectMeta,
    ReplicateConfig,
};
use crate::wire::types::{ErrorCode, Expected, ReplicaType, Uuid};

/// So many items of a batch are dealt with before others get their turn at the sequencer.
const TURN: usize = 256;

/// Batches above this run where they hold up no other connection.
const LONG_BATCH: usize = 4096;

/// Runs something long without holding up the other connections of this thread.
fn aside<R>(items: usize, work: impl FnOnce() -> R) -> R {
    let many_threads = tokio::runtime::Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == tokio::runtime::RuntimeFlavor::MultiThread);
    if items > LONG_BATCH && many_threads { tokio::task::block_in_place(work) } else { work() }
}

/// A reply that cannot be written is a fault of ours; the client gets what is there and fails the call.
fn report(written: Result<(), BatchError>) {
    if let Err(error) = written {
        tracing::error!(%error, "cannot write the reply to a batch");
    }
}

/// Results in the order of the items, and what they rest on together.
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
        aside(request.keys.len(), || {
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
        let lease_ttl = self.engine.rules.lease_ttl;
        let mut depends_on = SequenceId(0);
        let mut failed = 0;
        let mut reply = BatchReply::<F>::begin(out, request.keys.len());
        aside(request.keys.len(), || {
            for key in &request.keys {
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
            let results: Vec<Expected<Located>> = request.keys.iter().map(|_| Err(INVALID)).collect();
            return reply_batch::<F, _>(&results, SequenceId(0), out);
        }
        let all = aside(items, || self.start_all(request, upsert));
        reply_batch::<F, _>(&all.results, all.depends_on, out)
    }

    fn start_all(&self, request: &BatchStartRequest<'_>, upsert: bool) -> Results<Located> {
        let config: &ReplicateConfig<'_> = &request.config;
        let groups = config.group_ids.as_deref();
        let preferred = config::preferred(config);
        // Items after the first follow it to its node, where that was asked for.
        let mut follow: Option<Box<[u8]>> = None;
        let mut all = Results::with_room(request.keys.len());
        let mut nth = 0;
        for keys in request.keys.chunks(TURN) {
            let mut sequencer = self.engine.sequencer(self.now());
            for key in keys {
                let followed: [&[u8]; 1] = [follow.as_deref().unwrap_or_default()];
                let preferred: &[&[u8]] = if follow.is_some() { &followed } else { &preferred };
                let length = request.slice_lengths[nth];
                let group = groups.map(|groups| groups[nth]);
                let answer = match config::check(config, key, length, group, preferred, &self.engine.rules) {
                    Err(code) => Answer::invalid(code),
                    Ok(write) if upsert => sequencer.upsert_start(request.client_id, key, length, &write),
                    Ok(write) => sequencer.put_start(request.client_id, key, length, &write),
                };
                if nth == 0 && config.prefer_alloc_in_same_node && !upsert {
                    let last = answer.result.as_ref().ok().and_then(|started| started.replicas.last());
                    follow = last.map(|replica| replica.segment.te_endpoint.clone());
                }
                self.count_start(config.replica_num, &answer);
                all.push(answer.map(Located::from));
                nth += 1;
            }
        }
        all
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
        self.in_turns::<F, _>(metas, out, |sequencer, meta| {
            sequencer.end(client, meta.key, types, meta.object_checksum)
        })
    }

    pub(super) fn batch_put_revoke<F: Rpc>(
        &self,
        request: BatchPutRevokeRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let types = config::types(request.replica_type);
        self.in_turns::<F, _>(&request.keys, out, |sequencer, key| {
            sequencer.revoke(request.client_id, key, types)
        })
    }

    pub(super) fn batch_upsert_revoke<F: Rpc>(
        &self,
        request: BatchUpsertRevokeRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let types = config::types(ReplicaType::ALL);
        self.in_turns::<F, _>(&request.keys, out, |sequencer, key| {
            sequencer.revoke(request.client_id, key, types)
        })
    }

    /// Runs one operation for each item, a number of them under one hold of the sequencer.
    fn in_turns<F: Rpc, I>(
        &self,
        items: &[I],
        out: &mut Vec<u8>,
        mut each: impl FnMut(&mut Sequencer<'_>, &I) -> Answer<()>,
    ) -> Handled {
        let engine: &Engine = &self.engine;
        let mut all = Results::with_room(items.len());
        aside(items.len(), || {
            for turn in items.chunks(TURN) {
                let mut sequencer = engine.sequencer(self.now());
                for item in turn {
                    all.push(each(&mut sequencer, item));
                }
            }
        });
        reply_batch::<F, _>(&all.results, all.depends_on, out)
    }

    pub(super) fn batch_remove<F: Rpc>(&self, request: BatchRemoveRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let mut results: Vec<Expected<()>> = Vec::with_capacity(request.keys.len());
        let mut depends_on = SequenceId(0);
        aside(request.keys.len(), || {
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
        if keys.is_empty() {
            return constant::<F, Vec<&[u8]>>(Ok(Vec::new()), out);
        }
        let mut cleared: Vec<&[u8]> = Vec::new();
        let mut depends_on = SequenceId(0);
        aside(keys.len(), || {
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
