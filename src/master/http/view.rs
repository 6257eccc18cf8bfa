//! What the HTTP routes need to know of the master. The routes see nothing else of it, so they are tested
//! without one.

use std::future::Future;
use std::pin::Pin;

use crate::engine::walk::Cursor;
use crate::master::metrics::Gauges;
use crate::replication::admission::Refusal;

/// An answer that may have to wait, for instance until what it depends on is durable.
pub type Answer<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// The master, as its HTTP routes see it.
pub trait AdminView: Send + Sync + 'static {
    /// The role and whether clients are served. Must not wait for anything.
    fn health(&self) -> Health;

    /// A reading of the state for metrics.
    fn gauges(&self) -> Gauges;

    /// The memory replicas of an object. This is a read like a client's: it grants a lease and is counted as a
    /// GetReplicaList, as in the reference.
    fn query_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, ViewError>>;

    /// The same without lease and without being counted.
    fn peek_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, ViewError>>;

    /// The next piece of the list of all keys that can be read, each followed by a line's end, and where to go on; `None`
    /// at its end. The list is sent piece by piece, so that it is never held at once, in memory or under a lock.
    fn keys_from(&self, cursor: Cursor) -> Answer<'_, Result<Option<KeysPiece>, ViewError>>;

    /// All mounted segments, in the order in which they were mounted.
    fn segments(&self) -> Answer<'_, Result<Vec<SegmentInfo>, ViewError>>;

    /// Removes all objects, those with a lease only if forced, and says how many.
    fn remove_all(&self, force: bool) -> Answer<'_, Result<i64, NotRemoved>>;
}

/// Why not all objects were removed that could be. Some may have been: it is done in chunks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotRemoved {
    /// This master does not serve, or no longer may.
    #[error("service plane is not active")]
    NotServing,
    /// The log took no more records.
    #[error("not everything was removed: {}", .0.cause())]
    Refused(#[from] Refusal),
    /// It failed.
    #[error("INTERNAL_ERROR")]
    Failed,
}

/// Keys, one a line, and where to go on reading.
pub type KeysPiece = (Vec<u8>, Cursor);

/// An error code of the protocol with its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ViewError {
    /// The number, such as -704.
    pub code: i32,
    /// The name, such as `OBJECT_NOT_FOUND`.
    pub name: &'static str,
}

/// The role of a master in the reference's words, which its users' probes and scripts compare with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Serves clients.
    Leader,
    /// Does not.
    Standby,
}

impl Role {
    /// The word in answers.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Leader => "leader",
            Role::Standby => "standby",
        }
    }
}

/// The role of a master and whether it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Leader or standby.
    pub role: Role,
    /// The state in the reference's words: `starting`, `standby`, `serving`, ...
    pub state: &'static str,
    /// Whether clients are served.
    pub service_ready: bool,
    /// The address of the serving master, where it is known from an election.
    pub leader_address: Option<String>,
    /// The version of the election's result, where there was one.
    pub view_version: Option<i64>,
}

/// One memory replica of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BufferInfo {
    /// Bytes.
    pub size: u64,
    /// Where it starts in the owner's memory.
    pub address: u64,
    /// `tcp`, for instance.
    pub protocol: String,
    /// The owner's transfer engine.
    pub transport_endpoint: String,
}

/// One mounted segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SegmentInfo {
    /// Its name; several segments may have the same.
    pub name: Vec<u8>,
    /// Its id.
    pub id: (u64, u64),
    /// The client that owns it.
    pub client_id: (u64, u64),
    /// Where it starts in the owner's memory.
    pub base: u64,
    /// Bytes.
    pub size: u64,
    /// The owner's transfer engine.
    pub te_endpoint: String,
    /// `tcp`, for instance.
    pub protocol: String,
    /// Whether it takes no new objects, because it is being unmounted with a grace period.
    pub draining: bool,
    /// Bytes given out, of those that can be.
    pub used_bytes: u64,
}
