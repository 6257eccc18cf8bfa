//! `kubectl moonkeeper`: one screen about a MasterCluster, switchovers and snapshots, through the resource. The binary acts as
//! that plugin when it is called `kubectl-moonkeeper`.

mod screen;
mod snapshot;
mod switchover;

use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use kube::config::KubeConfigOptions;
use kube::{Api, Client, Config};

use super::status::Output;
use crate::api::MasterCluster;

/// Looks at MasterClusters, changes who leads them, and has snapshots taken
#[derive(Debug, Parser)]
#[command(name = "kubectl moonkeeper", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "\
Examples:
  kubectl moonkeeper status demo                 who leads, who follows and how closely, what is wrong
  kubectl moonkeeper switchover demo             let the best placed standby lead
  kubectl moonkeeper switchover demo --to demo-2 -n store
  kubectl moonkeeper snapshot demo               let a standby take a snapshot now";

#[derive(Debug, Subcommand)]
enum Command {
    /// Shows who leads a cluster, who follows and how closely, what happened last, what is wrong and what to do
    Status {
        /// The MasterCluster
        name: String,
        #[command(flatten)]
        place: Place,
        /// text or json
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Lets a standby take a snapshot now, and waits until it counts
    Snapshot {
        /// The MasterCluster
        name: String,
        #[command(flatten)]
        place: Place,
        /// text or json
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
    /// Lets another master lead, and waits for the result
    Switchover {
        /// The MasterCluster
        name: String,
        /// The pod that shall lead; without it the best placed standby
        #[arg(long, value_name = "POD")]
        to: Option<String>,
        #[command(flatten)]
        place: Place,
        /// text or json
        #[arg(short, long, value_enum, default_value_t)]
        output: Output,
    },
}

/// Where the cluster is
#[derive(Debug, Args)]
struct Place {
    /// Namespace (else what the kubeconfig says)
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Context of the kubeconfig
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Kubeconfig file (else the variable KUBECONFIG, else ~/.kube/config)
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<std::path::PathBuf>,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
enum PluginError {
    #[error("cannot find the API server of Kubernetes: {0}")]
    Config(#[from] kube::config::InferConfigError),
    #[error("cannot read the kubeconfig: {0}")]
    Kubeconfig(#[from] kube::config::KubeconfigError),
    #[error("there is no MasterCluster {name} in namespace {namespace}")]
    NotFound { namespace: String, name: String },
    #[error("{}", crate::operator::apply::said(.0))]
    Kubernetes(#[from] kube::Error),
    #[error("{0}")]
    NotDone(String),
}

/// Runs the plugin: prints the status, or requests a switchover or a snapshot.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let Arguments { command } = match super::parse::<Arguments>("kubectl moonkeeper", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    super::use_ring();
    let result = super::block_on(async {
        match command {
            Command::Status { name, place, output } => {
                let cluster = place.find(&name).await?.1;
                match output {
                    Output::Text => {
                        super::print(&screen::text(&cluster, k8s_openapi::jiff::Timestamp::now()))
                    }
                    Output::Json => super::print_json(&cluster.status),
                }
                Ok(())
            }
            Command::Snapshot { name, place, output } => {
                let (api, cluster) = place.find(&name).await?;
                let report = snapshot::ask(&api, &cluster, |text| eprintln!("{text}")).await?;
                match output {
                    Output::Text => super::print(&snapshot::text(&report)),
                    Output::Json => super::print_json(&report),
                }
                snapshot::verdict(&report)
            }
            Command::Switchover { name, to, place, output } => {
                let (api, cluster) = place.find(&name).await?;
                let report = switchover::ask(&api, &cluster, to).await?;
                match output {
                    Output::Text => super::print(&switchover::text(&report)),
                    Output::Json => super::print_json(&report),
                }
                switchover::verdict(&report)
            }
        }
    });
    match result
        .map_err(|why| why.to_string())
        .and_then(|result| result.map_err(|why: PluginError| why.to_string()))
    {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("kubectl moonkeeper: {why}");
            ExitCode::FAILURE
        }
    }
}

impl Place {
    async fn find(&self, name: &str) -> Result<(Api<MasterCluster>, MasterCluster), PluginError> {
        let config = self.config().await?;
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let api: Api<MasterCluster> = Api::namespaced(Client::try_from(config)?, &namespace);
        match api.get_opt(name).await? {
            Some(cluster) => Ok((api, cluster)),
            None => Err(PluginError::NotFound { namespace, name: name.to_owned() }),
        }
    }

    async fn config(&self) -> Result<Config, PluginError> {
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        match (&self.kubeconfig, &self.context) {
            (Some(path), _) => {
                let kubeconfig = kube::config::Kubeconfig::read_from(path)?;
                Ok(Config::from_custom_kubeconfig(kubeconfig, &options).await?)
            }
            (None, Some(_)) => Ok(Config::from_kubeconfig(&options).await?),
            (None, None) => Ok(Config::infer().await?),
        }
    }
}
