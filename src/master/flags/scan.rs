//! Turns a command line, and the flag files that it names, into a list of assignments, by gflags' rules:
//!
//! * one or two dashes, dashes equal to underscores inside a name, `--name=value`, `--name value`;
//! * a bool stands alone or with `=value` and never takes the next argument; `--noname` sets it to false;
//! * `--` ends the flags; arguments that are not flags are ignored;
//! * `--flagfile`, `--fromenv` and `--tryfromenv` act where they stand, and the last assignment wins.

use std::collections::HashMap;

use super::error::{FlagError, Origin, Warning};
use super::table::{self, Flag, Kind};
use super::value::Value;
use super::{ReadFile, suggest};

/// How deeply flag files may include each other.
const MAX_DEPTH: usize = 16;

/// One value given to one flag.
#[derive(Debug, Clone, PartialEq)]
pub struct Assignment {
    /// Position of the flag in [`table::all`].
    pub flag: usize,
    /// The value as it was written.
    pub text: String,
    pub value: Value,
    pub origin: Origin,
}

/// Result of a scan.
#[derive(Debug, Default)]
pub struct Scan {
    /// All assignments, in order.
    pub assignments: Vec<Assignment>,
    pub warnings: Vec<Warning>,
    /// Unknown flags of the command line and of `--fromenv`, which `--undefok` may still allow.
    unknown: Vec<(String, Origin)>,
    /// The names in `--undefok`.
    excused: Vec<String>,
}

/// Scans the arguments behind the program's name.
pub fn command_line(
    args: &[String],
    env: &HashMap<String, String>,
    read: ReadFile<'_>,
) -> Result<Scan, FlagError> {
    let mut scanner = Scanner { env, read, scan: Scan::default() };
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if arg == "--" {
            scanner.positional(args.as_slice());
            break;
        }
        let Some(body) = flag_body(arg) else {
            scanner.positional(std::slice::from_ref(arg));
            continue;
        };
        let written = Written::split(body);
        match written.resolve()? {
            None => scanner.scan.unknown.push((written.name, Origin::CommandLine)),
            Some((flag, Some(text))) => scanner.assign(flag, text, Origin::CommandLine, 0)?,
            Some((flag, None)) => {
                let flag_def = &table::all()[flag];
                let Some(text) = args.next() else {
                    return Err(FlagError::MissingValue { flag: flag_def.name, example: flag_def.default });
                };
                scanner.assign(flag, text.clone(), Origin::CommandLine, 0)?;
            }
        }
    }
    scanner.finish()
}

/// Returns the text behind the dashes, if this is a flag. A single dash is an ordinary argument.
fn flag_body(arg: &str) -> Option<&str> {
    let body = arg.strip_prefix('-')?;
    if body.is_empty() { None } else { Some(body.strip_prefix('-').unwrap_or(body)) }
}

/// Returns `true` if an argument turns on the bool flag `name`, in any spelling.
pub fn asks_for(arg: &str, name: &str) -> bool {
    flag_body(arg).is_some_and(|body| {
        let written = Written::split(body);
        written.name == name
            && !matches!(
                written.value.map(|text| Value::parse(Kind::Bool, &text)),
                Some(Ok(Value::Bool(false)))
            )
    })
}

/// A flag as it was written: its name with underscores and the text behind `=`.
struct Written {
    name: String,
    value: Option<String>,
}

impl Written {
    fn split(body: &str) -> Written {
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value.to_owned())),
            None => (body, None),
        };
        Written { name: normal(name), value }
    }

    /// Returns the flag and the text of its value; no text where the value is the next argument.
    fn resolve(&self) -> Result<Option<(usize, Option<String>)>, FlagError> {
        if let Some(flag) = table::position(&self.name) {
            let alone = table::all()[flag].kind == Kind::Bool && self.value.is_none();
            return Ok(Some((flag, if alone { Some("true".to_owned()) } else { self.value.clone() })));
        }
        // gflags ignores a value behind --noname, so this parser does, too.
        let negated = self.name.strip_prefix("no").and_then(table::position);
        match negated.map(|flag| (flag, &table::all()[flag])) {
            None => Ok(None),
            Some((flag, Flag { kind: Kind::Bool, .. })) => Ok(Some((flag, Some("false".to_owned())))),
            Some((_, other)) => Err(FlagError::Negated { flag: other.name, kind: other.kind.name() }),
        }
    }
}

/// Replaces dashes in a name by underscores. Dashes in front stay: `---port` is not `--port`.
pub fn normal(name: &str) -> String {
    if name.starts_with('-') { name.to_owned() } else { name.replace('-', "_") }
}

/// Returns the known name nearest to this one.
pub fn suggestion(name: &str) -> Option<&'static str> {
    suggest::nearest(name, table::all().iter().map(|flag| flag.name))
}

struct Scanner<'a> {
    env: &'a HashMap<String, String>,
    read: ReadFile<'a>,
    scan: Scan,
}

