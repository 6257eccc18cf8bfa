//! `moonkeeper recover`: begins a new log when no master can stand for election. It shows what a choice keeps and loses,
//! asks, and acts in a term of its own.

mod act;
mod plan;
mod report;
mod survey;

use std::io::{BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{ArgGroup, Parser};

use super::etcd_options::{EtcdOptions, cluster_id};
use super::status::Output;
use crate::cluster::keys::Keys;
use crate::cluster::log_end::LogId;
use crate::cluster::recovered::log_id;
use crate::coordination::etcd::{Etcd, SettingsError};
use crate::coordination::types::Failure;
use crate::engine::types::SequenceId;
use crate::master::settings::ha::EndpointsError;
use crate::replication::formats::FormatRefusal;
use crate::replication::recovery::CopyError;
use crate::replication::snapshot::FileError;

use plan::{Choice, Plan};
use report::Report;
use survey::Survey;

/// Begins a new log for a cluster in which no master can lead, from what is left of the old one
///
/// Masters refuse to lead when the log in etcd is gone, was shortened, replaced or damaged, because going on would lose
/// acknowledged changes without a word. This command makes that decision: it shows what a choice keeps and what it loses,
/// asks, and then begins a new log that supersedes the old one. Masters that are running, or are started later, drop what
/// they knew of the old log and follow the new one. Nothing of the old log is deleted.
///
/// It refuses to act while a master leads. Without a choice it only shows what there is.
///
/// After a recovery clients can read what was kept as soon as a master leads, but no bytes are given to a writer for
/// --put_start_release_timeout_sec: a client may still be writing where a record that is lost has told it to.
#[derive(Debug, Parser)]
#[command(name = "moonkeeper recover", after_help = EXAMPLES)]
#[command(group = ArgGroup::new("choice").args(["from_snapshot", "truncate_at", "empty"]).multiple(true))]
struct Arguments {
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The cluster (else the variable MOONKEEPER_CLUSTER_ID, else mooncake_cluster)
    #[arg(long = "cluster_id", alias = "cluster-id", value_name = "NAME")]
    cluster_id: Option<String>,
    /// Continue from this snapshot: a file, or the last record of a snapshot in --snapshot_store. Masters start from
    /// their own copy of it: in the folder snapshots of their --data_dir, or in the shared storage
    #[arg(long = "from-snapshot", alias = "from_snapshot", value_name = "PATH|ID")]
    from_snapshot: Option<String>,
    /// Keep the log up to this record; together with --from-snapshot, the records between the two
    #[arg(long = "truncate-at", alias = "truncate_at", value_name = "ID", value_parser = clap::value_parser!(u64).range(1..))]
    truncate_at: Option<u64>,
    /// Keep nothing: clients offer their memory again, and every object is gone
    #[arg(long, conflicts_with_all = ["from_snapshot", "truncate_at"])]
    empty: bool,
    /// The storage that all masters share (their --snapshot_store), to find a snapshot by its last record
    #[arg(long = "snapshot_store", alias = "snapshot-store", value_name = "DIR")]
    snapshot_store: Option<PathBuf>,
    /// Also supersede this log, which a master names that is not running now; may be repeated
    #[arg(long, value_name = "LOG", value_parser = log_id)]
    supersede: Vec<LogId>,
    /// The masters' --put_start_release_timeout_sec: how long writers may go on with what lost records have told them
    #[arg(
        long = "put_start_release_timeout_sec",
        alias = "put-start-release-timeout-sec",
        value_name = "SECONDS",
        default_value_t = 600,
        value_parser = clap::value_parser!(u64).range(1..=86_400)
    )]
    release_timeout_sec: u64,
    /// Act without asking
    #[arg(long, requires = "choice")]
    yes: bool,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  moonkeeper recover --etcd_endpoints etcd:2379 --cluster_id demo
      shows the log, the members, their snapshots and what keeps them from leading
  moonkeeper recover --etcd_endpoints etcd:2379 --cluster_id demo --truncate-at 5120
      the log is damaged after record 5120, or etcd was restored from a backup that ends there
  moonkeeper recover --etcd_endpoints etcd:2379 --cluster_id demo --from-snapshot /data/snapshots/00000000000000004000.snapshot
      etcd was lost, or the log has lost its beginning
  moonkeeper recover --etcd_endpoints etcd:2379 --cluster_id demo --empty --yes
      nothing can be kept

docs/recovery.md says when to use which.";

