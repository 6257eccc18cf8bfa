//! Executes the planned steps other than applying objects: labels within the pass; calls to masters and etcd in tasks
//! beside the pass, so that a slow call does not delay the next pass.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::{Api, ResourceExt};
use serde_json::json;

use super::admin_client::{self, Credentials};
use super::apply::{WriteError, Writer, failed};
use super::delete_object::delete;
use super::etcd_session::EtcdSession;
use super::keys_of_cluster;
use super::metrics::Write;
use super::observation::{Call, CallError, KeysLeft, PromotionAnswer};
use super::plan::leadership::Relabel;
use super::plan::{Act, Chore, Finalizer, OldClaim};
use super::take_snapshot::take_snapshot;
use crate::api::MasterCluster;
use crate::api::names::{FIELD_MANAGER, FINALIZER, ROLE_LABEL};
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Compare, Failure, KeyRange, Op, Request, Response, Txn};

/// Timeout of a write to etcd.
const ETCD_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of deleting a whole log in etcd.
const DELETION_TIMEOUT: Duration = Duration::from_secs(30);

/// Delay before a failed call is retried.
const PAUSE: Duration = Duration::from_secs(1);

/// Writes the role labels, one after the other.
///
/// # Errors
///
/// With the first label that could not be written. Later ones are not tried: the label of the new primary must not be
/// written before that of the old one is gone.
pub async fn relabel(writer: &Writer, namespace: &str, labels: &[Relabel]) -> Result<(), WriteError> {
    let api: Api<Pod> = Api::namespaced(writer.client.clone(), namespace);
    for Relabel { pod, uid, role } in labels {
        writer.permit()?;
        // With its uid, so that a pod that was recreated meanwhile does not inherit the role.
        let patch = json!({"metadata": {"uid": uid, "labels": {ROLE_LABEL: role}}});
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        match api.patch_metadata(pod, &params, &Patch::Merge(patch)).await {
            Ok(_) => {
                writer.metrics.wrote(Write::Label);
                tracing::info!(namespace, pod, role, "labelled");
            }
            // The pod is gone, or was recreated: the next pass sees it.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
            Err(source) => return Err(failed("Pod", pod, source)),
        }
    }
    Ok(())
}

/// Adds or removes the finalizer. Returns false if a concurrent write to the resource prevented that.
///
/// # Errors
///
/// If the resource could not be written.
pub async fn finalize(
    writer: &Writer,
    cluster: &MasterCluster,
    what: &Finalizer,
) -> Result<bool, WriteError> {
    let mut finalizers = cluster.finalizers().to_vec();
    match what {
        Finalizer::Leave => return Ok(true),
        Finalizer::Add => finalizers.push(FINALIZER.to_owned()),
        Finalizer::Withdraw | Finalizer::Remove(_) => finalizers.retain(|finalizer| finalizer != FINALIZER),
    }
    writer.permit()?;
    let api: Api<MasterCluster> =
        Api::namespaced(writer.client.clone(), &cluster.namespace().unwrap_or_default());
    // The patch replaces the whole list, so it is conditional on the version that was read.
    let version = cluster.resource_version();
    let patch = json!({"metadata": {"resourceVersion": version, "finalizers": finalizers}});
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let name = cluster.name_any();
    match api.patch(&name, &params, &Patch::Merge(patch)).await {
        Ok(_) => {
            writer.metrics.wrote(Write::Finalizer);
            Ok(true)
        }
        // The resource is gone already.
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
        Err(source) => Err(failed("MasterCluster", &name, source)),
    }
}

/// Executes the disruptive act of a pass.
///
/// # Errors
///
/// If Kubernetes refused it. A later pass sees the answers of masters and etcd.
pub async fn act(
    writer: &Arc<Writer>,
    cluster: &MasterCluster,
    etcd_session: Option<&EtcdSession>,
    credentials: Option<&Credentials>,
    act: Act,
) -> Result<(), WriteError> {
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    writer.permit()?;
    match act {
        Act::EndMasters => end_masters(writer, &namespace, &name).await?,
        Act::ReplaceStatefulSet { uid } => {
            let api: Api<StatefulSet> = Api::namespaced(writer.client.clone(), &namespace);
            // Without its pods, which go on.
            delete(writer, &api, &name, &uid, &DeleteParams::orphan()).await?;
        }
        Act::DeleteClaims { claims } => {
            let api: Api<PersistentVolumeClaim> = Api::namespaced(writer.client.clone(), &namespace);
            for OldClaim { name, uid } in claims {
                delete(writer, &api, &name, &uid, &DeleteParams::background()).await?;
            }
        }
        Act::DeleteKeys { log } => {
            if let Some(etcd_session) = etcd_session {
                delete_keys(writer, etcd_session, log);
            }
        }
        Act::TakeSnapshot { request_id, candidates } => {
            if let (Some(etcd_session), Some(credentials)) = (etcd_session, credentials) {
                take_snapshot(writer, etcd_session, credentials.clone(), request_id, candidates);
            }
        }
        Act::Switchover { request_id, to, address } => {
            if let (Some(etcd_session), Some(credentials)) = (etcd_session, credentials) {
                switch_over(writer, etcd_session, credentials.clone(), request_id, to, address);
            }
        }
    }
    Ok(())
}

