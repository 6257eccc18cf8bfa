//! The command line of `moonkeeper master`: the reference's flags in all of gflags' spellings, the environment,
//! and configuration files.
//!
//! [`read`] is a pure function from what the user wrote to values: it reads nothing but what it is given, prints nothing
//! and never exits. `settings` makes typed settings of them. A value is taken from the first of: command line (flag files
//! and `--fromenv` included), environment variable `MOONKEEPER_<FLAG>`, the file given by `--config_path`, the default.

mod config_file;
mod error;
mod help;
mod interface;
mod scan;
mod suggest;
pub mod table;
pub mod value;

use std::collections::HashMap;
use std::io;

pub use error::{FlagError, Origin, Warning};
pub use interface::interface_address;

use scan::Assignment;
use table::{Effect, Group, Kind};
use value::Value;

/// Reads a whole text file; given to [`read`] so that it can be tested without files.
pub type ReadFile<'a> = &'a dyn Fn(&str) -> io::Result<String>;

/// Result of reading the command line.
#[derive(Debug)]
pub(super) enum Given {
    /// The values of all flags, and warnings, for instance of flags without effect.
    Values(Values, Vec<Warning>),
    /// Print this text and exit with code 0.
    Print(String),
}

/// Reads the arguments behind the program's name, with the environment and the files that they name.
pub(super) fn read(
    args: &[String],
    env: &HashMap<String, String>,
    read: ReadFile<'_>,
) -> Result<Given, FlagError> {
    if let Some(text) = help::wanted(args) {
        return Ok(Given::Print(text));
    }
    let scan = scan::command_line(args, env, read)?;
    let mut warnings = scan.warnings;
    let mut values = Values::default();
    for assignment in scan.assignments {
        // Later assignments replace earlier ones.
        values.0.insert(assignment.flag, assignment);
    }
    for assignment in environment(env, &mut warnings)? {
        values.0.entry(assignment.flag).or_insert(assignment);
    }
    // Help that a flag file or the environment requests.
    if let Some(text) = help::wanted_by(&values) {
        return Ok(Given::Print(text));
    }
    let config_path = values.text("config_path").to_owned();
    if !config_path.is_empty() {
        let text = read(&config_path).map_err(|why| FlagError::Unreadable {
            flag: "config_path",
            path: config_path.clone(),
            reason: why.to_string(),
        })?;
        let (assignments, more) = config_file::parse(&config_path, &text)?;
        warnings.extend(more);
        for assignment in assignments {
            values.0.entry(assignment.flag).or_insert(assignment);
        }
    }
    check_effects(&values, &mut warnings)?;
    check_reference_environment(env)?;
    Ok(Given::Values(values, warnings))
}

/// Reads the variables `MOONKEEPER_<FLAG>`; an empty one counts as not set.
fn environment(
    env: &HashMap<String, String>,
    warnings: &mut Vec<Warning>,
) -> Result<Vec<Assignment>, FlagError> {
    let mut assignments = Vec::new();
    let mut names: Vec<&String> = env.keys().filter(|name| name.starts_with("MOONKEEPER_")).collect();
    names.sort();
    for variable in names {
        let text = env[variable].clone();
        // Templates write an empty variable for "not set".
        if text.is_empty() || is_service_variable(variable, &text) {
            continue;
        }
        let name = variable["MOONKEEPER_".len()..].to_ascii_lowercase();
        let Some(flag) = table::position(&name) else {
            if let Some(near) = scan::suggestion(&name) {
                warnings.push(Warning(format!(
                    "the environment variable {variable} is ignored: there is no flag --{name}; did you mean \
                     MOONKEEPER_{}?",
                    near.to_ascii_uppercase()
                )));
            }
            continue;
        };
        let definition = &table::all()[flag];
        let origin = Origin::Environment(variable.clone());
        let value = Value::parse(definition.kind, &text).map_err(|accepted| FlagError::BadValue {
            flag: definition.name,
            value: text.clone(),
            accepted: accepted.to_owned(),
            origin: origin.clone(),
        })?;
        assignments.push(Assignment { flag, text, value, origin });
    }
    Ok(assignments)
}

/// Returns whether Kubernetes has set this variable. A Service called moonkeeper or moonkeeper-x gives every pod of its
/// namespace variables such as MOONKEEPER_PORT=tcp://10.0.0.1:50051, which are not settings.
fn is_service_variable(variable: &str, text: &str) -> bool {
    variable.contains("_SERVICE_HOST")
        || variable.contains("_SERVICE_PORT")
        || variable.contains("_PORT_")
        || variable.ends_with("_PORT") && text.contains("://")
}

