//! The state machine that holds the metadata: objects, segments, clients, leases, eviction, allocation.
//!
//! It changes in one way, `Sequencer::apply`, which is a function of the state and a record. Operations read the state,
//! decide, and commit a record; readers take shared locks. There is no I/O here, no clock and nothing asynchronous:
//! time enters as an argument.

mod apply;
pub mod atlas;
mod audit;
pub mod bounds;
pub mod client;
pub(crate) mod core;
pub mod digest;
pub mod doubts;
pub mod eviction;
mod exempt;
pub mod extents;
pub mod faults;
pub mod format;
pub mod group;
mod held;
mod ids;
pub mod key;
pub mod object;
pub mod open_segments;
pub mod ops;
pub mod own_records;
pub mod packing;
pub mod pattern;
pub mod promises;
pub mod published;
mod publishing;
pub mod read;
pub mod record;
pub mod reign;
mod renewals;
pub mod reserved;
pub mod rules;
pub mod segment;
pub mod shard;
pub mod slab;
pub mod snapshot;
pub mod state;
pub mod strays;
mod table;
pub mod task;
pub mod types;
pub mod walk;

pub use state::{Engine, Log, Sequencer};
