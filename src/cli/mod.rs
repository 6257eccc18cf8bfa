//! The commands of the binary. Each takes its arguments and says with which code the process ends.

pub mod bench;
pub mod master;
