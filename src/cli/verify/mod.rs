//! `moonkeeper verify`: compares the states of all masters at one sequence id, and names the first item that differs.
//!
//! All masters compute digests of what is in their memory right after the same `Digest` record. Where they differ, the
//! range of keys that does is narrowed down, each time at a later record, until it has so few items that they are listed
//! one by one.

mod compare;
mod progress;
mod report;
mod round;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::time::Instant;

use super::admin::{AdminCallError, AdminOptions};
use super::etcd_options::EtcdOptions;
use super::status::{GatherError, Output, Source, gather, source};
use crate::cluster::digests::ItemRange;
use compare::{Finding, compare};
use report::Report;
use round::{Asker, Target};

/// Most steps of the search: a position has 64 bits, and each step settles 8 of them.
const MAX_STEPS: usize = 8;

/// Compares the states of all masters at one record, and names the first item that differs
#[derive(Debug, Parser)]
#[command(name = "moonkeeper verify", after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The cluster (else the variable MOONKEEPER_CLUSTER_ID, else mooncake_cluster)
    #[arg(long = "cluster_id", alias = "cluster-id", value_name = "NAME")]
    cluster_id: Option<String>,
    /// HTTP addresses (--metrics_port) of masters, separated by commas, to find the members instead of etcd
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    http: Vec<String>,
    #[command(flatten)]
    access: AdminOptions,
    /// Seconds after which the command gives up
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = clap::value_parser!(u64).range(5..=3600))]
    timeout: u64,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Every master reads what is in its memory, so the command takes some seconds, and a minute with ten million objects. The
masters go on serving. It needs the admin API (--admin_port) of every member, whose addresses are in etcd; members that
could not be asked are named.

Exit code: 0 if all masters have the same state, 1 if they differ or one could not be asked, 2 for a wrong command line.

Examples:
  moonkeeper verify --admin_token_file token           finds the members through the master on this host, 127.0.0.1:9003
  moonkeeper verify --etcd_endpoints etcd:2379 --cluster_id demo --admin_token_file token
  moonkeeper verify --http 10.0.0.1:9003 --admin_cacert ca.pem --admin_token_file token -o json";

/// Why nothing was compared.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error(transparent)]
    Gather(#[from] GatherError),
    #[error(transparent)]
    Token(#[from] AdminCallError),
    #[error("cluster {0} has no members")]
    NoMembers(String),
}

/// Compares the masters, and prints what was found.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper verify", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let source = match source(&arguments.etcd, arguments.cluster_id.as_deref(), &arguments.http) {
        Ok(source) => source,
        Err(why) => {
            eprintln!("moonkeeper verify: {why}");
            return ExitCode::from(super::USAGE);
        }
    };
    let report = match super::block_on(verify(&arguments, &source)) {
        Ok(Ok(report)) => report,
        Ok(Err(why)) => {
            eprintln!("moonkeeper verify: {why}");
            return ExitCode::FAILURE;
        }
        Err(why) => {
            eprintln!("moonkeeper verify: {why}");
            return ExitCode::FAILURE;
        }
    };
    match arguments.output {
        Output::Text => super::print(&report::text(&report)),
        Output::Json => super::print_json(&report),
    }
    if report.is_good() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

async fn verify(arguments: &Arguments, source: &Source) -> Result<Report, VerifyError> {
    let deadline = Instant::now() + Duration::from_secs(arguments.timeout);
    let token = arguments.access.token()?;
    let overview = gather(source).await?;
    let targets: Vec<Target> = overview.members.iter().map(Target::new).collect();
    if targets.is_empty() {
        return Err(VerifyError::NoMembers(overview.cluster_id));
    }
    let mut asker = Asker::new(arguments.access.clone(), token, deadline);
    let first = asker.ask(&targets, None).await;
    let mut report = Report::new(overview.cluster_id, &targets, &first);
    let Some(kind) = report.first_difference().map(str::to_owned) else { return Ok(report) };
    let targets: Vec<Target> =
        targets.into_iter().filter(|target| first.digests.contains_key(&target.name)).collect();
    let (mut range, mut answers): (Option<ItemRange>, _) = (None, first);
    for _ in 0..MAX_STEPS {
        if !answers.is_comparable() {
            report.search_failed(range.as_ref(), &answers);
            break;
        }
        let views = answers.views(&kind);
        match compare(&kind, range.as_ref(), &views) {
            Finding::Narrower(narrower) => {
                answers = asker.ask(&targets, Some(narrower.clone())).await;
                range = Some(narrower);
            }
            found => {
                report.found(range.as_ref(), found, &answers);
                break;
            }
        }
    }
    Ok(report)
}
