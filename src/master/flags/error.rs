//! Errors in the settings. Their texts name the flag, the value and how to correct it.

use std::fmt;

use thiserror::Error;

/// Where a value was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    CommandLine,
    /// In a file given by `--flagfile`.
    FlagFile {
        /// The file as it was named.
        path: String,
        /// Number of the line, counted from 1.
        line: usize,
    },
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

/// Why the settings cannot be used. The process should print this and exit with code 1, as gflags does.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum FlagError {
    /// No flag has this name.
    #[error("unknown flag --{name} in {origin}{}", did_you_mean(.suggestion))]
    Unknown {
        /// The name as it was written, without dashes in front.
        name: String,
        /// The known name nearest to it.
        suggestion: Option<&'static str>,
        origin: Origin,
    },
    /// The flag needs a value and has none.
    #[error("--{flag} needs a value, as in --{flag}={example}")]
    MissingValue { flag: &'static str, example: &'static str },
    /// The form `--noflag` for a flag that is not a boolean.
    #[error("--no{flag} is only possible for a bool, and --{flag} is a {kind}")]
    Negated {
        flag: &'static str,
        /// The name of its type.
        kind: &'static str,
    },
    /// The value has the wrong type or is out of range.
    #[error("bad value '{value}' for --{flag} in {origin}: {accepted}")]
    BadValue {
        flag: &'static str,
        /// The value as it was written.
        value: String,
        accepted: String,
        origin: Origin,
    },
    /// Two values that exclude each other.
    #[error("{0}")]
    Conflict(String),
    /// The flag asks for something that this version must not pretend to do.
    #[error("--{flag}={value} is refused: {reason}")]
    Refused {
        flag: &'static str,
        /// The value as it was written.
        value: String,
        reason: &'static str,
    },
    /// The environment asks for something that this version must not pretend to do.
    #[error("the environment variable {variable}={value} is refused: {reason}")]
    RefusedEnvironment { variable: &'static str, value: String, reason: &'static str },
    /// `--fromenv` names a variable that is not set.
    #[error("--fromenv={flag} needs the environment variable FLAGS_{flag}, which is not set")]
    MissingVariable { flag: String },
    /// A file that cannot be read.
    #[error("cannot read {path}, given by --{flag}: {reason}")]
    Unreadable {
        /// `flagfile` or `config_path`.
        flag: &'static str,
        path: String,
        /// Error of the operating system.
        reason: String,
    },
    /// Flag files that include each other too deeply, most likely in a circle.
    #[error("flag files include each other more than {limit} deep; the last one is {path}")]
    TooDeep {
        limit: usize,
        /// The file that was one too many.
        path: String,
    },
    /// A configuration file that is not a flat mapping.
    #[error("{path} is not a YAML or JSON mapping of flag names to plain values: {reason}")]
    BadConfig {
        path: String,
        /// Error of the parser.
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
