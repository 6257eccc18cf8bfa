//! What the HTTP routes need of the master. They see nothing else of it, so they are tested without one.

use std::future::Future;
use std::pin::Pin;

use crate::engine::walk::Cursor;
use crate::master::metrics::Gauges;
use crate::replication::admission::Refusal;

/// A result that may have to wait, for instance until what it depends on is durable.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The master, as its HTTP routes see it.
pub trait HttpBackend: Send + Sync + 'static {
    /// Returns the role and whether clients are served. Must not wait for anything.
    fn health(&self) -> Health;

    /// Returns a reading of the state for metrics.
    fn gauges(&self) -> Gauges;

    /// Returns the memory replicas of an object. This is a read like a client's: it grants a lease and is counted as a
    /// GetReplicaList, as in the reference.
    fn query_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, BackendError>>;

    /// Returns the same without granting a lease and without being counted.
    fn peek_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, BackendError>>;

    /// Returns the next piece of the list of all readable keys, each followed by a newline, and where to continue;
    /// `None` at its end. The list is sent piece by piece, so that it is never held at once, in memory or under a lock.
    fn keys_from(&self, cursor: Cursor) -> Answer<'_, Result<Option<KeysPiece>, BackendError>>;

    /// Returns all mounted segments, in the order in which they were mounted.
    fn segments(&self) -> Answer<'_, Result<Vec<SegmentInfo>, BackendError>>;

    /// Removes all objects, those with a lease only if forced, and returns how many.
    fn remove_all(&self, force: bool) -> Answer<'_, Result<i64, NotRemoved>>;
}

/// Why not all objects were removed that could be. Some may have been: the removal runs in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRemoved {
    /// This master does not serve, or no longer may.
    #[error("service plane is not active")]
    NotServing,
    /// The log admitted no more records.
    #[error("not everything was removed: {}", .0.cause())]
    Refused(#[from] Refusal),
    /// The removal failed because of a bug.
    #[error("INTERNAL_ERROR")]
    Failed,
}

/// Keys, one a line, and where to continue.
pub type KeysPiece = (Vec<u8>, Cursor);

/// An error code of the protocol with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackendError {
    /// The number, such as -704.
    pub code: i32,
    pub name: &'static str,
}

/// The role of a master in the reference's terms, which its users' probes and scripts compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReferenceRole {
    /// Serves clients.
    Leader,
    /// Does not serve clients.
    Standby,
}

impl ReferenceRole {
    /// Returns the name of the role in responses.
    pub fn as_str(self) -> &'static str {
        match self {
            ReferenceRole::Leader => "leader",
            ReferenceRole::Standby => "standby",
        }
    }
}

/// The role of a master and whether it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    pub role: ReferenceRole,
    /// State in the reference's terms: `starting`, `standby`, `serving`, ...
    pub state: &'static str,
    /// Whether clients are served.
    pub service_ready: bool,
    /// Address of the serving master, if it is known from an election.
    pub leader_address: Option<String>,
    /// Version of the election's result, if there was one.
    pub view_version: Option<i64>,
}

/// One memory replica of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferInfo {
    /// Size of the range, in bytes.
    pub size: u64,
    /// Where it starts in the owner's memory.
    pub address: u64,
    /// Transfer protocol, for instance `tcp`.
    pub protocol: String,
    /// Endpoint of the owner's transfer engine.
    pub transport_endpoint: String,
}

/// One mounted segment, as the HTTP routes report it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its name; several segments may have the same.
    pub name: Vec<u8>,
    pub id: (u64, u64),
    /// The client that owns it.
    pub client_id: (u64, u64),
    /// Where it starts in the owner's memory.
    pub base: u64,
    /// Size of the range, in bytes.
    pub size: u64,
    /// Endpoint of the owner's transfer engine.
    pub te_endpoint: String,
    /// Transfer protocol, for instance `tcp`.
    pub protocol: String,
    /// Whether it takes no new objects, because it is being unmounted with a grace period.
    pub draining: bool,
    pub used_bytes: u64,
}
