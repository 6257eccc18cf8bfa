//! The companion: a small process beside a master that turns Mooncake clients away once the master has died.
//!
//! A Mooncake client that finds the port of a dead primary closed tries again for more than four seconds. One whose
//! connection is accepted and closed fails at once and goes to the new primary. A dead process cannot do that, so the
//! companion holds a duplicate of its listening socket. The master hands the socket over on a Unix socket, together with
//! a pidfd of itself; the companion accepts nothing before that pidfd says that the process has ended. The end of the
//! Unix connection means nothing.
//!
//! | module | what |
//! |---|---|
//! | `message` | what master and companion say to each other |
//! | `channel` | how: lines of JSON with descriptors |
//! | `place` | where the Unix socket is, and who may use it |
//! | `watch` | what the companion decides; no I/O, no clock |
//! | `process` | the companion's process around it |
//! | `testimony` | what it tells the other masters when its own has ended |
//! | `keeper` | the master's side: starts a companion, and keeps it informed |
//! | `held_port` | the RPC port of the master, as the keeper is told of it |

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