/// Why nothing was recovered.
#[derive(Debug, thiserror::Error)]
enum RecoverError {
    #[error("the address of etcd is needed: --etcd_endpoints=HOST:2379")]
    NoEtcd,
    #[error(transparent)]
    Endpoints(#[from] EndpointsError),
    #[error("'{0}' is not a cluster id: 1 to 63 of a-z, 0-9, - and _, and not oplog")]
    ClusterId(String),
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("nothing was changed: {0}")]
    Etcd(#[from] Failure),
    #[error("nothing was changed: {}", led(.name, *.term))]
    Led { name: String, term: u64 },
    #[error(
        "no snapshot up to record {id} was found{}; {}",
        if *in_store { " in --snapshot_store" } else { " (a number is looked up in --snapshot_store, which is not given)" },
        holders_text(.holders)
    )]
    NoSuchSnapshot { id: u64, holders: String, in_store: bool },
    #[error(transparent)]
    Snapshot(#[from] FileError),
    #[error("--truncate-at={keep} is before the end of the snapshot, record {last}")]
    BeforeSnapshot { keep: u64, last: u64 },
    #[error("records up to {keep} cannot be kept, only up to {end}: {why}")]
    CannotReach { keep: u64, end: u64, why: String },
    #[error("nothing was changed: the log in etcd is not as it was when the choice was shown: {0}")]
    Changed(String),
    #[error("nothing was changed: {0}")]
    Copy(#[from] CopyError),
    #[error("nothing was changed: {0}")]
    Format(#[from] FormatRefusal),
    #[error("nothing was changed: the system's random source failed: {0}")]
    Random(String),
    #[error("nothing was changed: the recovery has lost its lease in etcd, or the log was changed meanwhile")]
    LostTerm,
    #[error(
        "it is not known whether the new log was begun ({0}): once etcd answers, `moonkeeper recover` without a choice \
         shows which log there is; recovering again is safe"
    )]
    Unanswered(Box<RecoverError>),
    #[error("nothing was changed: pass --yes to act, or run this command on a terminal to be asked")]
    NotConfirmed,
    #[error("nothing was changed")]
    Declined,
    #[error("{0}")]
    Output(#[from] std::io::Error),
}

impl RecoverError {
    /// Returns whether the command line was wrong.
    fn is_usage(&self) -> bool {
        matches!(self, Self::NoEtcd | Self::Endpoints(_) | Self::ClusterId(_) | Self::BeforeSnapshot { .. })
    }
}

fn led(name: &str, term: u64) -> String {
    if name == act::NAME {
        return "another recovery is under way, or one was interrupted less than 15 s ago".to_owned();
    }
    let name = if name.is_empty() { "a master" } else { name };
    format!(
        "{name} leads in term {term}. A cluster that has a primary needs no recovery; to recover it all the same, stop \
         its masters first"
    )
}

fn holders_text(holders: &str) -> String {
    if holders.is_empty() {
        "no live member holds one".to_owned()
    } else {
        format!("it is held by {holders}: name the path of a copy of that file")
    }
}

/// Shows what there is and what a choice means, and carries it out.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper recover", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let result = super::block_on(async { recover(&arguments).await });
    match result.unwrap_or_else(|why| Err(why.into())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("moonkeeper recover: {why}");
            if why.is_usage() { ExitCode::from(super::USAGE) } else { ExitCode::FAILURE }
        }
    }
}

async fn recover(arguments: &Arguments) -> Result<(), RecoverError> {
    let cluster = cluster_id(arguments.cluster_id.as_deref());
    if !Keys::is_cluster_id(&cluster) {
        return Err(RecoverError::ClusterId(cluster));
    }
    let access = arguments.etcd.access()?.ok_or(RecoverError::NoEtcd)?;
    let etcd = Etcd::connect(access.settings())?;
    let survey = Survey::read(&etcd, &cluster).await?;
    let mut report = Report::of(&survey);
    let Some(plan) = plan(arguments, &etcd, &survey).await? else {
        report.print(arguments.output);
        return Ok(());
    };
    report.show_plan(&plan);
    // A choice can be looked at while a master leads, but not carried out.
    let led = survey
        .view
        .leader
        .as_ref()
        .map(|leader| RecoverError::Led { name: leader.value.name.clone(), term: leader.term.0 });
    let confirmed = match (led, arguments.output) {
        (Some(led), _) => Err(led),
        _ if arguments.yes => Ok(()),
        (None, Output::Json) => Err(RecoverError::NotConfirmed),
        (None, Output::Text) => {
            report.print(Output::Text);
            return finish(confirm(&cluster), &etcd, &survey, &plan, report, arguments.output, true).await;
        }
    };
    finish(confirmed, &etcd, &survey, &plan, report, arguments.output, false).await
}

/// Carries the plan out if that was confirmed, and prints the report unless it was `shown`.
async fn finish(
    confirmed: Result<(), RecoverError>,
    etcd: &Etcd,
    survey: &Survey,
    plan: &Plan,
    mut report: Report,
    output: Output,
    shown: bool,
) -> Result<(), RecoverError> {
    if !shown && output == Output::Text {
        report.print(output);
    }
    let result = match confirmed {
        Ok(()) => act::act(etcd, survey, plan).await.map(Some),
        Err(why) => Err(why),
    };
    if let Ok(Some(end)) = &result {
        report.done(end);
    }
    match output {
        Output::Json => report.print(output),
        Output::Text => super::print(&report.outcome()),
    }
    result.map(|_| ())
}

/// Returns what the choice on the command line means; `None` without one.
async fn plan(arguments: &Arguments, etcd: &Etcd, survey: &Survey) -> Result<Option<Plan>, RecoverError> {
    let Arguments { from_snapshot, truncate_at, empty, .. } = arguments;
    if from_snapshot.is_none() && truncate_at.is_none() && !empty {
        return Ok(None);
    }
    let store = arguments.snapshot_store.as_deref();
    let file = from_snapshot.as_deref().map(|named| survey.snapshot_file(named, store)).transpose()?;
    let choice = Choice { snapshot: file.as_deref(), last: truncate_at.map(SequenceId) };
    let timeout = Duration::from_secs(arguments.release_timeout_sec);
    Plan::make(etcd, survey, choice, &arguments.supersede, timeout).await.map(Some)
}

/// Asks whether to go on. A terminal is needed for that: an answer in a pipe was written before the question.
fn confirm(cluster: &str) -> Result<(), RecoverError> {
    let stdin = std::io::stdin();
    if !stdin.is_terminal() {
        return Err(RecoverError::NotConfirmed);
    }
    let mut out = std::io::stderr();
    write!(out, "To go on, type the name of the cluster ({cluster}): ")?;
    out.flush()?;
    let mut answer = String::new();
    stdin.lock().read_line(&mut answer)?;
    if answer.trim() == cluster { Ok(()) } else { Err(RecoverError::Declined) }
}
