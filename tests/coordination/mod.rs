//! What the tests of coordination share, and the tests by subject.

mod checks;
mod differential;
mod process;
mod stores;
mod suite;