async fn end_masters(writer: &Writer, namespace: &str, name: &str) -> Result<(), WriteError> {
    let api: Api<StatefulSet> = Api::namespaced(writer.client.clone(), namespace);
    let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    // Scaled down, not deleted: the StatefulSet's status then shows when no pod is left (`plan::deletion`).
    match api.patch(name, &params, &Patch::Merge(json!({"spec": {"replicas": 0}}))).await {
        Ok(_) => {
            writer.metrics.wrote(Write::Apply);
            Ok(())
        }
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(source) => Err(failed("StatefulSet", name, source)),
    }
}

fn switch_over(
    writer: &Arc<Writer>,
    etcd_session: &EtcdSession,
    credentials: Credentials,
    request_id: String,
    to: Option<String>,
    address: String,
) {
    let again = {
        let mut calls = etcd_session.calls.lock();
        if calls.switchover.is_running() {
            return;
        }
        let again = matches!(&calls.switchover, Call::Done(id, Err(_)) if *id == request_id);
        calls.switchover = Call::Running(request_id.clone());
        again
    };
    let writer = Arc::clone(writer);
    let call = async move {
        if again {
            tokio::time::sleep(PAUSE).await;
        }
        // The Lease may have been lost since the pass that planned this.
        if let Err(why) = writer.permit() {
            return Err(CallError::NoAnswer(why.to_string()));
        }
        let result = admin_client::switchover(&address, to, &credentials).await;
        if let Err(why) = &result {
            tracing::warn!(?why, address, "the primary refused a switchover or did not answer");
            writer.metrics.call_failed("switchover");
        }
        result
    };
    etcd_session.spawn(call, move |calls, result| calls.switchover = Call::Done(request_id, result));
}

fn delete_keys(writer: &Arc<Writer>, etcd_session: &EtcdSession, log: Option<String>) {
    let again = {
        let mut calls = etcd_session.calls.lock();
        if calls.deletion.is_running() {
            return;
        }
        let again = matches!(calls.deletion, Call::Done(..));
        calls.deletion = Call::Running(String::new());
        calls.deletion_attempts += 1;
        again
    };
    let (etcd, keys, writer) = (etcd_session.etcd.clone(), etcd_session.keys.clone(), Arc::clone(writer));
    let call = async move {
        if again {
            tokio::time::sleep(PAUSE).await;
        }
        writer.permit().map_err(|why| KeysLeft::Failed(why.to_string()))?;
        keys_of_cluster::delete(&etcd, &keys, log.as_deref(), DELETION_TIMEOUT).await?;
        writer.metrics.wrote(Write::EtcdKey);
        Ok(())
    };
    etcd_session.spawn(call, |calls, result| calls.deletion = Call::Done(String::new(), result));
}

/// Starts the chores of a pass, none of which clients notice.
pub fn chores(writer: &Arc<Writer>, etcd_session: &EtcdSession, chores: Vec<Chore>) {
    for chore in chores {
        match chore {
            Chore::AskPromotion { term, address } => ask_promotion(writer, etcd_session, term, address),
            Chore::DeleteMemberKey { name, mod_revision } => {
                let key = etcd_session.keys.member(&name);
                remove_key(writer, etcd_session, key, mod_revision);
            }
            Chore::DeleteSwitchoverKey { mod_revision } => {
                remove_key(writer, etcd_session, etcd_session.keys.switchover(), mod_revision);
            }
        }
    }
}

fn ask_promotion(writer: &Arc<Writer>, etcd_session: &EtcdSession, term: u64, address: String) {
    {
        let mut calls = etcd_session.calls.lock();
        if calls.asking {
            return;
        }
        calls.asking = true;
    }
    let writer = Arc::clone(writer);
    let call = async move {
        let report = admin_client::promotion(&address).await;
        // Before it serves, the primary still reports an earlier term.
        let report = report.and_then(|report| {
            if report.term == term { Ok(report) } else { Err(format!("{address} reports another term")) }
        });
        if let Err(why) = &report {
            tracing::debug!(why, "cannot read the promotion report of the primary");
            writer.metrics.call_failed("promotion");
            tokio::time::sleep(PAUSE).await;
        }
        PromotionAnswer { term, report }
    };
    etcd_session.spawn(call, |calls, answer| {
        calls.asking = false;
        calls.promotion = Some(answer);
    });
}

