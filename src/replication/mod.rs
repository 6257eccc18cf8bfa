//! Replication: records as bytes, the writer, the follower, the election and the role of a master.
//!
//! The deciding part is a state machine: events in, commands out, time as an argument. A thin driver carries the
//! commands out, so that the simulator runs this very code.

pub mod admission;
pub mod batch;
pub mod call_ids;
pub mod clocks;
pub mod codec;
pub mod driver;
pub mod floor;
pub mod formats;
pub mod gate;
pub mod history;
pub mod incarnation;
pub mod lease;
pub mod linger;
pub mod liveness;
pub mod log_position;
pub mod node;
pub mod parked_answers;
pub mod parked_puts;
pub mod queue;
pub mod queue_space;
pub mod recovery;
pub mod snapshot;
pub mod term_guard;
pub mod time;
pub mod upkeep;
pub mod writer;
