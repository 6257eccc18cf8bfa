//! Calls about segments and clients, and the calls with which every client begins.

use std::collections::{BTreeSet, HashMap};

use super::{Handled, Handlers, constant, reply};
use crate::engine::segment::{Segment as Mounted, SegmentSpec};
use crate::engine::types::SequenceId;
use crate::wire::functions::{Rpc, encode_response};
use crate::wire::messages::{
    GetStorageConfigResponse, GracefulUnmountSegmentRequest, MountSegmentRequest, NoArguments, PingResponse,
    ReMountSegmentRequest, Segment, UnmountSegmentRequest,
};
use crate::wire::struct_pack::Map;
use crate::wire::types::{ClientStatus, ErrorCode, SegmentStatus, Uuid};

/// Service version of this client generation; clients do not connect if they receive any other.
const SERVICE_VERSION: &[u8] = b"2.0.0";

/// Longest text in a segment's description: a record has to fit into a batch of the log.
const MAX_TEXT: usize = 4096;

impl Handlers {
    pub(super) fn service_ready<F: Rpc>(&self, _: NoArguments, out: &mut Vec<u8>) -> Handled {
        constant::<F, &[u8]>(Ok(SERVICE_VERSION), out)
    }

    pub(super) fn get_storage_config<F: Rpc>(&self, _: NoArguments, out: &mut Vec<u8>) -> Handled {
        let config = GetStorageConfigResponse {
            fsdir: &self.told.fsdir,
            enable_disk_eviction: self.told.enable_disk_eviction,
            quota_bytes: self.told.quota_bytes,
        };
        constant::<F, _>(Ok(config), out)
    }

    pub(super) fn get_fsdir<F: Rpc>(&self, _: NoArguments, out: &mut Vec<u8>) -> Handled {
        constant::<F, &[u8]>(Ok(&self.told.fsdir), out)
    }

    pub(super) fn mount_segment<F: Rpc>(
        &self,
        request: MountSegmentRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let spec = spec(&request.segment);
        if too_long(&spec) {
            return constant::<F, ()>(Err(ErrorCode::INVALID_PARAMS), out);
        }
        let now = self.now();
        if !self.liveness.admit(request.client_id, now) {
            return constant::<F, ()>(Err(ErrorCode::INTERNAL_ERROR), out);
        }
        let mut sequencer = self.engine.sequencer(now);
        let next = sequencer.next_id();
        let answer = sequencer.mount(&spec, request.client_id);
        drop(sequencer);
        if answer.result.is_ok() {
            self.liveness.heard(request.client_id, now);
        }
        if answer.result.is_ok() && answer.depends_on >= next {
            tracing::info!(
                client = %request.client_id,
                segment = %spec.id,
                name = %spec.name.escape_ascii(),
                bytes = spec.size,
                "segment mounted"
            );
        }
        reply::<F, _>(answer, out)
    }

    pub(super) fn remount_segment<F: Rpc>(
        &self,
        request: ReMountSegmentRequest<'_>,
        out: &mut Vec<u8>,
    ) -> Handled {
        let specs: Vec<SegmentSpec<'_>> = request.segments.iter().map(spec).collect();
        if specs.iter().any(too_long) {
            return constant::<F, ()>(Err(ErrorCode::INVALID_PARAMS), out);
        }
        let now = self.now();
        let joined = self.engine.is_joined(request.client_id).result;
        if !self.liveness.admit(request.client_id, now) {
            return constant::<F, ()>(Err(ErrorCode::INTERNAL_ERROR), out);
        }
        let answer = self.engine.remount(&specs, request.client_id, now);
        if answer.result.is_ok() && joined != Ok(true) {
            // `admit` keeps the deadline of a client that is known already; joining renews it.
            self.liveness.heard(request.client_id, now);
            tracing::info!(client = %request.client_id, segments = specs.len(), "client joined");
        }
        reply::<F, _>(answer, out)
    }

    pub(super) fn unmount_segment<F: Rpc>(
        &self,
        request: UnmountSegmentRequest,
        out: &mut Vec<u8>,
    ) -> Handled {
        let mut sequencer = self.engine.sequencer(self.now());
        let next = sequencer.next_id();
        let answer = sequencer.unmount(request.segment_id);
        drop(sequencer);
        // Log real unmounts only: a client may ask for an unknown segment as often as it likes.
        if answer.depends_on >= next {
            tracing::info!(client = %request.client_id, segment = %request.segment_id, "segment unmounted");
        }
        reply::<F, _>(answer, out)
    }

