//! The role of a master.

use serde::{Deserialize, Serialize};

/// The role of a master.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Serves clients.
    Primary,
    /// Follows the primary.
    Standby,
    /// Neither role yet, or the role is not known.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Role {
    /// Returns the word that stands for it in JSON.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Primary => "primary",
            Role::Standby => "standby",
            Role::Unknown => "unknown",
        }
    }
}
