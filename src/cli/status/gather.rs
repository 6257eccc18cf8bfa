//! Finds the members of a cluster and asks each how it stands.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::judge::judge;
use super::{Overview, Seen};
use crate::cli::ask::{Question, TlsFiles, ask};
use crate::coordination::etcd::{Etcd, SettingsError};
use crate::coordination::types::{Failure, Get, Request, Response};
use crate::master::admin_api::{Election, Member, Status};
use crate::master::settings::ha::EtcdAccess;
use crate::replication::keys::Keys;

/// How long etcd, and then all masters at once, have to answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Most members of which each is asked.
const MAX_MEMBERS: usize = 64;

/// Where to learn of the members.
#[derive(Clone, Debug)]
pub(in crate::cli) enum Source {
    /// From what they wrote to etcd.
    Etcd { access: EtcdAccess, cluster_id: String },
    /// From masters at these addresses.
    Http(Vec<String>),
}

/// Why nothing can be said about the cluster.
#[derive(Debug, thiserror::Error)]
pub(in crate::cli) enum GatherError {
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("cannot read the members of '{cluster_id}' from etcd: {failure}")]
    Etcd { cluster_id: String, failure: Failure },
    #[error("{}", .0.join("\n"))]
    NobodyAnswers(Vec<String>),
}

/// Looks at the whole cluster.
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

/// What the members wrote to etcd, and what each says itself.
pub(in crate::cli) async fn from_etcd(etcd: &Etcd, cluster_id: &str) -> Result<Overview, GatherError> {
    let keys = Keys::new(cluster_id);
    let failed = |failure| GatherError::Etcd { cluster_id: cluster_id.to_owned(), failure };
    let answer = etcd.call(Request::Get(Get::all(keys.cluster())), PATIENCE).await.map_err(failed)?;
    let entries = match answer {
        Response::Got { page, .. } => page.entries,
        other => return Err(failed(Failure::Unknown(format!("it answered {other:?}")))),
    };
    let mut overview = Overview { cluster_id: cluster_id.to_owned(), ..Overview::default() };
    for entry in entries {
        if entry.key == keys.master_view() {
            overview.client_address = Some(String::from_utf8_lossy(&entry.value).into_owned());
        } else if entry.key == keys.election() {
            overview.term = entry.create_revision;
            overview.leader = serde_json::from_slice::<Election>(&entry.value).ok().map(|it| it.name);
        } else if keys.members().contains(&entry.key) {
            match serde_json::from_slice::<Member>(&entry.value) {
                Ok(member) => overview.members.push(Seen { member, ..Seen::default() }),
                Err(why) => {
                    let key = String::from_utf8_lossy(&entry.key).into_owned();
                    overview.problems.push(format!("{key} in etcd cannot be read: {why}"));
                }
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

/// What these masters say, and those that they name.
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
                // A master that writes no member key yet is one all the same.
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

/// The status of each address, all at once.
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
    serde_json::from_slice(&body).map_err(|why| format!("{address} answered something else: {why}"))
}
