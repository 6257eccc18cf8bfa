//! Finds the members of a cluster and requests the status of each.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::judge::judge;
use super::{Overview, Seen};
use crate::cli::ask::{Question, TlsFiles, ask};
use crate::cluster::keys::Keys;
use crate::cluster::status::{Member, Status};
use crate::cluster::view::ClusterView;
use crate::coordination::etcd::{Etcd, SettingsError};
use crate::coordination::types::{Failure, Get, Request, Response};
use crate::master::settings::ha::EtcdAccess;

/// Timeout of the call to etcd, and then of the requests to all masters together.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most members whose status is requested.
const MAX_MEMBERS: usize = 64;

/// Where the members are found.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Source {
    /// In their keys in etcd.
    Etcd { access: EtcdAccess, cluster_id: String },
    /// By the masters at these addresses.
    Http(Vec<String>),
}

/// Why there is no overview of the cluster.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum GatherError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("cannot read the members of '{cluster_id}' from etcd: {failure}")]
    Etcd { cluster_id: String, failure: Failure },
    #[error("{}", .0.join("\n"))]
    NobodyAnswers(Vec<String>),
}

/// Collects the overview of the whole cluster, and its problems.
pub(in crate::cli) async fn gather(source: &Source) -> Result<Overview, GatherError> {
    let mut overview = match source {
        Source::Etcd { access, cluster_id } => {
            from_etcd(&Etcd::connect(access.settings())?, cluster_id).await?
        }
        Source::Http(addresses) => from_masters(addresses).await?,
    };
    judge(&mut overview);
    Ok(overview)
}

/// Reads the keys of a cluster from etcd.
pub(in crate::cli) async fn read_view(etcd: &Etcd, cluster_id: &str) -> Result<ClusterView, GatherError> {
    let keys = Keys::new(cluster_id);
    let failed = |failure| GatherError::Etcd { cluster_id: cluster_id.to_owned(), failure };
    match etcd.call(Request::Get(Get::all(keys.cluster())), PATIENCE).await.map_err(failed)? {
        Response::Got { revision, page } => Ok(ClusterView::read(&keys, revision, &page.entries)),
        other => Err(failed(Failure::unexpected(&other))),
    }
}

/// Collects the members from their keys in etcd, and the status of each.
pub(in crate::cli) async fn from_etcd(etcd: &Etcd, cluster_id: &str) -> Result<Overview, GatherError> {
    let keys = Keys::new(cluster_id);
    let view = read_view(etcd, cluster_id).await?;
    let mut overview = Overview {
        cluster_id: cluster_id.to_owned(),
        client_address: view.serving.map(|serving| serving.address),
        ..Overview::default()
    };
    if let Some(leader) = view.leader {
        overview.term = leader.term.0;
        overview.leader = Some(leader.value.name).filter(|name| !name.is_empty());
    }
    for (name, member) in view.members {
        match member.value {
            Some(value) => overview.members.push(Seen { member: (&value).into(), ..Seen::default() }),
            None => {
                let key = keys.member(&name);
                let key = String::from_utf8_lossy(&key);
                overview.problems.push(format!("{key} in etcd has a value that this version cannot read"));
            }
        }
    }
    let addresses = overview.members.iter().map(|seen| seen.member.http_address.clone());
    let answers = ask_all(addresses.collect()).await;
    for seen in &mut overview.members {
        match answers.get(&seen.member.http_address) {
            Some(Ok(status)) => seen.status = Some(status.clone()),
            Some(Err(why)) => seen.error = Some(why.clone()),
            None => {}
        }
    }
    Ok(overview)
}

/// Collects the statuses of these masters, and of the members that they name.
async fn from_masters(addresses: &[String]) -> Result<Overview, GatherError> {
    let mut answers = ask_all(addresses.iter().cloned().collect()).await;
    if answers.values().all(Result::is_err) {
        return Err(GatherError::NobodyAnswers(answers.into_values().filter_map(Result::err).collect()));
    }
    let mut members: BTreeMap<String, Member> = BTreeMap::new();
    for status in answers.values().flatten() {
        for member in &status.members {
            members.insert(member.name.clone(), member.clone());
        }
    }
    let asked: BTreeSet<String> = answers.values().flatten().map(|status| status.name.clone()).collect();
    let more = members.values().filter(|member| !asked.contains(&member.name));
    answers.extend(ask_all(more.map(|member| member.http_address.clone()).collect()).await);

    let mut overview = Overview::default();
    for (address, answer) in answers {
        match answer {
            Ok(status) => {
                overview.cluster_id.clone_from(&status.cluster_id);
                // A master that has not written its member key yet is a member all the same.
                let member = members.remove(&status.name).unwrap_or_else(|| Member {
                    name: status.name.clone(),
                    role: status.role,
                    http_address: address,
                    applied: status.applied,
                    ..Member::default()
                });
                if status.term > overview.term {
                    overview.term = status.term;
                    overview.leader = status.leader.as_ref().map(|leader| leader.name.clone());
                    overview.client_address = status.leader.as_ref().map(|leader| leader.address.clone());
                }
                overview.members.push(Seen { member, status: Some(status), error: None });
            }
            Err(why) => {
                let known = members.values().find(|member| member.http_address == address);
                let member = known.cloned().unwrap_or_else(|| Member {
                    name: address.clone(),
                    http_address: address,
                    ..Member::default()
                });
                members.remove(&member.name);
                overview.members.push(Seen { member, status: None, error: Some(why) });
            }
        }
    }
    overview.members.sort_by(|one, other| one.member.name.cmp(&other.member.name));
    Ok(overview)
}

/// Requests the status of each address, all at once.
async fn ask_all(addresses: BTreeSet<String>) -> BTreeMap<String, Result<Status, String>> {
    let mut asking = tokio::task::JoinSet::new();
    for address in addresses.into_iter().filter(|address| !address.is_empty()).take(MAX_MEMBERS) {
        asking.spawn(async move {
            let status = status_of(&address).await;
            (address, status)
        });
    }
    asking.join_all().await.into_iter().collect()
}

async fn status_of(address: &str) -> Result<Status, String> {
    let question = Question::get(address, "/api/v1/status", PATIENCE);
    let (code, body) = ask(&question, &TlsFiles::default()).await.map_err(|why| why.to_string())?;
    if !code.is_success() {
        return Err(format!("{address} has no status ({code}): is it a master with --enable_ha?"));
    }
    serde_json::from_slice(&body).map_err(|why| format!("unexpected answer from {address}: {why}"))
}
