//! The audit log: one line for every request to change something over the admin API.
//!
//! Its target is `moonkeeper::audit`, so that it can be collected apart from everything else.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use parking_lot::Mutex;
use tokio::time::Instant;

/// Most characters of a request's URI that are logged.
const MAX_CHARACTERS: usize = 200;

/// Least time between two lines about refused requests: an unauthenticated caller must not fill the log.
const REFUSED_PAUSE: Duration = Duration::from_secs(1);

/// Address of the client. Attached to every request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Remote(pub Option<SocketAddr>);

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(address) => address.fmt(f),
            None => f.write_str("unknown"),
        }
    }
}

/// What a request asks for besides its URI, set by its handler. Attached to every request that was authorised.
#[derive(Clone, Debug, Default)]
pub(super) struct Detail(Arc<Mutex<String>>);

impl Detail {
    pub(super) fn set(&self, text: String) {
        *self.0.lock() = text;
    }
}

/// Code of an error, attached to its response for the audit log.
#[derive(Clone, Debug)]
pub(super) struct ErrorCode(pub String);

/// The line about one request. It is written when this is dropped, so that a request whose caller hung up has one, too.
#[derive(Debug)]
pub(super) struct Entry {
    who: String,
    remote: Remote,
    what: String,
    detail: Detail,
    result: String,
}

impl Entry {
    /// Begins the line of an authorised request.
    pub(super) fn new(who: String, remote: Remote, method: &Method, uri: &Uri, detail: Detail) -> Self {
        let result = "the caller disconnected; the request goes on".to_owned();
        Self { who, remote, what: what(method, uri), detail, result }
    }

    /// Records the response, and writes the line.
    pub(super) fn answered(mut self, response: &Response) {
        let status = response.status();
        self.result = match response.extensions().get::<ErrorCode>() {
            Some(ErrorCode(code)) => format!("{} {code}", status.as_u16()),
            None => status.as_u16().to_string(),
        };
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        let Self { who, remote, what, detail, result } = self;
        let detail = detail.0.lock();
        tracing::info!(target: "moonkeeper::audit", who, %remote, what, detail = %*detail, result, "admin request");
    }
}

fn what(method: &Method, uri: &Uri) -> String {
    let path = uri.path_and_query().map_or(uri.path(), |path| path.as_str());
    format!("{method} {path}").chars().take(MAX_CHARACTERS).collect()
}

/// Rate limit of the lines about refused requests. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<(Option<Instant>, u64)>>);

impl Refusals {
    /// Writes a line, unless one was written within [`REFUSED_PAUSE`]; then the refusal is counted in the next one.
    pub(super) fn note(&self, remote: Remote, method: &Method, uri: &Uri, status: StatusCode) {
        let mut last = self.0.lock();
        if last.0.is_some_and(|at| at.elapsed() < REFUSED_PAUSE) {
            last.1 += 1;
            return;
        }
        let not_told = std::mem::take(&mut last.1);
        last.0 = Some(Instant::now());
        let (what, result) = (what(method, uri), status.as_u16());
        tracing::info!(target: "moonkeeper::audit", who = "", %remote, what, result, not_told, "admin request refused");
    }
}
