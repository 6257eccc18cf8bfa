//! The optional metadata server: a small key-value store over HTTP through which transfer engines that were set up with
//! `http://HOST:PORT/metadata` find each other.
//!
//! It answers as the reference's does. [`MetadataStore`] keeps the entries, as records of the engine.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{RawQuery, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use bytes::Bytes;
use thiserror::Error;

use super::http::{Answer, answer, query};
use crate::engine::ops::MAX_LOGGED_VALUE;
use crate::replication::admission::Refusal;

/// Largest value. Descriptions of a transfer engine with thousands of buffers stay well below it.
const MAX_VALUE: usize = 4 << 20;

/// Largest key in bytes; a longer one gets status 414.
const MAX_KEY: usize = 4 << 10;

/// Longest time for a value to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Store of the entries.
///
/// Two processes must not claim the same name, so an entry whose key contains `rpc_meta` is never replaced by a
/// different one: it has to be deleted first.
pub trait MetadataStore: Send + Sync + 'static {
    /// Returns the value of a key.
    fn get<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Option<Bytes>, MetadataError>>;

    /// Sets the value of a key.
    fn put<'a>(&'a self, key: &'a [u8], value: Bytes) -> Answer<'a, Result<Stored, MetadataError>>;

    /// Removes a key and returns whether it existed.
    fn delete<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<bool, MetadataError>>;
}

/// Result of a put that did not fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    /// The value was set.
    Updated,
    /// The key must not be replaced, and already had this value.
    Unchanged,
}

/// Why an entry could not be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum MetadataError {
    /// The key must not be replaced, and has another value.
    #[error("Duplicate rpc_meta key not allowed")]
    Duplicate,
    /// The value does not fit into a record of the log.
    #[error("a value has at most {MAX_LOGGED_VALUE} bytes in a replicated store")]
    TooLarge,
    /// The limit of entries or bytes is reached.
    #[error("the metadata server is full")]
    Full,
    /// This master does not serve at the moment.
    #[error("service plane is not active")]
    Unavailable,
    /// The change was not admitted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The change was made, and whether it becomes durable is unknown (R5).
    #[error("the log did not confirm the change in time, whether it was made is unknown")]
    Unknown,
}

/// Returns whether an entry with this key must not be replaced by a different one.
pub fn is_exclusive(key: &[u8]) -> bool {
    const MARK: &[u8] = b"rpc_meta";
    key.windows(MARK.len()).any(|part| part == MARK)
}

/// Returns the keys under which a transfer engine describes a segment: percent-encoded, as the engines of Mooncake
/// clients write them, and plain.
pub fn entries_of(segment: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let plain = [&b"mooncake/ram/"[..], b"mooncake/rpc_meta/"].map(|prefix| [prefix, segment].concat());
    plain.into_iter().flat_map(|key| [query::encode(&key).into_bytes(), key])
}

type Store = State<Arc<dyn MetadataStore>>;

/// Builds the routes. Serve them with [`http_server::serve`](crate::net::http_server::serve).
pub fn router(store: Arc<dyn MetadataStore>) -> Router {
    Router::new()
        .route("/metadata", get(read).put(write).delete(delete))
        .route("/health", get(async || answer::plain(StatusCode::OK, "OK")))
        .fallback(answer::not_found)
        .method_not_allowed_fallback(answer::not_found)
        .with_state(store)
}

/// Returns the key in a query. As in the reference it is taken as it was written, not decoded: transfer engines encode
/// it, or do not, but always in the same way.
fn key_in(text: &str) -> Result<&[u8], (StatusCode, &'static str)> {
    match query::raw(text, "key").unwrap_or_default() {
        "" => Err((StatusCode::BAD_REQUEST, "Missing key parameter")),
        key if key.len() > MAX_KEY => Err((StatusCode::URI_TOO_LONG, "a key has at most 4096 bytes")),
        key => Ok(key.as_bytes()),
    }
}

fn not_found() -> Response {
    answer::plain(StatusCode::NOT_FOUND, "metadata not found")
}

fn failed(error: MetadataError) -> Response {
    let status = match error {
        MetadataError::Duplicate => StatusCode::BAD_REQUEST,
        MetadataError::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        MetadataError::Full => StatusCode::INSUFFICIENT_STORAGE,
        MetadataError::Unavailable | MetadataError::Refused(_) | MetadataError::Unknown => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    };
    answer::plain(status, error.to_string())
}

async fn read(State(store): Store, RawQuery(text): RawQuery) -> Response {
    let text = text.unwrap_or_default();
    let key = match key_in(&text) {
        Ok(key) => key,
        Err((status, why)) => return answer::plain(status, why),
    };
    match store.get(key).await {
        Ok(Some(value)) => answer::with_type(StatusCode::OK, "application/json", value),
        Ok(None) => not_found(),
        Err(error) => failed(error),
    }
}

async fn write(State(store): Store, RawQuery(text): RawQuery, body: Body) -> Response {
    let text = text.unwrap_or_default();
    let key = match key_in(&text) {
        Ok(key) => key,
        Err((status, why)) => return answer::plain(status, why),
    };
    let value = match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, MAX_VALUE)).await {
        Ok(Ok(value)) => value,
        Ok(Err(_)) => {
            let text = format!("a value has at most {MAX_VALUE} bytes");
            return answer::plain(StatusCode::PAYLOAD_TOO_LARGE, text);
        }
        Err(_) => return answer::plain(StatusCode::REQUEST_TIMEOUT, "the value took too long to arrive"),
    };
    match store.put(key, value).await {
        Ok(Stored::Updated) => answer::plain(StatusCode::OK, "metadata updated"),
        Ok(Stored::Unchanged) => answer::plain(StatusCode::OK, "metadata unchanged"),
        Err(error) => failed(error),
    }
}

async fn delete(State(store): Store, RawQuery(text): RawQuery) -> Response {
    let text = text.unwrap_or_default();
    let key = match key_in(&text) {
        Ok(key) => key,
        Err((status, why)) => return answer::plain(status, why),
    };
    match store.delete(key).await {
        Ok(true) => answer::plain(StatusCode::OK, "metadata deleted"),
        Ok(false) => not_found(),
        Err(error) => failed(error),
    }
}