    pub(super) fn graceful_unmount_segment<F: Rpc>(
        &self,
        request: GracefulUnmountSegmentRequest,
        out: &mut Vec<u8>,
    ) -> Handled {
        let mut sequencer = self.engine.sequencer(self.now());
        let answer =
            sequencer.graceful_unmount(request.segment_id, request.client_id, request.grace_period_ms);
        drop(sequencer);
        reply::<F, _>(answer, out)
    }

    pub(super) fn query_segment_status<F: Rpc>(&self, name: &[u8], out: &mut Vec<u8>) -> Handled {
        reply::<F, _>(self.engine.segment_status(name).map(|status| SegmentStatus(status as i32)), out)
    }

    pub(super) fn query_segment_status_by_id<F: Rpc>(&self, id: Uuid, out: &mut Vec<u8>) -> Handled {
        reply::<F, _>(self.engine.segment_status_by_id(id).map(|status| SegmentStatus(status as i32)), out)
    }

    pub(super) fn ping<F: Rpc>(&self, client: Uuid, out: &mut Vec<u8>) -> Handled {
        if !self.liveness.heard(client, self.now()) {
            // There are too many clients to track another one: it would never expire.
            return constant::<F, PingResponse>(Err(ErrorCode::INTERNAL_ERROR), out);
        }
        let answer = self.engine.is_joined(client).map(|joined| PingResponse {
            view_version: 0,
            client_status: if joined { ClientStatus::OK } else { ClientStatus::NEED_REMOUNT },
        });
        reply::<F, _>(answer, out)
    }

    pub(super) fn batch_query_ip<F: Rpc>(&self, clients: Vec<Uuid>, out: &mut Vec<u8>) -> Handled {
        let wanted: BTreeSet<Uuid> = clients.iter().copied().collect();
        let segments = self.engine.segments();
        let mut owned: HashMap<Uuid, Vec<&Mounted>> = HashMap::new();
        for segment in segments.iter().filter(|segment| wanted.contains(&segment.client)) {
            owned.entry(segment.client).or_default().push(segment);
        }
        // That a client has no segments depends on the record that removed them (INV-3).
        let missing = owned.len() < wanted.len();
        let mut depends_on = if missing { self.engine.last_visible() } else { SequenceId(0) };
        let mut hosts: Vec<(Uuid, Vec<&[u8]>)> = Vec::with_capacity(owned.len());
        for client in wanted {
            let Some(owned) = owned.get(&client) else { continue };
            let endpoints = owned.iter().filter(|segment| !segment.te_endpoint.is_empty());
            let unique: BTreeSet<&[u8]> = endpoints.map(|segment| host(&segment.te_endpoint)).collect();
            depends_on = owned.iter().map(|segment| segment.last_record()).fold(depends_on, SequenceId::max);
            // That it has no more segments than these depends on the client's last record.
            depends_on =
                self.engine.client(client).map_or(depends_on, |known| depends_on.max(known.last_record));
            hosts.push((client, unique.into_iter().collect()));
        }
        // `hosts` is sorted, because `wanted` is traversed in order.
        let known = |client| hosts.binary_search_by_key(client, |(known, _)| *known).is_ok();
        let failed = clients.iter().filter(|client| !known(client)).count();
        encode_response::<F, _>(&Ok::<_, ErrorCode>(Map(hosts)), out);
        Handled::batch(clients.len(), failed, depends_on)
    }
}

fn spec<'a>(segment: &Segment<'a>) -> SegmentSpec<'a> {
    SegmentSpec {
        id: segment.id,
        name: segment.name,
        base: segment.base,
        size: segment.size,
        te_endpoint: segment.te_endpoint,
        protocol: segment.protocol,
        host_id: segment.host_id,
    }
}

fn too_long(spec: &SegmentSpec<'_>) -> bool {
    [spec.name, spec.te_endpoint, spec.protocol, spec.host_id].iter().any(|text| text.len() > MAX_TEXT)
}

