//! `moonkeeper status`: one screen about a cluster: the primary, the standbys and their lag, the last failover,
//! problems.
//!
//! Members are found through etcd, or through masters whose HTTP address is given; then each is asked for its status.
//! For a member that does not answer, what it wrote to etcd is shown.

mod gather;
mod judge;
mod render;

use std::process::ExitCode;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use super::etcd_options::{EtcdOptions, cluster_id};
use crate::cluster::etcd_health::EtcdHealth;
use crate::cluster::keys::Keys;
use crate::cluster::promotion::PromotionReport;
use crate::cluster::status::{Member, Status};

pub(in crate::cli) use gather::{GatherError, Source, gather, read_view};
pub(in crate::cli) use render::since;

/// How it is printed
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people
    #[default]
    Text,
    /// For programs
    Json,
}

/// Shows who leads a cluster, who follows and how closely, and what is wrong
#[derive(Debug, Parser)]
#[command(name = "moonkeeper status", after_help = EXAMPLES)]
struct Arguments {
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The cluster (else the variable MOONKEEPER_CLUSTER_ID, else mooncake_cluster)
    #[arg(long = "cluster_id", alias = "cluster-id", value_name = "NAME")]
    cluster_id: Option<String>,
    /// HTTP addresses (--metrics_port) of masters, separated by commas, to be asked instead of etcd
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    http: Vec<String>,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  moonkeeper status                                    asks the master on this host, 127.0.0.1:9003
  moonkeeper status --http 10.0.0.1:9003,10.0.0.2:9003
  moonkeeper status --etcd_endpoints etcd:2379 --cluster_id demo -o json";

/// A cluster as this command sees it.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Overview {
    pub(super) cluster_id: String,
    pub(super) leader: Option<String>,
    /// Address to which Mooncake clients are sent.
    pub(super) client_address: Option<String>,
    pub(super) term: u64,
    pub(super) members: Vec<Seen>,
    pub(super) last_failover: Option<PromotionReport>,
    /// etcd's size, quota and alarms, as the primary knows them, or without one another master.
    pub(super) etcd: Option<EtcdHealth>,
    /// Problems in words, the worst first.
    pub(super) problems: Vec<String>,
}

/// A member: its key in etcd, and its answer.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Seen {
    #[serde(flatten)]
    pub(super) member: Member,
    pub(super) status: Option<Status>,
    /// Why there is no answer.
    pub(super) error: Option<String>,
}

/// Prints the state of a cluster, as text or as JSON.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper status", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let source = match source(&arguments.etcd, arguments.cluster_id.as_deref(), &arguments.http) {
        Ok(source) => source,
        Err(why) => {
            eprintln!("moonkeeper status: {why}");
            return ExitCode::from(super::USAGE);
        }
    };
    let overview = match super::block_on(gather(&source)) {
        Ok(Ok(overview)) => overview,
        Ok(Err(why)) => {
            eprintln!("moonkeeper status: {why}");
            return ExitCode::FAILURE;
        }
        Err(why) => {
            eprintln!("moonkeeper status: {why}");
            return ExitCode::FAILURE;
        }
    };
    match arguments.output {
        Output::Text => super::print(&render::text(&overview)),
        Output::Json => super::print_json(&overview),
    }
    ExitCode::SUCCESS
}

/// Returns where to look for members: at the given masters, in etcd, or without either at the master on this host.
pub(super) fn source(etcd: &EtcdOptions, cluster: Option<&str>, http: &[String]) -> Result<Source, String> {
    let cluster_id = cluster_id(cluster);
    if !http.is_empty() {
        return Ok(Source::Http(http.to_vec()));
    }
    match etcd.access().map_err(|why| format!("--etcd_endpoints: {why}"))? {
        Some(_) if !Keys::is_cluster_id(&cluster_id) => {
            Err(format!("'{cluster_id}' is not a cluster id: 1 to 63 of a-z, 0-9, - and _"))
        }
        Some(access) => Ok(Source::Etcd { access, cluster_id }),
        None => Ok(Source::Http(vec!["127.0.0.1:9003".to_owned()])),
    }
}
