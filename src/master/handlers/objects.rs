//! Calls about one object.

use super::put_metrics::PutMetrics;
use super::{Handled, Handlers, INVALID, config, constant, reply};
use crate::engine::key::Key;
use crate::engine::object::Object;
use crate::engine::ops::{ReplicaTypes, Write};
use crate::engine::types::Answer;
use crate::master::reply_encoding::{Placed, Readable};
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{EndRequest, KeyRequest, RemoveRequest, RevokeRequest, StartRequest};
use crate::wire::types::ErrorCode;

impl Handlers {
    pub(super) fn exist_key<F: Rpc>(&self, request: KeyRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let answer = self.engine.exist(request.key, self.now());
        encode_response::<F, _>(&answer.result, out);
        Handled::one(false, answer.depends_on)
    }

    pub(super) fn get_replica_list<F: Rpc>(&self, request: KeyRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let lease_ttl = self.engine.settings.lease_ttl_ms;
        let answer = self.engine.get(request.key, self.now(), |object| {
            encode_response::<F, _>(&Ok::<_, ErrorCode>(Readable::new(object, lease_ttl)), out);
            object.size
        });
        self.metrics.counters.get(answer.result.ok());
        if let Err(code) = answer.result {
            encode_response::<F, _>(&Err::<Readable<'_>, _>(code), out);
        }
        Handled::one(answer.result.is_err(), answer.depends_on)
    }

    pub(super) fn put_start<F: Rpc>(&self, request: StartRequest<'_>, out: &mut Vec<u8>) -> Handled {
        self.start::<F>(&request, false, out)
    }

    pub(super) fn upsert_start<F: Rpc>(&self, request: StartRequest<'_>, out: &mut Vec<u8>) -> Handled {
        self.start::<F>(&request, true, out)
    }

    fn start<F: Rpc>(&self, request: &StartRequest<'_>, upsert: bool, out: &mut Vec<u8>) -> Handled {
        let groups = request.config.group_ids.as_deref();
        let preferred = config::preferred(&request.config);
        let checked = config::check(
            &request.config,
            request.key,
            request.slice_length,
            groups.and_then(|groups| groups.first().copied()),
            &preferred,
            &self.engine.settings,
        );
        let checked = match checked {
            Ok(_) if groups.is_some_and(|groups| groups.len() != 1) => Err(INVALID),
            other => other,
        };
        let config = match checked {
            Ok(config) => config,
            Err(code) => return constant::<F, Placed<'_>>(Err(code), out),
        };
        let (client, key, size) = (request.client_id, Key::new(request.key), request.slice_length);
        let write = Write { client, key, size, config };
        let mut starts = PutMetrics::default();
        let tell = |object: &Object| {
            encode_response::<F, _>(&Ok::<_, ErrorCode>(Placed(object)), out);
            starts.began(request.config.replica_num, object, self);
        };
        let mut sequencer = self.engine.sequencer(|| self.now());
        let next = sequencer.next_id();
        let mut run = sequencer.run(&[key]);
        let answer = if upsert { run.upsert_start(&write, tell) } else { run.put_start(&write, tell) };
        drop(run);
        let changed = sequencer.next_id() != next;
        drop(sequencer);
        if let Err(code) = answer.result {
            encode_response::<F, _>(&Err::<Placed<'_>, _>(code), out);
        }
        starts.answered(&answer, changed);
        let starved = starts.count(self);
        Handled::one(answer.result.is_err(), answer.depends_on).with_starved(starved)
    }

    pub(super) fn end<F: Rpc>(&self, request: EndRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let meta = request.object_meta;
        let types = config::types(request.replica_type);
        let answer =
            self.engine.sequencer(self.now()).end(request.client_id, meta.key, types, meta.object_checksum);
        reply::<F, _>(answer, out)
    }

    pub(super) fn revoke<F: Rpc>(&self, request: RevokeRequest<'_>, out: &mut Vec<u8>) -> Handled {
        let types: ReplicaTypes = config::types(request.replica_type);
        let answer: Answer<()> =
            self.engine.sequencer(self.now()).revoke(request.client_id, request.key, types);
        reply::<F, _>(answer, out)
    }

    pub(super) fn remove<F: Rpc>(&self, request: RemoveRequest<'_>, out: &mut Vec<u8>) -> Handled {
        reply::<F, _>(self.engine.sequencer(self.now()).remove(request.key, request.force), out)
    }
}
