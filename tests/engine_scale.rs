//! With many objects: what costs as much as there is to do, and leaves the sequencer to others in between.

#![allow(clippy::unwrap_used)] // clippy knows test functions but not their helpers

mod engine;

#[path = "engine_scale/bounded.rs"]
mod bounded;
#[path = "engine_scale/faults.rs"]
mod faults;
#[path = "engine_scale/leases.rs"]
mod leases;
#[path = "engine_scale/measure.rs"]
mod measure;
#[path = "engine_scale/segments.rs"]
mod segments;
#[path = "engine_scale/status.rs"]
mod status;
#[path = "engine_scale/walk.rs"]
mod walk;
