//! What a master and its companion say to each other. A message of a kind that the
//! other side does not know ends the connection; fields that it does not know are passed over, because a master can be
//! newer than the companion of its predecessor.

use serde::{Deserialize, Serialize};

use super::testimony::Testimony;

/// What a master says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ToCompanion {
    /// First of all: which process this is. Comes with a pidfd of it.
    Hello {
        /// Another one after every start of a master.
        boot_id: String,
    },
    /// The RPC port is open. Comes with its listening socket.
    Port,
    /// What to tell the other masters when this one has ended. Replaces what was said before.
    Testimony(Testimony),
    /// The RPC port is closed, or will be at once.
    Forget,
    /// The master ends on purpose.
    Goodbye,
}

/// What a companion answers to [`ToCompanion::Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ToMaster {
    /// This process is now the one that the companion watches.
    Welcome {
        /// The port of the process before, which has died. Comes with its listening socket.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<PortOfTheDead>,
    },
    /// The companion watches another process, which is alive.
    Busy,
}

/// A port that a companion gives to the successor of its master.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PortOfTheDead {
    /// How long ago the master ended.
    pub(super) ended_ms_ago: u64,
    /// Connections that were accepted and closed since.
    pub(super) turned_away: u64,
}
