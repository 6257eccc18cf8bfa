//! What the tests of coordination share, and the tests by subject.

mod access;
mod checks;
mod differential;
mod embedded;
mod faults;
mod process;
mod stores;
mod suite;
mod wide;