/// Warns of flags that are set without effect, and rejects those that this version must not pretend to obey.
fn check_effects(values: &Values, warnings: &mut Vec<Warning>) -> Result<(), FlagError> {
    let ha = values.get("enable_ha") == Value::Bool(true);
    let mut set: Vec<&Assignment> = values.0.values().collect();
    set.sort_by_key(|assignment| assignment.flag);
    for assignment in set {
        let flag = &table::all()[assignment.flag];
        let is_default = Value::parse(flag.kind, flag.default).as_ref() == Ok(&assignment.value);
        match flag.effect {
            Effect::Used if flag.name == "enable_oplog" => match (ha, assignment.value == Value::Bool(true)) {
                (true, false) => warnings.push(Warning(format!(
                    "--enable_oplog=false in {} has no effect: with --enable_ha every change is written to the log",
                    assignment.origin
                ))),
                (false, true) => {
                    return Err(FlagError::Refused {
                        flag: flag.name,
                        value: assignment.text.clone(),
                        reason: "without --enable_ha=true there is no log and nothing to recover from",
                    });
                }
                _ => {}
            },
            Effect::Used
                if matches!(flag.name, "enable_snapshot" | "enable_snapshot_restore")
                    && !ha
                    && assignment.value == Value::Bool(true) =>
            {
                return Err(FlagError::Refused {
                    flag: flag.name,
                    value: assignment.text.clone(),
                    reason: "without --enable_ha=true and --data_dir a restart begins with an empty index",
                });
            }
            Effect::Used if flag.group == Group::Replication && !ha && !is_default => {
                warnings.push(Warning(format!(
                    "--{}={} in {} has no effect without --enable_ha=true",
                    flag.name, assignment.text, assignment.origin
                )));
            }
            Effect::Used => {}
            Effect::Refused(_) if is_default => {}
            // A boolean feature that is explicitly left off needs no warning.
            Effect::NoEffect(_) if is_default && flag.kind == Kind::Bool => {}
            Effect::NoEffect(reason) => warnings.push(Warning(format!(
                "--{}={} in {} has no effect: {reason}",
                flag.name, assignment.text, assignment.origin
            ))),
            Effect::Refused(reason) => {
                return Err(FlagError::Refused { flag: flag.name, value: assignment.text.clone(), reason });
            }
        }
    }
    Ok(())
}

/// Rejects variables that make the reference behave in a way that this master does not support.
fn check_reference_environment(env: &HashMap<String, String>) -> Result<(), FlagError> {
    match env.get("MC_RPC_PROTOCOL") {
        Some(value) if value.eq_ignore_ascii_case("rdma") => Err(FlagError::RefusedEnvironment {
            variable: "MC_RPC_PROTOCOL",
            value: value.clone(),
            reason: "this master speaks TCP to its clients, and clients with that setting could not connect",
        }),
        _ => Ok(()),
    }
}

/// The winning assignment of each flag that was set.
#[derive(Debug, Default)]
pub(super) struct Values(HashMap<usize, Assignment>);

impl Values {
    /// Returns the text of this flag's value, set or default.
    pub(super) fn text(&self, name: &str) -> &str {
        let Some(flag) = table::position(name) else { return "" };
        self.0.get(&flag).map_or(table::all()[flag].default, |assignment| &assignment.text)
    }

    /// Returns whether any source of settings names this flag.
    pub(super) fn is_set(&self, name: &str) -> bool {
        table::position(name).is_some_and(|flag| self.0.contains_key(&flag))
    }

    /// Returns the value of this flag, set or default.
    pub(super) fn get(&self, name: &str) -> Value {
        let Some(flag) = table::position(name) else { return Value::Text(String::new()) };
        let definition = &table::all()[flag];
        match self.0.get(&flag) {
            Some(assignment) => assignment.value.clone(),
            // The defaults of the table parse; a test checks that.
            None => Value::parse(definition.kind, definition.default)
                .unwrap_or_else(|_| Value::Text(definition.default.to_owned())),
        }
    }

    /// Returns the error for a value of the right type that is out of range.
    pub(super) fn out_of_range(&self, name: &'static str, accepted: &str) -> FlagError {
        let origin = table::position(name).and_then(|flag| self.0.get(&flag));
        FlagError::BadValue {
            flag: name,
            value: self.text(name).to_owned(),
            accepted: accepted.to_owned(),
            origin: origin.map_or(Origin::CommandLine, |assignment| assignment.origin.clone()),
        }
    }
}
