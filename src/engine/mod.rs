//! The state machine that holds the metadata: objects, segments, clients, leases, eviction, allocation.
//!
//! It changes in one way, `Sequencer::apply`, which is a function of the state and a record. Operations read the state,
//! decide, and commit a record; readers take shared locks. There is no I/O here, no clock and nothing asynchronous:
//! time enters as an argument.

mod apply;
mod audit;
pub mod chunks;
pub mod client;
pub(crate) mod core;
pub mod digest;
pub mod divergence;
pub mod eviction;
mod exempt;
pub mod extents;
pub mod faults;
pub mod format;
pub mod group;
pub mod key;
mod locked_shards;
pub mod object;
mod object_index;
pub mod open_segments;
pub mod ops;
pub mod pattern;
pub mod promises;
pub mod published;
mod publishing;
pub mod read;
pub mod record;
pub mod record_size;
mod renewals;
pub mod reserved;
pub mod segment;
pub mod segment_ranges;
pub mod settings;
pub mod shard;
pub mod slab;
pub mod snapshot;
pub mod state;
mod table;
pub mod task;
pub mod term_state;
pub mod types;
pub mod unmounted_writes;
pub mod varint;
pub mod walk;

pub use state::{Engine, Log, Sequencer};
