//! Messages between a master and its companion. A message of an unknown kind ends the connection; unknown fields are
//! ignored, because a master can be newer than the companion of its predecessor.

use serde::{Deserialize, Serialize};

use super::testimony::Testimony;

/// A message of the master.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ToCompanion {
    /// The first message: identifies the process. Comes with its pidfd.
    Hello {
        /// Differs after every start of a master.
        boot_id: String,
    },
    /// The RPC port is open. Comes with its listening socket.
    Port,
    /// What to report to the other masters when this one has ended. Replaces the one before.
    Testimony(Testimony),
    /// The RPC port is closed, or will be at once.
    Forget,
    /// The master ends on purpose.
    Goodbye,
}

/// The companion's answer to [`ToCompanion::Hello`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub(super) enum ToMaster {
    /// The companion now watches this process.
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
