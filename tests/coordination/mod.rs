//! What the tests of coordination share, and the tests by subject.

mod checks;
mod differential;
mod embedded;
mod process;
mod stores;
mod suite;
