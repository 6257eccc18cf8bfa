//! The texts of `--help` and its relatives: the few essential flags first, then how to write flags, then all of them.

use std::fmt::Write;

use super::Values;
use super::scan;
use super::table::{self, Effect, Flag, Group, Kind};
use super::value::Value;

/// The flags that most deployments set, in the order in which a new user meets them.
const ESSENTIAL: [&str; 12] = [
    "rpc_port",
    "rpc_address",
    "metrics_port",
    "enable_ha",
    "etcd_endpoints",
    "cluster_id",
    "default_kv_lease_ttl",
    "client_ttl",
    "eviction_high_watermark_ratio",
    "enable_http_metadata_server",
    "config_path",
    "log_format",
];

const INTRODUCTION: &str = "\
moonkeeper master: the master of a Mooncake Store. It knows which bytes of which client's memory hold which
object. Clients need no change: point them at HOST:50051 as at any mooncake_master.

Usage: moonkeeper master [--flag=value ...]

  moonkeeper master                                         clients on port 50051, metrics on port 9003
  moonkeeper master --rpc_port=50061 --metrics_port=9013    other ports
  moonkeeper master --enable_ha=true --etcd_endpoints=etcd:2379 --cluster_id=demo --advertise_address=10.0.0.7
                                                            one of several, of which one serves; start two or three
  moonkeeper master --config_path=/etc/moonkeeper/master.yaml
  MOONKEEPER_RPC_PORT=50061 moonkeeper master               settings from the environment
  mooncake_master --rpc_port=50051 ...                      an existing command line works as it is

";

const SPELLINGS: &str = "\
How to write a flag:
  --rpc_port=50051   -rpc_port=50051   --rpc_port 50051   --rpc-port=50051     all the same
  --enable_x   --enable_x=true   --noenable_x   --enable_x=false               true, t, yes, y, 1 and their opposites
  --default_kv_lease_ttl=10000   ...=500ms   ...=10s   ...=2m   ...=1h         durations; a bare number is milliseconds
  --flagfile=FILE                                                              one flag per line, # for comments
A value comes from the first of: the command line, the variable MOONKEEPER_<FLAG>, the file of --config_path
(YAML or JSON with flag names as keys), the default. The last of several on the command line counts.
";

/// Returns the text to print, if the command line asks for one. This comes before every other check, so that help is
/// shown even next to a flag that is wrong.
pub(super) fn wanted(args: &[String]) -> Option<String> {
    let flags = || args.iter().take_while(|arg| *arg != "--");
    let asked = |name: &str| flags().any(|arg| scan::asks_for(arg, name));
    if asked("version") {
        Some(version())
    } else if asked("helpfull") || asked("helppackage") {
        Some(full())
    } else if asked("help") || asked("helpshort") {
        Some(short())
    } else {
        None
    }
}

/// Returns the text to print, if any source of settings asks for one.
pub(super) fn wanted_by(values: &Values) -> Option<String> {
    let asked = |name| values.get(name) == Value::Bool(true);
    let matching = [values.text("helpon"), values.text("helpmatch")].concat();
    if asked("version") {
        Some(version())
    } else if asked("helpfull") || asked("helppackage") {
        Some(full())
    } else if asked("help") || asked("helpshort") {
        Some(short())
    } else if matching.is_empty() {
        None
    } else {
        Some(containing(&matching))
    }
}

fn version() -> String {
    format!("moonkeeper {} (for Mooncake clients 0.3.13)\n", env!("CARGO_PKG_VERSION"))
}

fn short() -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str("The flags that matter most:\n");
    for name in ESSENTIAL {
        if let Some(at) = table::position(name) {
            entry(&mut text, &table::all()[at]);
        }
    }
    text.push('\n');
    text.push_str(SPELLINGS);
    text.push_str("\n--helpfull lists all flags, --helpmatch=TEXT those that have to do with TEXT.\n");
    text
}

fn full() -> String {
    let mut text = INTRODUCTION.to_owned();
    text.push_str(SPELLINGS);
    for group in Group::ALL {
        let _ = write!(text, "\n{}\n", group.title());
        table::all().iter().filter(|flag| flag.group == group).for_each(|flag| entry(&mut text, flag));
    }
    text
}

fn containing(part: &str) -> String {
    let part = scan::normal(&part.to_ascii_lowercase());
    let has =
        |flag: &&Flag| flag.name.contains(&part) || flag.group.title().to_ascii_lowercase().contains(&part);
    let mut text = String::new();
    table::all().iter().filter(has).for_each(|flag| entry(&mut text, flag));
    if text.is_empty() {
        let _ = writeln!(text, "No flag has to do with '{part}'; --helpfull lists all of them.");
    }
    text
}

/// Writes the entry of one flag: its name, type and default, then its help on lines of its own.
fn entry(text: &mut String, flag: &Flag) {
    let default = if flag.kind == Kind::Text { format!("\"{}\"", flag.default) } else { flag.default.into() };
    let _ = writeln!(text, "  --{} ({}, default {default})", flag.name, flag.kind.name());
    let prefix = match flag.effect {
        Effect::Used => "",
        Effect::NoEffect(_) => "No effect: ",
        Effect::Refused(_) => "Refused: ",
    };
    let mut column = 0;
    for word in format!("{prefix}{}", flag.help).split_whitespace() {
        if column == 0 || column + 1 + word.len() > 104 {
            let lead = if column == 0 { "        " } else { "\n        " };
            text.push_str(lead);
            column = 8;
        } else {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text.push('\n');
}
