//! Entry point: dispatches to a command, nothing else.

use std::process::ExitCode;

use moonkeeper::cli;

/// Returns memory to the system after a mass removal, and keeps millions of small objects without much overhead.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Settings of the allocator, which reads them from a symbol of this name: a background thread returns memory after a
/// second.
#[allow(
    unsafe_code,
    reason = "the allocator reads its settings from a symbol of this name; nothing else defines it"
)]
#[unsafe(export_name = "_rjem_malloc_conf")]
pub static MALLOC_CONF: &[u8] = b"background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

const HELP: &str = "\
moonkeeper: a highly available master for Mooncake Store

Usage: moonkeeper COMMAND [OPTIONS]

Commands:
  up          three masters on this machine, to try it out
  operator    create and manage masters on Kubernetes
  master      serve Mooncake clients; takes the flags of mooncake_master
  status      who leads a cluster, who follows and how closely, what is wrong
  switchover  let another master lead
  snapshot    take, list and verify snapshots
  verify      compare the states of all masters, and name the first object that differs
  oplog       look into the log of a cluster
  recover     begin a new log when no master can lead: from a snapshot, truncated, or empty
  companion   turn clients away from the port of a master that died; masters start it themselves
  crd         print the definition of MasterCluster for Kubernetes
  bench       put load on a master and measure what it costs
  help        print this text

Examples:
  moonkeeper up                                       three masters; kill one and watch
  moonkeeper master                                   serve on port 50051, metrics on 9003
  moonkeeper master --rpc_port=50061 --eviction_high_watermark_ratio=0.95
  moonkeeper master --help                            the flags that matter, with examples
  moonkeeper master --helpfull                        all flags

Called as mooncake_master, it takes the flags of mooncake_master. Called as kubectl-moonkeeper, it is a plugin of kubectl.
";

fn main() -> ExitCode {
    let mut args: Vec<String> = std::env::args_os().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let name = if args.is_empty() { String::new() } else { args.remove(0) };
    match name.rsplit('/').next() {
        Some("mooncake_master") => return cli::master::main(&args),
        Some("kubectl-moonkeeper") => return cli::kubectl::main(&args),
        _ => {}
    }
    match args.first().map(String::as_str) {
        Some("companion") => cli::companion::main(&args[1..]),
        Some("crd") => cli::crd::main(&args[1..]),
        Some("bench") => cli::bench::main(&args[1..]),
        Some("master") => cli::master::main(&args[1..]),
        Some("operator") => cli::operator::main(&args[1..]),
        Some("up") => cli::up::main(&args[1..]),
        Some("status") => cli::status::main(&args[1..]),
        Some("switchover") => cli::switchover::main(&args[1..]),
        Some("snapshot") => cli::snapshot::main(&args[1..]),
        Some("verify") => cli::verify::main(&args[1..]),
        Some("oplog") => cli::oplog::main(&args[1..]),
        Some("recover") => cli::recover::main(&args[1..]),
        Some("help" | "--help" | "-h") => {
            cli::print(HELP);
            ExitCode::SUCCESS
        }
        Some("--version" | "-V" | "version") => {
            cli::print(concat!("moonkeeper ", env!("CARGO_PKG_VERSION"), "\n"));
            ExitCode::SUCCESS
        }
        other => {
            match other {
                Some(other) => eprintln!("moonkeeper: there is no command '{other}'\n\n{HELP}"),
                None => eprint!("{HELP}"),
            }
            ExitCode::from(2)
        }
    }
}
