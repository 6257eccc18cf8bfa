//! The state machine: objects, segments, clients, leases, eviction, allocation. No I/O, no clock, no async.

pub mod extents;
pub mod pattern;
