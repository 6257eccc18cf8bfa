//! The companion: a small process beside a master that turns Mooncake clients away once the master has died.
//!
//! A Mooncake client that finds the port of a dead primary closed retries it for more than four seconds. One whose
//! connection is accepted and closed fails at once and goes to the new primary. A dead process cannot do that, so the
//! companion holds a duplicate of its listening socket. The master hands the socket over on a Unix socket, together
//! with a pidfd of itself; the companion accepts no connection before that pidfd reports that the process has ended.
//! The end of the Unix connection has no meaning.
//!
//! | module | what |
//! |---|---|
//! | `message` | the messages between master and companion |
//! | `channel` | their transport: lines of JSON with file descriptors |
//! | `place` | where the Unix socket is, and who may use it |
//! | `watch` | the companion's decisions; no I/O, no clock |
//! | `process` | the process that carries them out |
//! | `testimony` | the report to the other masters when the companion's own has ended |
//! | `keeper` | the master's side: starts a companion, and keeps it informed |
//! | `held_port` | the socket of the RPC port, published to the keeper |

mod channel;
mod held_port;
mod keeper;
mod message;
mod place;
pub mod process;
mod testimony;
mod watch;

pub use held_port::HeldPort;
pub use keeper::{Companion, DIES_WITH, Setup};
pub use testimony::Testimony;
