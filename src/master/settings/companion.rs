//! Settings of the companion: whether there is one, and which process starts it.

use std::path::PathBuf;

use super::{Reader, Warning};

/// How the companion, which turns clients away once this master has died, is run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum CompanionSettings {
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
