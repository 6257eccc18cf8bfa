//! From the command line of `moonkeeper master` to its settings.

use std::collections::HashMap;

use super::Settings;
use super::ha::Surroundings;
use crate::master::flags::{self, FlagError, Given, ReadFile, Warning};

/// File with the host name on Linux.
const HOST_NAME: &str = "/proc/sys/kernel/hostname";

/// Result of parsing the command line.
#[derive(Debug)]
pub enum Parsed {
    /// Run with these settings, and log these warnings first.
    Run {
        settings: Box<Settings>,
        /// Warnings, for instance of flags without effect.
        warnings: Vec<Warning>,
    },
    /// Print this text and exit with code 0.
    Print(String),
}

/// Parses the arguments behind the program's name. It reads nothing but what it is given.
pub fn parse(args: &[String], env: &[(String, String)], read: ReadFile<'_>) -> Result<Parsed, FlagError> {
    let env: HashMap<String, String> = env.iter().cloned().collect();
    match flags::read(args, &env, read)? {
        Given::Print(text) => Ok(Parsed::Print(text)),
        Given::Values(values, mut warnings) => {
            let settings = Settings::from_values(&values, &surroundings(&env, read), &mut warnings)?;
            Ok(Parsed::Run { settings: Box::new(settings), warnings })
        }
    }
}

/// Collects what the environment and the system know about the host of this master.
fn surroundings(env: &HashMap<String, String>, read: ReadFile<'_>) -> Surroundings {
    let variable = |name: &str| env.get(name).filter(|text| !text.is_empty()).cloned();
    let host_name = read(HOST_NAME).ok().map(|text| text.trim().to_owned());
    Surroundings { pod_ip: variable("POD_IP"), pod_name: variable("POD_NAME"), host_name }
}
