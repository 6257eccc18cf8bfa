//! The companion of a master: whether there is one, and who starts it.

use std::path::PathBuf;

use super::{Reader, Warning};

/// The process that turns clients away once this master has died.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CompanionSettings {
    /// There is none.
    Off,
    /// This master starts it.
    #[default]
    Own,
    /// It listens on this Unix socket, and another process starts it.
    At(PathBuf),
}

impl Reader<'_> {
    pub(super) fn companion(&self, warnings: &mut Vec<Warning>) -> CompanionSettings {
        match (self.bool("companion"), self.path("companion_socket")) {
            (false, socket) => {
                if socket.is_some() {
                    let text = "--companion_socket has no effect with --companion=false";
                    warnings.push(Warning(text.to_owned()));
                }
                CompanionSettings::Off
            }
            (true, None) => CompanionSettings::Own,
            (true, Some(socket)) => CompanionSettings::At(socket),
        }
    }
}
