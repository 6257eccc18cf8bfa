//! A switchover through the resource: writes a new requestId, then waits for the operator's report about it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::PluginError;
use crate::api::{MasterCluster, SwitchoverReport, SwitchoverResult};

/// How long the plugin waits for the operator, which gives a request up after a minute itself.
const PATIENCE: Duration = Duration::from_secs(90);

/// Field manager of the request. Flux reverts what managers whose names begin with "kubectl" have written.
pub(super) const MANAGER: &str = "moonkeeper-plugin";

/// How often the resource is read.
pub(super) const INTERVAL: Duration = Duration::from_millis(200);

/// Requests a switchover and waits for the result.
pub(super) async fn ask(
    api: &Api<MasterCluster>,
    cluster: &MasterCluster,
    to: Option<String>,
) -> Result<SwitchoverReport, PluginError> {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    if cluster.spec.suspend {
        return Err(PluginError::NotDone(format!("{name} is suspended: set spec.suspend to false first")));
    }
    let request_id = format!("kubectl-{}", Timestamp::now().as_millisecond());
    let wanted = json!({"spec": {"switchover": {
        "requestId": request_id,
        "target": to.unwrap_or_default(),
    }}});
    let params = PatchParams { field_manager: Some(MANAGER.to_owned()), ..PatchParams::default() };
    api.patch(name, &params, &Patch::Merge(wanted)).await?;
    let deadline = Instant::now() + PATIENCE;
    loop {
        let now = api.get(name).await?;
        let status = now.status.unwrap_or_default();
        let report = status.last_switchover.filter(|report| report.request_id == request_id);
        if let Some(report) = report.filter(|report| report.result != SwitchoverResult::Pending) {
            return Ok(report);
        }
        if Instant::now() > deadline {
            return Err(PluginError::NotDone(format!(
                "the operator has not answered within {} s; the switchover may still happen (request {request_id})",
                PATIENCE.as_secs()
            )));
        }
        sleep(INTERVAL).await;
    }
}

/// Renders the result in a line.
pub(super) fn text(report: &SwitchoverReport) -> String {
    let from = report.from.as_deref().unwrap_or("an unknown master");
    let to = report.to.as_deref().unwrap_or("another master");
    let silent = report.duration_milliseconds.map(|ms| format!("; no master answered for {ms} ms"));
    match report.result {
        SwitchoverResult::Succeeded if report.from == report.to => format!("{to} leads already\n"),
        SwitchoverResult::Succeeded => {
            format!("{to} leads now in place of {from}{}\n", silent.unwrap_or_default())
        }
        SwitchoverResult::Failed | SwitchoverResult::Pending => String::new(),
    }
}

/// Returns an error if the switchover did not succeed.
pub(super) fn verdict(report: &SwitchoverReport) -> Result<(), PluginError> {
    match report.result {
        SwitchoverResult::Succeeded => Ok(()),
        SwitchoverResult::Failed | SwitchoverResult::Pending => {
            let why = report.message.clone().unwrap_or_else(|| "the operator reported no reason".to_owned());
            Err(PluginError::NotDone(format!("the switchover failed: {why}")))
        }
    }
}
