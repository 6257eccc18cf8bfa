//! What can be wrong with the settings, in words that name the flag, the value and the way out.

use std::fmt;

use thiserror::Error;

/// Where a value was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// On the command line.
    CommandLine,
    /// In a file given by `--flagfile`.
    FlagFile {
        /// The file as it was named.
        path: String,
        /// Counted from 1.
        line: usize,
    },
    /// In an environment variable.
    Environment(String),
    /// In the file given by `--config_path`.
    ConfigFile(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Origin::CommandLine => f.write_str("the command line"),
            Origin::FlagFile { path, line } => write!(f, "{path}:{line}"),
            Origin::Environment(name) => write!(f, "the environment variable {name}"),
            Origin::ConfigFile(path) => f.write_str(path),
        }
    }
}

/// Why the settings cannot be used. The process should print it and exit with code 1, as gflags does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FlagError {
    /// No flag has this name.
    #[error("unknown flag --{name} in {origin}{}", did_you_mean(.suggestion))]
    Unknown {
        /// The name as it was written, without dashes in front.
        name: String,
        /// The known name nearest to it.
        suggestion: Option<&'static str>,
        /// Where it stands.
        origin: Origin,
    },
    /// The flag needs a value and has none.
    #[error("--{flag} needs a value, as in --{flag}={example}")]
    MissingValue {
        /// The flag.
        flag: &'static str,
        /// Its default.
        example: &'static str,
    },
    /// The form `--noflag` for a flag that is not a boolean.
    #[error("--no{flag} is only possible for a bool, and --{flag} is a {kind}")]
    Negated {
        /// The flag.
        flag: &'static str,
        /// The name of its type.
        kind: &'static str,
    },
    /// The value has the wrong type or is out of range.
    #[error("bad value '{value}' for --{flag} in {origin}: {accepted}")]
    BadValue {
        /// The flag.
        flag: &'static str,
        /// The value as it was written.
        value: String,
        /// What would be accepted.
        accepted: String,
        /// Where it stands.
        origin: Origin,
    },
    /// Two values that exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// The flag asks for something that this version must not pretend to do.
    #[error("--{flag}={value} is refused: {reason}")]
    Refused {
        /// The flag.
        flag: &'static str,
        /// The value as it was written.
        value: String,
        /// Why.
        reason: &'static str,
    },
    /// The environment asks for something that this version must not pretend to do.
    #[error("the environment variable {variable}={value} is refused: {reason}")]
    RefusedEnvironment {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// Why.
        reason: &'static str,
    },
    /// `--fromenv` names a variable that is not set.
    #[error("--fromenv={flag} wants the environment variable FLAGS_{flag}, which is not set")]
    MissingVariable {
        /// The flag.
        flag: String,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}, given by --{flag}: {reason}")]
    Unreadable {
        /// `flagfile` or `config_path`.
        flag: &'static str,
        /// The file.
        path: String,
        /// What the system said.
        reason: String,
    },
    /// Flag files that include each other too deeply, most likely in a circle.
    #[error("flag files include each other more than {limit} deep; the last one is {path}")]
    TooDeep {
        /// The limit.
        limit: usize,
        /// The file that was one too many.
        path: String,
    },
    /// A configuration file that is not a flat mapping.
    #[error("{path} is not a YAML or JSON mapping of flag names to plain values: {reason}")]
    BadConfig {
        /// The file.
        path: String,
        /// What the parser said.
        reason: String,
    },
}

fn did_you_mean(suggestion: &Option<&'static str>) -> String {
    match suggestion {
        Some(name) => format!("; did you mean --{name}?"),
        None => "; --helpfull lists all flags".to_owned(),
    }
}

/// Something worth a line in the log, but no reason to stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning(pub String);

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
