//! Writes the status of a resource, and never that of a recreated one with the same name.

use kube::api::{Patch, PatchParams};
use kube::{Api, Resource as _, ResourceExt};
use serde_json::json;

use super::apply::{WriteError, Writer, failed};
use super::metrics::Write;
use crate::api::names::FIELD_MANAGER;
use crate::api::{MasterCluster, MasterClusterStatus};

/// Writes the status. Returns the updated resource, or `None` if it no longer exists.
///
/// # Errors
///
/// If this process does not hold the Lease, or the API server refuses.
pub async fn write_status(
    writer: &Writer,
    cluster: &MasterCluster,
    status: &MasterClusterStatus,
) -> Result<Option<MasterCluster>, WriteError> {
    writer.permit()?;
    let (namespace, name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let api: Api<MasterCluster> = Api::namespaced(writer.client.clone(), &namespace);
    let patch = json!({
        "apiVersion": MasterCluster::api_version(&()),
        "kind": MasterCluster::kind(&()),
        // With its uid, so that a resource that was recreated meanwhile does not inherit the status.
        "metadata": {"name": name, "uid": cluster.metadata.uid},
        "status": status,
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    match api.patch_status(&name, &params, &Patch::Apply(patch)).await {
        Ok(written) => {
            writer.metrics.wrote(Write::Status);
            Ok(Some(written))
        }
        // It was deleted or recreated meanwhile.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(None),
        Err(source) => Err(failed("the status of MasterCluster", &name, source)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use axum::extract::State;
    use axum::http::StatusCode;
    use axum::routing::patch;
    use axum::{Json, Router};
    use kube::{Client, Config};
    use parking_lot::Mutex;
    use serde_json::Value;
    use tokio::net::TcpListener;

    use super::*;
    use crate::operator::lease::WriteRight;
    use crate::operator::metrics::Metrics;

    /// The patches that a fake API server received, which has `demo` with the uid `second`.
    type Patches = Arc<Mutex<Vec<Value>>>;

    async fn answer(State(patches): State<Patches>, body: String) -> (StatusCode, Json<Value>) {
        let patch: Value = serde_json::from_str(&body).unwrap();
        let uid = patch["metadata"]["uid"].clone();
        let spec = json!({"etcd": {"endpoints": ["http://e:1"]}});
        let metadata = json!({"name": "demo", "namespace": "team", "uid": "second", "resourceVersion": "7"});
        patches.lock().push(patch);
        // A patch without a uid applies to whichever resource has the name.
        if uid == "second" || uid.is_null() {
            let kind = json!({"apiVersion": "moonkeeper.dev/v1alpha1", "kind": "MasterCluster"});
            let resource = json!({"apiVersion": kind["apiVersion"], "kind": kind["kind"], "metadata": metadata, "spec": spec});
            return (StatusCode::OK, Json(resource));
        }
        let refused = json!({"kind": "Status", "status": "Failure", "reason": "Conflict", "code": 409, "message": "uid"});
        (StatusCode::CONFLICT, Json(refused))
    }

    async fn writer(patches: &Patches) -> Writer {
        let path = "/apis/moonkeeper.dev/v1alpha1/namespaces/team/masterclusters/demo/status";
        let routes = Router::new().route(path, patch(answer)).with_state(Arc::clone(patches));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        let client = Client::try_from(Config::new(address.parse().unwrap())).unwrap();
        // The sender may be dropped: `holds` does not need it.
        let (_, right) = WriteRight::unconditional();
        Writer::new(client, right, Metrics::new().unwrap())
    }

    fn cluster(uid: &str) -> MasterCluster {
        let mut cluster = MasterCluster::new(
            "demo",
            serde_json::from_value(json!({"etcd": {"endpoints": ["http://e:1"]}})).unwrap(),
        );
        cluster.metadata.namespace = Some("team".to_owned());
        cluster.metadata.uid = Some(uid.to_owned());
        cluster
    }

    #[tokio::test]
    async fn one_that_was_made_again_does_not_inherit_the_status() {
        let patches = Patches::default();
        let writer = writer(&patches).await;
        let status = MasterClusterStatus { term: Some(5), ..MasterClusterStatus::default() };
        let written = write_status(&writer, &cluster("first"), &status).await.unwrap();
        assert!(written.is_none(), "the status of the first resource was written to the second");
        let written = write_status(&writer, &cluster("second"), &status).await.unwrap();
        assert_eq!(written.unwrap().metadata.resource_version.as_deref(), Some("7"));
        let terms: Vec<Value> = patches.lock().iter().map(|patch| patch["status"]["term"].clone()).collect();
        assert_eq!(terms, [json!(5), json!(5)]);
    }
}
