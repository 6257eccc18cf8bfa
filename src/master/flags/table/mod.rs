//! Every flag that `moonkeeper master` knows: name, type, default, what it does here.
//!
//! One static table is the single source for the parser, the warnings, `--help` and the drift test against
//! `docs/flags.md`. Names, types and defaults are those of the reference master 0.3.13.post1, so that a deployment can
//! keep its command line; the help texts describe what the flag does *here*.

mod ha;
mod logging;
mod objects;
mod ours;
mod serving;
mod snapshots;
mod unsupported;

use std::sync::LazyLock;

/// The type of a flag's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true`/`false` and gflags' abbreviations; the only type that may stand without a value.
    Bool,
    Int32,
    Uint32,
    Int64,
    Uint64,
    Double,
    Text,
    /// A duration: plain milliseconds, or a whole number with `ms`, `s`, `m` or `h`.
    Duration,
}

impl Kind {
    /// Returns the name that `--helpfull` shows for this type.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "bool",
            Kind::Int32 => "int32",
            Kind::Uint32 => "uint32",
            Kind::Int64 => "int64",
            Kind::Uint64 => "uint64",
            Kind::Double => "double",
            Kind::Text => "string",
            Kind::Duration => "duration",
        }
    }
}

/// What setting a flag does in this version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    Used,
    /// The flag is accepted and changes nothing, for this reason; setting it gives a warning.
    NoEffect(&'static str),
    /// Any value but the default is an error, for this reason: accepting it without effect would let a user believe
    /// that data is safe, kept or separated when it is not.
    Refused(&'static str),
}

/// The heading under which `--help` lists a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Addresses, ports and threads.
    Serving,
    /// Leases, pins, eviction, allocation and time-outs of objects and clients.
    Objects,
    /// Several masters, of which one serves.
    Replication,
    Tasks,
    /// The optional metadata server for transfer engines.
    MetadataServer,
    /// Logs and metric reports.
    Logging,
    /// Where settings come from, and help.
    Settings,
    /// Flags that are known for the sake of existing command lines, but not supported.
    Unsupported,
}

impl Group {
    /// All groups, in the order of the help text.
    pub const ALL: [Group; 8] = [
        Group::Serving,
        Group::Objects,
        Group::Replication,
        Group::Tasks,
        Group::MetadataServer,
        Group::Logging,
        Group::Settings,
        Group::Unsupported,
    ];

    /// Returns the heading in the help text.
    pub fn title(self) -> &'static str {
        match self {
            Group::Serving => "Serving",
            Group::Objects => "Objects and clients",
            Group::Replication => "Replication",
            Group::Tasks => "Copy and move tasks",
            Group::MetadataServer => "Metadata server",
            Group::Logging => "Logs and reports",
            Group::Settings => "Settings and help",
            Group::Unsupported => "Known, without effect or refused",
        }
    }
}

/// One flag that this program knows.
#[derive(Debug, Clone, Copy)]
pub struct Flag {
    /// The name, with underscores and without leading dashes.
    pub name: &'static str,
    /// The type of its value.
    pub kind: Kind,
    /// The default, as a user would write it.
    pub default: &'static str,
    /// The heading it is listed under.
    pub group: Group,
    /// What setting it does here.
    pub effect: Effect,
    /// One or two sentences for `--help`.
    pub help: &'static str,
}

/// Makes a flag that is obeyed.
const fn used(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    group: Group,
    help: &'static str,
) -> Flag {
    Flag { name, kind, default, group, effect: Effect::Used, help }
}

/// Makes a flag that is accepted and changes nothing.
const fn inert(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Flag {
    Flag { name, kind, default, group: Group::Unsupported, effect: Effect::NoEffect(reason), help: reason }
}

/// Makes a flag of which only the default is accepted.
const fn refused(name: &'static str, kind: Kind, default: &'static str, reason: &'static str) -> Flag {
    Flag { name, kind, default, group: Group::Unsupported, effect: Effect::Refused(reason), help: reason }
}

static ALL: LazyLock<Vec<Flag>> = LazyLock::new(|| {
    let mut flags: Vec<Flag> = [
        serving::FLAGS,
        objects::FLAGS,
        ha::FLAGS,
        snapshots::FLAGS,
        unsupported::FLAGS,
        logging::FLAGS,
        ours::FLAGS,
    ]
    .concat();
    flags.sort_by_key(|flag| flag.name);
    flags
});

/// Returns all known flags, ordered by name.
pub fn all() -> &'static [Flag] {
    &ALL
}

/// Returns the position in [`all`] of the flag with this name (underscores), if there is one.
pub fn position(name: &str) -> Option<usize> {
    ALL.binary_search_by_key(&name, |flag| flag.name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::master::flags::value::Value;

    #[test]
    fn names_are_unique_and_every_default_parses() {
        for pair in all().windows(2) {
            assert!(pair[0].name < pair[1].name, "{} is listed twice", pair[1].name);
        }
        for (at, flag) in all().iter().enumerate() {
            assert_eq!(position(flag.name), Some(at));
            Value::parse(flag.kind, flag.default).unwrap_or_else(|why| panic!("{}: {why}", flag.name));
            assert!(!flag.help.is_empty(), "{}", flag.name);
        }
    }
}
