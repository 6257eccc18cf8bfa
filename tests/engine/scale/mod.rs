//! With many objects: what costs as much as there is to do, and leaves the sequencer to others in between.

mod bounded;
mod faults;
mod leases;
mod measure;
mod segments;
mod status;
mod walk;