/// Returns the host of an endpoint, without its port and without the brackets of an IPv6 address.
fn host(endpoint: &[u8]) -> &[u8] {
    if let [b'[', rest @ ..] = endpoint {
        let end = rest.iter().position(|byte| *byte == b']').unwrap_or(rest.len());
        return &rest[..end];
    }
    let mut colons = endpoint.iter().enumerate().filter(|(_, byte)| **byte == b':').map(|(at, _)| at);
    match (colons.next(), colons.next()) {
        (Some(at), None) => &endpoint[..at],
        _ => endpoint,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::engine::Engine;
    use crate::engine::settings::EngineSettings;
    use crate::engine::types::LogTime;
    use crate::master::handlers::Told;
    use crate::master::live_state::AnswerGate;
    use crate::master::metrics::Metrics;
    use crate::replication::liveness::{Liveness, MAX_CLIENTS};
    use crate::replication::term_guard::TermGuards;
    use crate::replication::time::RunningClock;
    use crate::wire::functions::rpc;
    use crate::wire::server::Outcome;

    const A: Uuid = Uuid { first: 1, second: 1 };
    const B: Uuid = Uuid { first: 2, second: 2 };

    fn handlers() -> Handlers {
        Handlers {
            engine: Arc::new(Engine::new(EngineSettings::default())),
            clock: RunningClock::start(),
            liveness: Arc::new(Liveness::new(10_000)),
            metrics: Metrics::new(),
            told: Told {
                fsdir: Vec::new(),
                enable_disk_eviction: false,
                quota_bytes: 0,
                max_retry_attempts: 0,
            },
            answer_gate: AnswerGate(None),
            guards: TermGuards::opened(),
        }
    }

    fn memory(id: Uuid) -> Segment<'static> {
        Segment {
            id,
            name: b"segment",
            base: id.first << 32,
            size: 1 << 20,
            te_endpoint: b"10.0.0.1:7001",
            protocol: b"tcp",
            host_id: b"host",
        }
    }

    fn rests_on(handled: &Handled) -> SequenceId {
        match handled.outcome {
            Outcome::Ready { depends_on } => depends_on,
            _ => panic!("not answered at once"),
        }
    }

    #[test]
    fn that_a_client_has_no_address_rests_on_what_took_it_away() {
        let handlers = handlers();
        for (nth, client) in [A, B].into_iter().enumerate() {
            let segment = memory(Uuid { first: 1 + nth as u64, second: 9 });
            let mount = MountSegmentRequest { segment, client_id: client };
            handlers.mount_segment::<rpc::MountSegment>(mount, &mut Vec::new());
        }
        let both = handlers.batch_query_ip::<rpc::BatchQueryIp>(vec![A, B, A], &mut Vec::new());
        assert_eq!(rests_on(&both), SequenceId(2));
        handlers.engine.expire_client(B, LogTime(0));
        for wanted in [vec![A, B], vec![B]] {
            let told = handlers.batch_query_ip::<rpc::BatchQueryIp>(wanted, &mut Vec::new());
            assert_eq!(rests_on(&told), SequenceId(3), "INV-3");
        }
        // An answer about a known client does not depend on other clients' records.
        let one = handlers.batch_query_ip::<rpc::BatchQueryIp>(vec![A], &mut Vec::new());
        assert_eq!(rests_on(&one), SequenceId(1));
        let unknown = handlers.query_segment_status_by_id::<rpc::QuerySegmentStatusById>(B, &mut Vec::new());
        assert_eq!(rests_on(&unknown), SequenceId(3), "INV-3");
    }

    #[test]
    fn a_client_that_nobody_would_miss_is_refused() {
        let handlers = handlers();
        let now = handlers.now();
        for first in 0..MAX_CLIENTS as u64 {
            assert!(handlers.liveness.heard(Uuid { first, second: 3 }, now));
        }
        let bytes = |answer: Result<(), ErrorCode>| {
            let mut out = Vec::new();
            encode_response::<rpc::MountSegment, _>(&answer, &mut out);
            out
        };
        let refused = bytes(Err(ErrorCode::INTERNAL_ERROR));
        let mut out = Vec::new();
        let mount = MountSegmentRequest { segment: memory(A), client_id: A };
        handlers.mount_segment::<rpc::MountSegment>(mount, &mut out);
        assert_eq!(out, refused);
        out.clear();
        let remount = ReMountSegmentRequest { segments: vec![memory(A)], client_id: A };
        handlers.remount_segment::<rpc::ReMountSegment>(remount, &mut out);
        assert_eq!(out, refused);
        assert!(handlers.engine.segments().is_empty());
        assert_eq!(handlers.engine.is_joined(A).result, Ok(false));
        // Clients that are known are still answered.
        out.clear();
        let known = Uuid { first: 0, second: 3 };
        let remount = ReMountSegmentRequest { segments: vec![memory(A)], client_id: known };
        handlers.remount_segment::<rpc::ReMountSegment>(remount, &mut out);
        assert_eq!(out, bytes(Ok(())));
    }

    #[test]
    fn hosts_of_endpoints() {
        let table: [(&[u8], &[u8]); 7] = [
            (b"10.0.0.1:7001", b"10.0.0.1"),
            (b"a", b"a"),
            (b"[::1]:80", b"::1"),
            (b"[::1]", b"::1"),
            (b"fe80::1", b"fe80::1"),
            (b":80", b""),
            (b"", b""),
        ];
        for (endpoint, expected) in table {
            assert_eq!(host(endpoint), expected, "{}", endpoint.escape_ascii());
        }
    }
}
