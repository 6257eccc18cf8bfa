//! `moonkeeper snapshot create`: asks a master for a snapshot over its admin API, and shows how far it is.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tokio::time::sleep;

use super::bar::Bar;
use crate::cli::admin::{AdminCallError, AdminOptions};
use crate::cli::status::Output;
use crate::cluster::etcd_health::size;
use crate::cluster::role::Role;
use crate::cluster::snapshot::HeldSnapshot;
use crate::cluster::status::{Member, Status};
use crate::master::admin_api::{SnapshotAnswer, SnapshotsAnswer};

/// Timeout of the request, which a master answers within 20 s.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of a request for a status.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);

/// How often the progress is read.
const INTERVAL: Duration = Duration::from_millis(200);

/// After so many readings in which nothing was being taken, it was given up.
const MAX_IDLE: u32 = 10;

pub(super) const EXAMPLES: &str = "\
Examples:
  moonkeeper snapshot create --admin_token_file token
  moonkeeper snapshot create --member store-1 --admin 10.0.0.1:9004 --admin_cacert ca.pem --admin_token_file token";

#[derive(Debug, Args)]
pub(super) struct Create {
    /// The member that shall take it; without it a standby, or the primary if no standby is caught up
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    /// Address of the admin API (--admin_port) of any master; the others are found from there
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9004")]
    admin: String,
    #[command(flatten)]
    access: AdminOptions,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// A snapshot that was taken, and by which member.
#[derive(Debug, Serialize)]
struct Taken {
    member: String,
    #[serde(flatten)]
    snapshot: HeldSnapshot,
}

/// Why there is no snapshot.
#[derive(Debug, thiserror::Error)]
enum CreateError {
    #[error(transparent)]
    Admin(#[from] AdminCallError),
    #[error("there is no member called '{0}'")]
    NoSuchMember(String),
    #[error("{0} has not said where its admin API is")]
    NoAddress(String),
    #[error("no master could take a snapshot: {0}")]
    AllRefused(String),
    #[error("{member} could not complete the snapshot: {why}")]
    Failed { member: String, why: String },
}

/// A master that can be asked.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Target {
    name: String,
    address: String,
}

pub(super) fn run(arguments: &Create) -> ExitCode {
    let taken = match crate::cli::block_on(create(arguments)) {
        Ok(Ok(taken)) => taken,
        Ok(Err(why)) => return super::failed(ExitCode::FAILURE, &why),
        Err(why) => return super::failed(ExitCode::FAILURE, &why),
    };
    match arguments.output {
        Output::Json => crate::cli::print_json(&taken),
        Output::Text => crate::cli::print(&text(&taken)),
    }
    ExitCode::SUCCESS
}

fn text(taken: &Taken) -> String {
    let HeldSnapshot { sequence_id, bytes, objects, digest, .. } = &taken.snapshot;
    let objects = objects.map_or_else(String::new, |objects| format!("{objects} objects, "));
    format!(
        "{} has taken a snapshot up to record {sequence_id}: {objects}{}, digest {digest}\n",
        taken.member,
        size(*bytes)
    )
}

/// Asks one master after the other until one takes a snapshot.
async fn create(arguments: &Create) -> Result<Taken, CreateError> {
    let token = arguments.access.token()?;
    let status: Status = arguments.access.get(&arguments.admin, "/api/v1/status", STATUS_PATIENCE).await?;
    let targets = targets(&status, &arguments.admin, arguments.member.as_deref())?;
    let mut refusals = Vec::new();
    for target in &targets {
        match take(arguments, target, token.as_deref()).await {
            Err(CreateError::Admin(why)) if targets.len() > 1 && is_for_another(&why) => {
                refusals.push(format!("{}: {why}", target.name));
            }
            result => return result,
        }
    }
    Err(CreateError::AllRefused(refusals.join("; ")))
}

/// Returns whether another master may do what this one did not.
fn is_for_another(why: &AdminCallError) -> bool {
    match why {
        AdminCallError::Refused { code, .. } => {
            ["not_standby", "not_caught_up", "no_data_dir"].contains(&&**code)
        }
        AdminCallError::Ask(_) => true,
        AdminCallError::Token(_) | AdminCallError::Unreadable { .. } => false,
    }
}

/// Returns the masters to ask, in this order: the member that `--member` names; without it the master at the given
/// address, if it is a standby, then the other standbys by their last applied record, the highest first, and last the
/// primary, which takes one only if no standby is caught up.
fn targets(status: &Status, given: &str, wanted: Option<&str>) -> Result<Vec<Target>, CreateError> {
    let own = Target { name: status.name.clone(), address: given.to_owned() };
    let target =
        |member: &Member| Target { name: member.name.clone(), address: member.admin_address.clone() };
    if let Some(name) = wanted {
        if name == status.name {
            return Ok(vec![own]);
        }
        let member = status.members.iter().find(|member| member.name == name);
        let member = member.ok_or_else(|| CreateError::NoSuchMember(name.to_owned()))?;
        if member.admin_address.is_empty() {
            return Err(CreateError::NoAddress(name.to_owned()));
        }
        return Ok(vec![target(member)]);
    }
    let others = status.members.iter().filter(|it| it.name != status.name && !it.admin_address.is_empty());
    let (mut standbys, primaries): (Vec<&Member>, Vec<&Member>) =
        others.partition(|it| it.role == Role::Standby);
    standbys.sort_by(|one, other| other.applied.cmp(&one.applied).then_with(|| one.name.cmp(&other.name)));
    let (first, last) = if status.role == Role::Standby { (Some(own), None) } else { (None, Some(own)) };
    let others = standbys.into_iter().chain(primaries).map(target);
    Ok(first.into_iter().chain(others).chain(last).collect())
}

/// Has one master take a snapshot.
async fn take(arguments: &Create, target: &Target, token: Option<&str>) -> Result<Taken, CreateError> {
    let Target { name, address } = target;
    let mut bar = Bar::new();
    let request = arguments.access.post(address, "/api/v1/snapshots", token, String::new(), PATIENCE);
    tokio::pin!(request);
    let answer: SnapshotAnswer = loop {
        tokio::select! {
            answer = &mut request => break answer?,
            () = sleep(INTERVAL) => {}
        }
        // Only the bar needs it.
        let snapshots = snapshots(arguments, address).await;
        if let Some(running) = snapshots.ok().and_then(|it| it.snapshots).and_then(|it| it.running) {
            bar.show(name, &running);
        }
    };
    let taken = |snapshot| Ok(Taken { member: name.clone(), snapshot });
    if let Some(snapshot) = answer.taken {
        return taken(snapshot);
    }
    let mut idle = 0;
    while idle < MAX_IDLE {
        sleep(INTERVAL).await;
        let status = snapshots(arguments, address).await?.snapshots.unwrap_or_default();
        if let Some(snapshot) = status.held.into_iter().find(|held| held.sequence_id >= answer.up_to) {
            return taken(snapshot);
        }
        match (status.running, status.error) {
            (Some(running), _) => {
                idle = 0;
                bar.show(name, &running);
            }
            (None, Some(why)) => return Err(CreateError::Failed { member: name.clone(), why }),
            // Another one may have to end before it begins.
            (None, None) => idle += 1,
        }
    }
    Err(CreateError::Failed { member: name.clone(), why: "it was given up".to_owned() })
}

async fn snapshots(arguments: &Create, address: &str) -> Result<SnapshotsAnswer, AdminCallError> {
    arguments.access.get(address, "/api/v1/snapshots", STATUS_PATIENCE).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn member(name: &str, role: Role, applied: u64) -> Member {
        let admin_address = format!("{name}:9004");
        Member { name: name.into(), role, applied, admin_address, ..Member::default() }
    }

    fn status(name: &str, role: Role) -> Status {
        let members = vec![
            member("a", Role::Primary, 9),
            member("b", Role::Standby, 7),
            member("c", Role::Standby, 8),
            Member { admin_address: String::new(), ..member("d", Role::Standby, 9) },
        ];
        Status { name: name.into(), role, members, ..Status::default() }
    }

    #[test]
    fn standbys_are_asked_before_the_primary_and_the_given_one_first() {
        let names = |status: &Status| -> Vec<String> {
            targets(status, "given", None).unwrap().into_iter().map(|it| it.address).collect()
        };
        assert_eq!(names(&status("a", Role::Primary)), ["c:9004", "b:9004", "given"]);
        assert_eq!(names(&status("b", Role::Standby)), ["given", "c:9004", "a:9004"]);
        let alone = Status { members: Vec::new(), ..status("a", Role::Primary) };
        assert_eq!(names(&alone), ["given"]);
    }

    #[test]
    fn a_named_member_is_asked_alone() {
        let named = |name| targets(&status("a", Role::Primary), "given", Some(name));
        assert_eq!(named("b").unwrap(), [Target { name: "b".into(), address: "b:9004".into() }]);
        assert_eq!(named("a").unwrap(), [Target { name: "a".into(), address: "given".into() }]);
        assert!(matches!(named("x"), Err(CreateError::NoSuchMember(_))));
        assert!(matches!(named("d"), Err(CreateError::NoAddress(_))));
    }
}
