//! A switchover through the resource: a new requestId, then waiting for what the operator says about it.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::PluginError;
use crate::api::{MasterCluster, SwitchoverReport, SwitchoverResult};

/// How long the operator has: it gives a request up after a minute itself.
const PATIENCE: Duration = Duration::from_secs(90);

/// Who wrote the request, for Kubernetes. Flux takes back what managers have written whose names begin with "kubectl".
const MANAGER: &str = "moonkeeper-plugin";

/// How often the resource is looked at.
const INTERVAL: Duration = Duration::from_millis(200);

/// Asks for a switchover and waits for the result.
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
                "the operator has not answered within {} s; it may still do what was asked for (request {request_id})",
                PATIENCE.as_secs()
            )));
        }
        sleep(INTERVAL).await;
    }
}

/// What came of it, in a line.
pub(super) fn text(report: &SwitchoverReport) -> String {
    let from = report.from.as_deref().unwrap_or("somebody");
    let to = report.to.as_deref().unwrap_or("another one");
    let silent = report.duration_milliseconds.map(|ms| format!("; nobody answered for {ms} ms"));
    match report.result {
        SwitchoverResult::Succeeded if report.from == report.to => format!("{to} leads already\n"),
        SwitchoverResult::Succeeded => {
            format!("{to} leads now, {from} did before{}\n", silent.unwrap_or_default())
        }
        SwitchoverResult::Failed | SwitchoverResult::Pending => String::new(),
    }
}

/// Whether it did what was asked for.
pub(super) fn verdict(report: &SwitchoverReport) -> Result<(), PluginError> {
    match report.result {
        SwitchoverResult::Succeeded => Ok(()),
        SwitchoverResult::Failed | SwitchoverResult::Pending => {
            let why = report.message.clone().unwrap_or_else(|| "the operator does not say why".to_owned());
            Err(PluginError::NotDone(format!("nobody else leads: {why}")))
        }
    }
}
