//! A snapshot through the resource: writes another value of the annotation, then waits for the operator's report about it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::PluginError;
use super::switchover::{INTERVAL, MANAGER};
use crate::api::names::SNAPSHOT_REQUEST;
use crate::api::{MasterCluster, SnapshotReport, SnapshotResult};

/// How long the plugin waits for the operator, which fails a request after a minute if no master begins, and after ten if a
/// snapshot is not complete.
const PATIENCE: Duration = Duration::from_secs(690);

/// How long the plugin waits for the operator to record the request.
const RECORDED_WITHIN: Duration = Duration::from_secs(90);

/// Requests a snapshot and waits for the result. `show` is told what is known of it meanwhile.
pub(super) async fn ask(
    api: &Api<MasterCluster>,
    cluster: &MasterCluster,
    show: impl Fn(&str),
) -> Result<SnapshotReport, PluginError> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    if cluster.spec.suspend {
        return Err(PluginError::NotDone(format!("{name} is suspended: set spec.suspend to false first")));
    }
    let request_id = format!("kubectl-{}", Timestamp::now().as_millisecond());
    let wanted = json!({"metadata": {"annotations": {SNAPSHOT_REQUEST: request_id}}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(wanted)).await?;
    let began = Instant::now();
    let mut shown = String::new();
    loop {
        let status = api.get(name).await?.status.unwrap_or_default();
        let report = status.last_snapshot.filter(|report| report.request_id == request_id);
        let limit = if report.is_some() { PATIENCE } else { RECORDED_WITHIN };
        match report {
            Some(report) if report.result != SnapshotResult::Pending => return Ok(report),
            Some(report) => {
                let text = progress(&report);
                if text != shown {
                    show(&text);
                    shown = text;
                }
            }
            None => {}
        }
        if began.elapsed() > limit {
            return Err(PluginError::NotDone(format!(
                "the operator has not answered within {} s; the snapshot may still be taken (request {request_id})",
                limit.as_secs()
            )));
        }
        sleep(INTERVAL).await;
    }
}

/// Renders what is known of a request that has no result yet.
fn progress(report: &SnapshotReport) -> String {
    match (&report.member, report.sequence_id) {
        (Some(member), Some(up_to)) => format!("{member} is taking a snapshot up to record {up_to} or later"),
        _ => "the operator asks the standbys for a snapshot".to_owned(),
    }
}

/// Renders the result in a line.
pub(super) fn text(report: &SnapshotReport) -> String {
    match (&report.member, report.sequence_id, report.result) {
        (Some(member), Some(last), SnapshotResult::Succeeded) => {
            format!("{member} has taken a snapshot up to record {last}\n")
        }
        _ => String::new(),
    }
}

/// Returns an error if there is no snapshot.
pub(super) fn verdict(report: &SnapshotReport) -> Result<(), PluginError> {
    match report.result {
        SnapshotResult::Succeeded => Ok(()),
        SnapshotResult::Failed | SnapshotResult::Pending => {
            let why = report.message.clone().unwrap_or_else(|| "the operator reported no reason".to_owned());
            Err(PluginError::NotDone(format!("the snapshot failed: {why}")))
        }
    }
}
