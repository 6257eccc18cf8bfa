//! Access objects: the ServiceAccount of masters, the admin Secret, and the NetworkPolicy.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use k8s_openapi::api::networking::v1::{
    NetworkPolicy, NetworkPolicyIngressRule, NetworkPolicyPeer, NetworkPolicyPort, NetworkPolicySpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::identity::Identity;
use super::typed::typed_list;
use super::{AdminCredentials, BuildError, Facts};
use crate::api::MasterCluster;
use crate::api::names::{
    ADMIN_PORT, APP, CA_KEY, CERT_KEY, HTTP_PORT, METADATA_PORT, OPERATOR_COMPONENT, PEER_PORT,
    PRIVATE_KEY_KEY, RPC_PORT, TOKEN_KEY, admin_secret as admin_secret_name,
};

/// Builds the ServiceAccount, without a token: masters never call the API server.
pub(super) fn service_account(identity: &Identity) -> ServiceAccount {
    ServiceAccount {
        metadata: identity.metadata(identity.name.clone()),
        automount_service_account_token: Some(false),
        ..ServiceAccount::default()
    }
}

/// Builds the Secret with the token and certificate of the admin API.
pub(super) fn admin_secret(identity: &Identity, admin: &AdminCredentials) -> Secret {
    let mut data = BTreeMap::from([(TOKEN_KEY, admin.token.clone())]);
    if let Some(certificate) = &admin.certificate {
        data.insert(CA_KEY, certificate.ca.clone());
        data.insert(CERT_KEY, certificate.cert.clone());
        data.insert(PRIVATE_KEY_KEY, certificate.key.clone());
    }
    let data = data.into_iter().map(|(name, text)| (name.to_owned(), ByteString(text.into_bytes())));
    Secret {
        metadata: identity.metadata(admin_secret_name(&identity.name)),
        type_: Some("Opaque".to_owned()),
        data: Some(data.collect()),
        ..Secret::default()
    }
}

/// Builds the NetworkPolicy. Every client may read over HTTP, as in the reference. Egress is not limited, because the
/// operator does not know which addresses etcd has.
pub(super) fn network_policy(
    identity: &Identity,
    cluster: &MasterCluster,
    facts: &Facts,
) -> Result<Option<NetworkPolicy>, BuildError> {
    let asked = &cluster.spec.network_policy;
    if !asked.enabled {
        return Ok(None);
    }
    let clients: Vec<NetworkPolicyPeer> = typed_list("networkPolicy.clients", &asked.clients)?;
    let everybody: Vec<NetworkPolicyPeer> = Vec::new();
    let masters =
        NetworkPolicyPeer { pod_selector: Some(identity.selector()), ..NetworkPolicyPeer::default() };
    let operator = NetworkPolicyPeer {
        namespace_selector: Some(labels([(
            "kubernetes.io/metadata.name",
            facts.operator_namespace.as_str(),
        )])),
        pod_selector: Some(labels([
            ("app.kubernetes.io/component", OPERATOR_COMPONENT),
            ("app.kubernetes.io/name", APP),
        ])),
        ..NetworkPolicyPeer::default()
    };
    let metadata = cluster.spec.metadata_server.enabled.then(|| let_in(METADATA_PORT, clients.clone()));
    let mut ingress = vec![
        let_in(RPC_PORT, clients),
        let_in(HTTP_PORT, everybody),
        let_in(ADMIN_PORT, vec![operator]),
        let_in(PEER_PORT, vec![masters]),
    ];
    ingress.extend(metadata);
    Ok(Some(NetworkPolicy {
        metadata: identity.metadata(identity.name.clone()),
        spec: Some(NetworkPolicySpec {
            pod_selector: Some(identity.selector()),
            policy_types: Some(vec!["Ingress".to_owned()]),
            ingress: Some(ingress),
            ..NetworkPolicySpec::default()
        }),
    }))
}

fn labels<const N: usize>(pairs: [(&str, &str); N]) -> LabelSelector {
    let pairs = pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned()));
    LabelSelector { match_labels: Some(pairs.collect()), ..LabelSelector::default() }
}

/// Builds a rule that admits `from` to a port; all sources if the list is empty.
fn let_in(port: u16, from: Vec<NetworkPolicyPeer>) -> NetworkPolicyIngressRule {
    NetworkPolicyIngressRule {
        from: (!from.is_empty()).then_some(from),
        ports: Some(vec![NetworkPolicyPort {
            port: Some(IntOrString::Int(i32::from(port))),
            protocol: Some("TCP".to_owned()),
            ..NetworkPolicyPort::default()
        }]),
    }
}
