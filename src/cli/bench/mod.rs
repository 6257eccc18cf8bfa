//! `moonkeeper bench`: load for a master, Moonkeeper's or the reference, and a floor to compare both with.
//!
//! `load` keeps a number of calls outstanding on a number of connections and reports their cost; `memory` reports the
//! memory of objects, `eviction` what removing them costs the engine, `snapshot` what a snapshot costs it, `commits` the
//! time of an etcd transaction;
//! `floor` is the cheapest possible server on the same runtime; `stalls` reports how long other clients wait while one
//! requests something large, `silence` how long no master answers; `fill` puts objects for both. Each prints JSON, one
//! line per report. The programs in `benches/` drive them all.

mod calls;
mod clients;
mod commits;
mod eviction;
mod floor;
mod latency;
mod load;
mod memory;
mod probe;
mod process;
mod session;
mod silence;
mod snapshot;
mod stalls;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use calls::Scenario;

/// Why a benchmark could not be run.
#[derive(Debug, thiserror::Error)]
enum BenchError {
    /// The master could not be reached, or did not answer.
    #[error(transparent)]
    Client(#[from] crate::wire::client::ClientError),
    /// The master refused a call that has to succeed before anything can be measured.
    #[error("the master answered {code} to {call}")]
    Refused { call: &'static str, code: i32 },
    /// A connection broke, or a port could not be opened.
    #[error("{what}: {source}")]
    Io { what: &'static str, source: std::io::Error },
    /// The other end does not speak the protocol.
    #[error("the master does not speak the protocol of Mooncake clients: {0}")]
    Frame(#[from] crate::wire::frame::FrameError),
    /// There is no such process, or nothing can be read about it.
    #[error("cannot read the processor time and memory of process {0}")]
    Process(u32),
    /// Without etcd there is nothing to commit to.
    #[error("--etcd_endpoints is needed")]
    NoEtcd,
    /// The endpoints of etcd cannot be parsed.
    #[error(transparent)]
    Endpoints(#[from] crate::master::settings::ha::EndpointsError),
    /// The settings of etcd cannot be used.
    #[error(transparent)]
    Settings(#[from] crate::coordination::etcd::SettingsError),
    /// A call to etcd failed.
    #[error("etcd: {0}")]
    Etcd(#[from] crate::coordination::types::Failure),
    /// Some objects could not be put, so nothing can be measured with them.
    #[error("{0} objects could not be put")]
    NotFilled(u64),
    /// The HTTP port did not respond with 200.
    #[error("GET {path}: {reason}")]
    Http { path: &'static str, reason: String },
    /// No snapshot could be taken, or it could not be restored.
    #[error("{0}")]
    Snapshot(String),
    /// A call names more keys than there are.
    #[error("--keys is smaller than the number of keys in one call")]
    TooFewKeys,
}

/// Load for a master, and what it took
#[derive(Debug, Parser)]
#[command(name = "moonkeeper bench", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Calls a master as often as it answers
    Load(LoadArguments),
    /// Puts objects, removes them, and says what the master's memory did
    Memory(MemoryArguments),
    /// Evicts a thousand of a hundred thousand and of a million objects, without a network
    Eviction,
    /// Takes a snapshot while objects change, and restores it, without a network
    Snapshot(snapshot::SnapshotArguments),
    /// Commits transactions to etcd, one after the other, and says how long each takes
    Commits(CommitArguments),
    /// Puts objects into the segments of many clients, which stay alive until standard input ends
    Fill(clients::FillArguments),
    /// Says how long the calls of other clients wait while something large is done
    Stalls(stalls::StallArguments),
    /// Asks several masters all the time, until standard input ends, and says for how long none answered
    Silence(silence::SilenceArguments),
    /// Serves fixed replies: what framing and the runtime cost alone
    #[command(hide = true)]
    Floor {
        /// Where to listen
        #[arg(long, default_value = "127.0.0.1:0")]
        address: SocketAddr,
        /// Keys in a batch
        #[arg(long, default_value_t = 128)]
        batch: u32,
    },
}

#[derive(Debug, Clone, Copy, Args)]
struct Target {
    /// The master's RPC address
    #[arg(long, default_value = "127.0.0.1:50051")]
    address: SocketAddr,
    /// The master's process, to say what it used
    #[arg(long)]
    pid: Option<u32>,
    /// Connections
    #[arg(long, default_value_t = 8)]
    connections: u32,
    /// Operations outstanding on each connection
    #[arg(long, default_value_t = 8)]
    outstanding: u32,
    /// Keys in a batch
    #[arg(long, default_value_t = 128)]
    batch: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 4096)]
    value_length: u64,
    /// Gibibytes of the segment that is mounted for the objects
    #[arg(long, default_value_t = 64)]
    segment_gib: u64,
    /// Threads that make the load
    #[arg(long, default_value_t = 1)]
    threads: usize,
}

#[derive(Debug, Args)]
struct LoadArguments {
    #[command(flatten)]
    target: Target,
    /// What is called
    #[arg(long)]
    scenario: Scenario,
    /// Objects that there are to read
    #[arg(long, default_value_t = 20_000)]
    keys: u64,
    /// They are there already (`bench fill`) and stay
    #[arg(long)]
    filled: bool,
    /// Seconds that are measured
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// Seconds before that
    #[arg(long, default_value_t = 0.5)]
    warm_up: f64,
}

#[derive(Debug, Args)]
struct MemoryArguments {
    #[command(flatten)]
    target: Target,
    /// Objects to put
    #[arg(long, default_value_t = 200_000)]
    objects: u64,
    /// Seconds that the master has to give memory back
    #[arg(long, default_value_t = 15.0)]
    settle: f64,
}

#[derive(Debug, Args)]
struct CommitArguments {
    #[command(flatten)]
    etcd: super::etcd_options::EtcdOptions,
    /// Transactions
    #[arg(long, default_value_t = 500)]
    count: u32,
    /// Bytes of the larger value
    #[arg(long, default_value_t = 100)]
    bytes: usize,
}

/// Converts seconds from the command line; invalid numbers become 0.
fn seconds(number: f64) -> Duration {
    Duration::try_from_secs_f64(number).unwrap_or_default()
}

/// Waits until standard input ends, or cannot be read.
async fn end_of_input() {
    let (ended, end) = tokio::sync::oneshot::channel();
    // A thread that is never joined: its read cannot be interrupted.
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        // The receiver is gone if the time ran out first.
        let _ = ended.send(());
    });
    let _ = end.await;
}

/// Runs a benchmark; wrong usage ends with exit code 2.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let name = std::iter::once("moonkeeper bench");
    let arguments = match Arguments::try_parse_from(name.chain(args.iter().map(String::as_str))) {
        Ok(arguments) => arguments,
        Err(error) => {
            // A broken pipe is not an error.
            let _ = error.print();
            return ExitCode::from(if error.use_stderr() { 2 } else { 0 });
        }
    };
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = match &arguments.command {
        Command::Load(LoadArguments { target, .. }) | Command::Memory(MemoryArguments { target, .. }) => {
            target.threads
        }
        Command::Eviction
        | Command::Snapshot(_)
        | Command::Commits(_)
        | Command::Fill(_)
        | Command::Stalls(_)
        | Command::Silence(_) => 1,
        Command::Floor { .. } => cores.min(16),
    };
    let mut builder = match threads {
        0 | 1 => tokio::runtime::Builder::new_current_thread(),
        _ => tokio::runtime::Builder::new_multi_thread(),
    };
    let result = match builder.worker_threads(threads.max(1)).enable_all().build() {
        Ok(runtime) => runtime.block_on(run(arguments.command)),
        Err(source) => Err(BenchError::Io { what: "cannot start threads", source }),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("moonkeeper bench: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(command: Command) -> Result<(), BenchError> {
    let report = match command {
        Command::Load(arguments) => load::measure(&arguments).await?,
        Command::Memory(arguments) => memory::measure(&arguments).await?,
        Command::Eviction => eviction::measure()?,
        Command::Snapshot(arguments) => snapshot::measure(&arguments)?,
        Command::Commits(arguments) => commits::measure(&arguments).await?,
        Command::Fill(arguments) => return clients::run(&arguments).await,
        Command::Stalls(arguments) => return stalls::run(&arguments).await,
        Command::Silence(arguments) => silence::measure(&arguments).await?,
        Command::Floor { address, batch } => return floor::run(address, batch).await,
    };
    super::print(&format!("{report}\n"));
    Ok(())
}
