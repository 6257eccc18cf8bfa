//! One screen about a cluster, from its resource alone.

use std::fmt::Write;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::api::{MasterCluster, MasterClusterStatus, Phase, SwitchoverResult};

/// Renders the screen as of `now`.
pub(super) fn text(cluster: &MasterCluster, now: Timestamp) -> String {
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let status = cluster.status.clone().unwrap_or_default();
    let mut text = String::new();
    let _ = writeln!(text, "{name}: {}", headline(&status, now));
    if status.observed_generation < cluster.metadata.generation {
        text.push_str("the operator has not observed the newest spec yet\n");
    }
    text.push('\n');
    text.push_str(&table(&status));
    if let Some(last) = status.oplog.as_ref().and_then(|oplog| oplog.durable_prefix) {
        let _ = writeln!(text, "\nlog: durable up to record {last}, as of the last update of the status");
    }
    let etcd = status.conditions.iter().find(|it| it.type_ == "EtcdHealthy" && it.status == "True");
    if let Some(etcd) = etcd {
        let _ = writeln!(text, "\netcd: {}, as of the last update of the status", etcd.message);
    }
    text.push_str(&snapshots(&status, now));
    if let Some(report) = &status.last_failover {
        let from = report.from.as_deref().unwrap_or("an unknown master");
        let to = if report.to.is_empty() { "no master yet" } else { &report.to };
        let took = report.duration_milliseconds.map_or_else(String::new, |ms| format!(" in {ms} ms"));
        let _ = write!(
            text,
            "\nlast failover: {}, {from} to {to}{took} ({})",
            ago(report.at.as_ref(), now),
            report.reason
        );
        if let Some(cleaned) = &report.cleaned {
            let _ = write!(text, ", {} clients had to report their memory again", cleaned.clients);
        }
        text.push('\n');
    }
    if let Some(report) = &status.last_switchover {
        let result = match report.result {
            SwitchoverResult::Pending => "is under way",
            SwitchoverResult::Succeeded => "succeeded",
            SwitchoverResult::Failed => "failed",
        };
        let why = report.message.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        let _ = writeln!(text, "last switchover: {}, {result}{why}", ago(report.at.as_ref(), now));
    }
    let problems = problems(name, cluster, &status);
    if problems.is_empty() {
        text.push_str("\nnothing is wrong\n");
    } else {
        text.push_str("\nwrong:\n");
        for (what, advice) in problems {
            let _ = writeln!(text, "  {what}");
            if !advice.is_empty() {
                let _ = writeln!(text, "    -> {advice}");
            }
        }
    }
    text
}

/// Renders the line about snapshots; nothing if there are none.
fn snapshots(status: &MasterClusterStatus, now: Timestamp) -> String {
    let Some(newest) = status.snapshots.first() else { return String::new() };
    format!(
        "snapshots: {}, the newest up to record {}, {} ({})\n",
        status.snapshots.len(),
        newest.sequence_id,
        ago(newest.at.as_ref(), now),
        newest.holders.join(", ")
    )
}

fn headline(status: &MasterClusterStatus, now: Timestamp) -> String {
    let phase = status.phase.map_or_else(|| "not observed yet".to_owned(), |phase| format!("{phase:?}"));
    match &status.leader {
        Some(leader) => {
            let term = status.term.map_or_else(|| "?".to_owned(), |term| term.to_string());
            let since = ago(leader.since.as_ref(), now);
            format!(
                "{phase}; {} leads in term {term} (since {since}), clients go to {}",
                leader.name, leader.address
            )
        }
        None => format!("{phase}; no primary"),
    }
}