impl Scanner<'_> {
    /// Records one assignment, and carries out flags about flags (`--flagfile`, `--fromenv`, ...) at once.
    fn assign(&mut self, flag: usize, text: String, origin: Origin, depth: usize) -> Result<(), FlagError> {
        let Flag { name, kind, .. } = table::all()[flag];
        let value = Value::parse(kind, &text).map_err(|accepted| FlagError::BadValue {
            flag: name,
            value: text.clone(),
            accepted: accepted.to_owned(),
            origin: origin.clone(),
        })?;
        match name {
            "flagfile" => list(&text).try_for_each(|path| self.flag_file(path, depth + 1))?,
            "fromenv" => list(&text).try_for_each(|name| self.take_variable(name, true, depth))?,
            "tryfromenv" => list(&text).try_for_each(|name| self.take_variable(name, false, depth))?,
            "undefok" => self.scan.excused.extend(list(&text).map(normal)),
            _ => {}
        }
        self.scan.assignments.push(Assignment { flag, text, value, origin });
        Ok(())
    }

    fn take_variable(&mut self, name: &str, required: bool, depth: usize) -> Result<(), FlagError> {
        let name = normal(name);
        let origin = Origin::Environment(format!("FLAGS_{name}"));
        let Some(flag) = table::position(&name) else {
            self.scan.unknown.push((name, origin));
            return Ok(());
        };
        // These would include themselves without end.
        if matches!(table::all()[flag].name, "fromenv" | "tryfromenv") {
            return Ok(());
        }
        match self.env.get(&format!("FLAGS_{name}")) {
            // A file that includes itself through its variable counts towards the depth like one that does so directly.
            Some(text) => self.assign(flag, text.clone(), origin, depth + 1),
            None if required => Err(FlagError::MissingVariable { flag: name }),
            None => Ok(()),
        }
    }

    /// Reads one flag file: flags, comments, and lines of program names that the flags below them are for.
    fn flag_file(&mut self, path: &str, depth: usize) -> Result<(), FlagError> {
        if depth > MAX_DEPTH {
            return Err(FlagError::TooDeep { limit: MAX_DEPTH, path: path.to_owned() });
        }
        let text = (self.read)(path).map_err(|why| FlagError::Unreadable {
            flag: "flagfile",
            path: path.to_owned(),
            reason: why.to_string(),
        })?;
        let mut for_us = true;
        let mut in_names = false;
        for (number, line) in text.lines().enumerate() {
            let origin = Origin::FlagFile { path: path.to_owned(), line: number + 1 };
            let line = line.trim_start();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let Some(body) = flag_body(line) else {
                // The first line of program names starts a new section; lines right after it add to the list.
                for_us = (in_names && for_us) || line.split_whitespace().any(is_our_name);
                in_names = true;
                if !for_us {
                    self.warn(format!(
                        "{origin}: '{line}' does not start with a dash, so it names programs, and the flags \
                         below it are not for this one"
                    ));
                }
                continue;
            };
            in_names = false;
            if !for_us {
                continue;
            }
            let written = Written::split(body);
            match written.resolve()? {
                Some((flag, Some(value))) => self.assign(flag, value, origin, depth)?,
                // gflags ignores both in silence, because programs share such files; here the user gets a warning.
                Some((flag, None)) => self.warn(format!(
                    "{origin}: --{0} is ignored, because it has no value on its line; write --{0}=VALUE",
                    table::all()[flag].name
                )),
                None => self.warn(format!(
                    "{origin}: unknown flag --{} is ignored{}",
                    written.name,
                    match suggestion(written.name.split_whitespace().next().unwrap_or_default()) {
                        Some(name) => format!("; did you mean --{name}=VALUE?"),
                        None => String::new(),
                    }
                )),
            }
        }
        Ok(())
    }

    fn positional(&mut self, args: &[String]) {
        for arg in args {
            self.warn(format!(
                "argument '{arg}' is ignored: it is not a flag (a bool takes its value only as --flag=value)"
            ));
        }
    }

    fn warn(&mut self, text: String) {
        self.scan.warnings.push(Warning(text));
    }

    /// Returns an error for the first unknown flag that `--undefok`, wherever it is given, does not allow.
    fn finish(self) -> Result<Scan, FlagError> {
        let excused = |name: &str| {
            self.scan
                .excused
                .iter()
                .any(|excused| excused == name || name.strip_prefix("no") == Some(excused.as_str()))
        };
        match self.scan.unknown.iter().find(|(name, _)| !excused(name)) {
            Some((name, origin)) => Err(FlagError::Unknown {
                name: name.clone(),
                suggestion: suggestion(name),
                origin: origin.clone(),
            }),
            None => Ok(self.scan),
        }
    }
}

/// Returns whether a pattern in a flag file matches a name of this program.
fn is_our_name(pattern: &str) -> bool {
    ["mooncake_master", "moonkeeper"].iter().any(|name| matches(pattern.as_bytes(), name.as_bytes()))
}

/// Matches like a shell, with `*` and `?`, in time proportional to the pattern's length times the name's.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some(b'*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(&c) if c == b'?' || c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, eaten)) => {
                    star = Some((at, eaten + 1));
                    p = at + 1;
                    n = eaten + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

fn list(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').filter(|item| !item.is_empty())
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn program_names_match_like_a_shell() {
        for pattern in ["moonkeeper", "*", "moon*", "*keeper", "m?onkeeper", "m*k*r", "moonkeeper*"] {
            assert!(matches(pattern.as_bytes(), b"moonkeeper"), "{pattern}");
        }
        for pattern in ["", "moon", "?", "*x", "moonkeeper?", "m*k*x"] {
            assert!(!matches(pattern.as_bytes(), b"moonkeeper"), "{pattern}");
        }
    }
}
