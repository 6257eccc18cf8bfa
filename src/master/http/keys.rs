//! Routes about objects.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Serialize;

use super::HttpState;
use super::answer::{self, METRICS};
use super::backend::{BackendError, BufferInfo, HttpBackend, NotRemoved};
use super::query;
use crate::engine::walk::Cursor;

/// Least bytes of a chunk of the key list; smaller pieces are joined until they reach it.
const CHUNK: usize = 64 << 10;

/// A replica with the reference's field names, which are those of its C++ members.
#[derive(Serialize)]
struct Buffer {
    size_: u64,
    buffer_address_: u64,
    protocol_: String,
    transport_endpoint_: String,
}

impl From<BufferInfo> for Buffer {
    fn from(info: BufferInfo) -> Buffer {
        Buffer {
            size_: info.size,
            buffer_address_: info.address,
            protocol_: info.protocol,
            transport_endpoint_: info.transport_endpoint,
        }
    }
}

fn buffers(found: Vec<BufferInfo>) -> Vec<Buffer> {
    found.into_iter().map(Buffer::from).collect()
}

#[derive(Serialize)]
struct Success<T> {
    success: bool,
    data: T,
}

/// Answers where the replicas of a key are. The reference does not decode this parameter. So the key is looked up as it
/// was written first, and decoded only if that finds nothing, which makes keys with other characters reachable.
pub(super) async fn query_key(State(shared): State<HttpState>, RawQuery(text): RawQuery) -> Response {
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    let text = text.unwrap_or_default();
    let raw = query::raw(&text, "key").unwrap_or_default();
    let decoded = query::decode(raw);
    let mut found = shared.backend.query_key(raw.as_bytes()).await;
    if found.is_err() && *decoded != *raw.as_bytes() {
        found = shared.backend.query_key(&decoded).await;
    }
    match found {
        Ok(found) => answer::json(StatusCode::OK, &Success { success: true, data: buffers(found) }),
        Err(error) => answer::error(error),
    }
}

#[derive(Serialize)]
struct BatchEntry {
    ok: bool,
    error: Option<&'static str>,
    values: Option<Vec<Buffer>>,
    // Kinds of replicas that this master does not have.
    disk_values: Option<()>,
    local_disk_values: Option<()>,
    nof_values: Option<()>,
}

impl From<Result<Vec<BufferInfo>, BackendError>> for BatchEntry {
    fn from(found: Result<Vec<BufferInfo>, BackendError>) -> BatchEntry {
        let error = found.as_ref().err().map(|error| error.name);
        BatchEntry {
            ok: error.is_none(),
            error,
            values: found.ok().map(buffers),
            disk_values: None,
            local_disk_values: None,
            nof_values: None,
        }
    }
}

#[derive(Serialize)]
struct BatchFailure {
    success: bool,
    error: &'static str,
}

/// Answers where the replicas of several keys are. As in the reference, the parameter is decoded before it is split, so
/// a key with a comma cannot be queried.
pub(super) async fn batch_query_keys(State(shared): State<HttpState>, RawQuery(text): RawQuery) -> Response {
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    let text = text.unwrap_or_default();
    let keys = query::decode(query::raw(&text, "keys").unwrap_or_default());
    if keys.is_empty() {
        let error = "No keys provided. Use ?keys=key1,key2,...";
        return answer::json(StatusCode::BAD_REQUEST, &BatchFailure { success: false, error });
    }
    let mut entries = BTreeMap::new();
    for key in keys.split(|byte| *byte == b',') {
        let found = shared.backend.peek_key(key).await;
        entries.insert(query::printable(key), BatchEntry::from(found));
    }
    answer::json(StatusCode::OK, &Success { success: true, data: entries })
}

pub(super) async fn get_all_keys(State(shared): State<HttpState>) -> Response {
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    // The first piece decides the status of the response; a piece that fails later breaks the connection.
    let mut pieces = Box::pin(pieces(Arc::clone(&shared.backend)));
    match pieces.next().await {
        None => answer::with_type(StatusCode::OK, METRICS, ""),
        Some(Err(_)) => answer::not_serving(),
        Some(first) => {
            answer::with_type(StatusCode::OK, METRICS, Body::from_stream(stream::iter([first]).chain(pieces)))
        }
    }
}

/// Streams all keys, one per line, and reads them piece by piece as the connection takes them.
fn pieces(backend: Arc<dyn HttpBackend>) -> impl Stream<Item = Result<Bytes, NotServing>> + Send {
    stream::try_unfold((backend, Cursor::default()), async |(backend, mut cursor)| {
        let mut piece = Vec::new();
        while piece.len() < CHUNK {
            let Some(read) = backend.keys_from(cursor).await.map_err(|_| NotServing)? else { break };
            piece.extend_from_slice(&read.0);
            cursor = read.1;
        }
        Ok((!piece.is_empty()).then(|| (Bytes::from(piece), (backend, cursor))))
    })
}

/// Error that ends a list when this master no longer serves.
#[derive(Debug, thiserror::Error)]
#[error("this master no longer serves")]
struct NotServing;

#[derive(Serialize)]
struct Removed {
    success: bool,
    removed_count: i64,
}

pub(super) async fn remove_all(State(shared): State<HttpState>, RawQuery(text): RawQuery) -> Response {
    if !shared.backend.health().service_ready {
        return answer::not_serving();
    }
    let text = text.unwrap_or_default();
    // The reference forces for exactly these two words, and for no other.
    let force = matches!(query::raw(&text, "force"), Some("true" | "1"));
    match shared.backend.remove_all(force).await {
        Ok(removed_count) => answer::json(StatusCode::OK, &Removed { success: true, removed_count }),
        Err(NotRemoved::Failed) => answer::error(answer::INTERNAL_ERROR),
        Err(error) => answer::unavailable(&error.to_string()),
    }
}
