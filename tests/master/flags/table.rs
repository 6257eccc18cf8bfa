//! The table of flags: the same names, types and defaults as the reference, and the same as in docs/flags.md.

use std::collections::BTreeMap;
use std::fmt::Write;

use moonkeeper::master::flags::table::{self, Effect, Flag, Group, Kind};
use moonkeeper::master::flags::value::Value;

#[test]
fn has_every_flag_of_the_reference_with_its_type_and_default() {
    let known: BTreeMap<&str, &Flag> = table::all().iter().map(|flag| (flag.name, flag)).collect();
    let mut count = 0;
    for line in include_str!("reference-flags.tsv").lines().filter(|line| !line.starts_with('#')) {
        let [name, kind, default] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let flag = known.get(name).unwrap_or_else(|| panic!("{name} is missing"));
        // The reference has its durations as strings that it reads itself.
        let ours = if flag.kind == Kind::Duration { "string" } else { flag.kind.name() };
        assert_eq!(ours, kind, "type of {name}");
        assert_eq!(
            Value::parse(flag.kind, flag.default).unwrap(),
            Value::parse(flag.kind, default).unwrap(),
            "default of {name}"
        );
        count += 1;
    }
    assert_eq!(count, 97);
}

#[test]
fn is_the_table_of_the_documentation() {
    let mut expected = String::new();
    for group in Group::ALL {
        let _ = write!(expected, "### {}\n\n| flag | type | default | |\n|---|---|---|---|\n", group.title());
        for flag in table::all().iter().filter(|flag| flag.group == group) {
            let effect = match flag.effect {
                Effect::Used => "",
                Effect::NoEffect(_) => "No effect: ",
                Effect::Refused(_) => "**Refused** unless default: ",
            };
            let default = if flag.default.is_empty() { String::new() } else { format!("`{}`", flag.default) };
            let _ = writeln!(
                expected,
                "| `{}` | {} | {default} | {effect}{} |",
                flag.name,
                flag.kind.name(),
                flag.help
            );
        }
        expected.push('\n');
    }
    let docs = include_str!("../../../docs/flags.md");
    assert!(docs.contains(expected.trim_end()), "docs/flags.md should have these tables:\n\n{expected}");
}