fn table(status: &MasterClusterStatus) -> String {
    let mut rows = vec![["MEMBER", "ROLE", "LAG", "APPLIED", "VERSION", "NODE"].map(str::to_owned)];
    let number = |number: Option<i64>| number.map_or_else(|| "?".to_owned(), |number| number.to_string());
    for member in &status.members {
        rows.push([
            member.name.clone(),
            member.role.clone(),
            number(member.lag),
            number(member.applied),
            member.version.clone().unwrap_or_else(|| "?".to_owned()),
            member.node.clone().unwrap_or_else(|| "-".to_owned()),
        ]);
    }
    let mut widths = [0; 6];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let line: String = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}  ")).collect();
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// Returns the problems, the worst first, each with advice.
fn problems(name: &str, cluster: &MasterCluster, status: &MasterClusterStatus) -> Vec<(String, String)> {
    let condition = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind);
    let is = |kind: &str, value: &str| condition(kind).filter(|condition| condition.status == value);
    let mut all = Vec::new();
    let mut note = |condition: Option<&Condition>, advice: String| {
        if let Some(condition) = condition {
            all.push((format!("{}: {}", condition.reason, condition.message), advice));
        }
    };
    if status.phase == Some(Phase::Deleting) {
        note(condition("Progressing"), String::new());
        return all;
    }
    note(is("Stalled", "True"), advice(condition("Stalled"), name));
    if is("Stalled", "True").is_none() {
        note(is("EtcdHealthy", "False"), etcd_advice(condition("EtcdHealthy")).to_owned());
        note(
            is("Available", "False"),
            format!("kubectl get pods -l moonkeeper.dev/cluster={name}, and the logs of those that run"),
        );
        if is("Available", "True").is_some() && cluster.spec.replicas > 1 {
            note(
                is("Redundant", "False"),
                "wait until a standby has caught up before you restart the primary".into(),
            );
        }
    }
    note(
        is("SnapshotFresh", "False"),
        "make room in the volumes, or delete the pods that UpToDate names so that they get one".to_owned(),
    );
    // The cluster is ready, but progress that has not ended deserves attention.
    if status.phase == Some(Phase::Degraded) && is("Ready", "True").is_some() {
        note(is("Progressing", "True"), format!("kubectl describe pods -l moonkeeper.dev/cluster={name}"));
    }
    note(
        is("UpToDate", "False"),
        format!("kubectl moonkeeper switchover {name} before you delete the pod of the primary"),
    );
    if status.conditions.is_empty() {
        all.push((
            "the operator has reported no conditions: does it run?".to_owned(),
            "kubectl get pods -A -l app.kubernetes.io/component=operator,app.kubernetes.io/name=moonkeeper"
                .to_owned(),
        ));
    }
    all
}

fn etcd_advice(condition: Option<&Condition>) -> &'static str {
    match condition.map(|condition| condition.reason.as_str()).unwrap_or_default() {
        "SpaceLow" => "etcdctl compaction and etcdctl defrag, or a larger --quota-backend-bytes",
        "NoSpace" => {
            "etcdctl compaction and etcdctl defrag, or a larger --quota-backend-bytes; then etcdctl alarm disarm"
        }
        "Corrupt" => "replace the member of etcd whose data differs, then etcdctl alarm disarm",
        _ => "check etcd: the primary stops serving if etcd does not answer for longer than its lease",
    }
}

fn advice(stalled: Option<&Condition>, name: &str) -> String {
    match stalled.map(|condition| condition.reason.as_str()).unwrap_or_default() {
        "SecretNotFound" | "SecretIncomplete" => "create the Secret, or correct spec.etcd".to_owned(),
        "SecretUnreadable" | "Forbidden" => "check the permissions of the operator (its roles)".to_owned(),
        "OtherEtcd" => {
            "set spec.etcd.endpoints back to the etcd with the log, or restore its keys".to_owned()
        }
        "LogUnusable" => "restore the newest data of etcd; the masters continue by themselves".to_owned(),
        // The field cannot be set later.
        "InvalidClusterId" => {
            "delete this resource and create it again under a shorter name, or with spec.clusterId".to_owned()
        }
        "CertificateUnusable" => "replace the Secret that spec.admin.tlsSecretName names".to_owned(),
        "EtcdUnreachable" | "EtcdUnusable" => "correct spec.etcd.endpoints, or start that etcd".to_owned(),
        "ImagePullBackOff" | "InvalidImageName" | "ErrImageNeverPull" => {
            "correct spec.image, then delete the pods that cannot start".to_owned()
        }
        "ClaimPending" | "ClaimLost" => {
            format!("kubectl describe pvc -l moonkeeper.dev/cluster={name}, and kubectl get storageclass")
        }
        "CrashLoopBackOff" => format!("kubectl logs -l moonkeeper.dev/cluster={name} --previous"),
        "Unschedulable"
        | "CreateContainerConfigError"
        | "CreateContainerError"
        | "RunContainerError"
        | "RegistryUnavailable" => format!("kubectl describe pods -l moonkeeper.dev/cluster={name}"),
        "InvalidSpec" | "Refused" => "correct the spec".to_owned(),
        "ClusterIdTaken" => "delete this resource and create it again with another spec.clusterId".to_owned(),
        "NameTaken" => "delete that object, or create this MasterCluster under another name".to_owned(),
        _ => format!("kubectl describe mastercluster {name}"),
    }
}

fn ago(at: Option<&Time>, now: Timestamp) -> String {
    match at.map(|at| now.duration_since(at.0).as_secs()) {
        None => "at an unknown time".to_owned(),
        Some(seconds @ ..120) => format!("{} s ago", seconds.max(0)),
        Some(seconds @ ..7200) => format!("{} min ago", seconds / 60),
        Some(seconds) => format!("{} h ago", seconds / 3600),
    }
}