fn remove_key(writer: &Arc<Writer>, etcd_session: &EtcdSession, key: bytes::Bytes, mod_revision: u64) {
    let (etcd, writer) = (etcd_session.etcd.clone(), Arc::clone(writer));
    etcd_session.run(async move {
        if writer.permit().is_err() {
            return;
        }
        match remove_if(&etcd, key.clone(), mod_revision).await {
            Ok(true) => {
                writer.metrics.wrote(Write::EtcdKey);
                tracing::info!(key = %String::from_utf8_lossy(&key), "removed a stale key from etcd");
            }
            Ok(false) => {}
            // As long as the key is there, later passes see it and plan the removal again.
            Err(failure) => tracing::warn!(%failure, "cannot remove a stale key from etcd"),
        }
    });
}

/// Deletes a key if its mod revision is unchanged. Returns whether it was deleted.
async fn remove_if(etcd: &Etcd, key: bytes::Bytes, mod_revision: u64) -> Result<bool, Failure> {
    let compare = vec![Compare::ModRevision { key: key.clone(), equals: mod_revision }];
    let txn = Txn { compare, success: vec![Op::Delete(KeyRange::key(key))], failure: Vec::new() };
    match etcd.call(Request::Txn(txn), ETCD_TIMEOUT).await? {
        Response::Txn { succeeded, .. } => Ok(succeeded),
        other => Err(Failure::unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use kube::{Client, Config};
    use tokio::net::TcpListener;

    use super::*;
    use crate::cluster::keys::Keys;
    use crate::coordination::etcd::EtcdSettings;
    use crate::operator::credentials;
    use crate::operator::etcd_access::Access;
    use crate::operator::lease::WriteRight;
    use crate::operator::metrics::Metrics;

    /// Longer than the pause before a call; only a failing test waits this long.
    const PATIENCE: Duration = Duration::from_secs(30);

    /// Two calls that failed once and are retried after a pause, in which the Lease goes to another operator.
    #[tokio::test]
    async fn a_call_is_not_made_when_the_lease_was_lost_before_it() {
        let (woken, mut wakes) = tokio::sync::mpsc::unbounded_channel();
        let settings = EtcdSettings::new(["http://127.0.0.1:1"]);
        let access = Access { settings, keys: Keys::new("demo"), client_certificate: false, fingerprint: 0 };
        let wake = Arc::new(move || woken.send(()).unwrap_or_default());
        let etcd_session = EtcdSession::start(access, wake).unwrap();
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let (lease, right) = WriteRight::unconditional();
        let writer = Arc::new(Writer::new(client, right, Metrics::new().unwrap()));
        let admin = credentials::keep_or_make(None, Some("demo.team.svc")).unwrap();
        let ca = admin.certificate.unwrap().ca;
        let credentials = Credentials::new(admin.token, ca.as_bytes(), "demo.team.svc").unwrap();
        let master = TcpListener::bind("127.0.0.1:0").await.unwrap();
        {
            let mut calls = etcd_session.calls.lock();
            calls.switchover =
                Call::Done("one".to_owned(), Err(CallError::NoAnswer("the first time".to_owned())));
            calls.deletion = Call::Done(String::new(), Err(KeysLeft::Failed("the first time".to_owned())));
        }
        let address = master.local_addr().unwrap().to_string();
        switch_over(&writer, &etcd_session, credentials, "one".to_owned(), None, address);
        delete_keys(&writer, &etcd_session, None);
        lease.send_replace(None);
        let ended = async {
            loop {
                wakes.recv().await.unwrap();
                let calls = etcd_session.calls.lock();
                if !calls.switchover.is_running() && !calls.deletion.is_running() {
                    return;
                }
            }
        };
        tokio::select! {
            _ = master.accept() => panic!("a primary was asked without the Lease"),
            ended = tokio::time::timeout(PATIENCE, ended) => ended.unwrap(),
        }
        let calls = etcd_session.calls.lock().clone();
        let lost = WriteError::NotHolder.to_string();
        assert!(matches!(calls.switchover, Call::Done(_, Err(CallError::NoAnswer(why))) if why == lost));
        assert!(matches!(calls.deletion, Call::Done(_, Err(KeysLeft::Failed(why))) if why == lost));
    }
}
