//! `moonkeeper operator`: arguments, logs, signals, and a runtime for the operator.

use std::process::ExitCode;

use clap::{ArgAction, Parser, ValueEnum};
use tracing_subscriber::EnvFilter;

use crate::net::listen::{EVERY_ADDRESS, Listen};
use crate::operator::build::image;
use crate::operator::removal;
use crate::operator::run::{Settings, run};

/// Creates and manages the masters of MasterCluster resources
#[derive(Debug, Parser)]
#[command(name = "moonkeeper operator", after_help = EXAMPLES)]
struct Arguments {
    /// Manage the clusters of this namespace only (else of all; also the variable WATCH_NAMESPACE)
    #[arg(long, value_name = "NAME")]
    namespace: Option<String>,
    /// Namespace that the operator runs in and keeps its Lease in (else the variable POD_NAMESPACE, else what the
    /// kubeconfig says)
    #[arg(long, value_name = "NAME")]
    own_namespace: Option<String>,
    /// Image of masters whose spec.image names none: the operator's own, as the chart says
    #[arg(long, value_name = "IMAGE", default_value = image::DEFAULT)]
    default_image: String,
    /// Write only while holding a Lease, so that several operators can run
    #[arg(long, value_name = "BOOL", default_value_t = true, action = ArgAction::Set)]
    leader_elect: bool,
    /// Address on which metrics are served
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8080", value_parser = address)]
    metrics_address: Listen,
    /// Address on which /healthz and /readyz are served
    #[arg(long, value_name = "HOST:PORT", default_value = "[::]:8081", value_parser = address)]
    health_address: Listen,
    /// Only report whether the operator can be removed: ends with 1 while there are clusters with deletionPolicy Delete,
    /// which would stay Terminating without it. The chart asks this before it is uninstalled
    #[arg(long)]
    check_removal: bool,
    /// Format of the logs; the variable RUST_LOG sets their level
    #[arg(long, value_enum, default_value_t)]
    log_format: Format,
}

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
enum Format {
    #[default]
    Text,
    Json,
}

/// Threads of the runtime: the operator waits far more than it computes.
const THREADS: usize = 2;

const EXAMPLES: &str = "\
Kubernetes is found as kubectl finds it, or from inside a pod.

Examples:
  moonkeeper operator                          all clusters of all namespaces
  moonkeeper operator --namespace store        those of one namespace
  moonkeeper operator --leader-elect=false     the only operator of these clusters
  moonkeeper operator --check-removal          whether a cluster needs it";

fn address(text: &str) -> Result<Listen, String> {
    let (host, port) = text.rsplit_once(':').ok_or("HOST:PORT is expected")?;
    let port = port.parse().map_err(|_| "the port must be a number up to 65535")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(Listen { host: if host.is_empty() { EVERY_ADDRESS } else { host }.to_owned(), port })
}

/// Runs the operator until it is stopped, or only checks whether it may be removed.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper operator", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    if let Err(why) = super::die_with_parent::end_with_parent() {
        eprintln!("moonkeeper operator: {why}");
        return ExitCode::FAILURE;
    }
    start_logs(arguments.log_format);
    super::use_ring();
    if arguments.check_removal {
        return check_removal(arguments.namespace.or_else(|| variable("WATCH_NAMESPACE")).as_deref());
    }
    let settings = match settings(arguments) {
        Ok(settings) => settings,
        Err(why) => {
            tracing::error!(%why, "cannot start");
            return ExitCode::FAILURE;
        }
    };
    super::serve(THREADS, |stopped| run(&settings, stopped))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

fn check_removal(namespace: Option<&str>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(why) => {
            eprintln!("moonkeeper operator: cannot start: {why}");
            return ExitCode::FAILURE;
        }
    };
    match runtime.block_on(removal::check(namespace)) {
        Ok(()) => {
            println!("no MasterCluster needs the operator: it can be removed");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("moonkeeper operator: {why}");
            ExitCode::FAILURE
        }
    }
}

fn settings(arguments: Arguments) -> Result<Settings, getrandom::Error> {
    // Two processes of one name must not both believe that they hold the Lease.
    let random = getrandom::u32()?;
    let name = variable("POD_NAME").or_else(|| variable("HOSTNAME")).unwrap_or_else(|| "operator".to_owned());
    Ok(Settings {
        namespace: arguments.namespace.or_else(|| variable("WATCH_NAMESPACE")),
        own_namespace: arguments.own_namespace.or_else(|| variable("POD_NAMESPACE")),
        identity: format!("{name}_{random:08x}"),
        image: arguments.default_image,
        elect: arguments.leader_elect,
        metrics: arguments.metrics_address,
        health: arguments.health_address,
    })
}

fn start_logs(format: Format) {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info"));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match format {
        Format::Json => logs.json().init(),
        Format::Text => logs.with_ansi(false).init(),
    }
}
