//! How masters are found in DNS. Mooncake clients that know etcd need none of these.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::identity::Identity;
use crate::api::MasterClusterSpec;
use crate::api::names::{
    ADMIN_PORT, HTTP_PORT, METADATA_PORT, PEER_PORT, ROLE_LABEL, ROLE_PRIMARY, RPC_PORT, headless_service,
    leader_service, masters_service,
};

const RPC: (&str, u16) = ("rpc", RPC_PORT);
const HTTP: (&str, u16) = ("http", HTTP_PORT);
const ADMIN: (&str, u16) = ("admin", ADMIN_PORT);
const PEER: (&str, u16) = ("peer", PEER_PORT);
const METADATA: (&str, u16) = ("metadata", METADATA_PORT);

/// Gives pods their names in DNS from their first moment on: a master that catches up is spoken to as well.
pub(super) fn headless(identity: &Identity, spec: &MasterClusterSpec) -> Service {
    let ports = with_metadata(spec, &[RPC, HTTP, ADMIN, PEER]);
    let mut service = service(identity, headless_service(&identity.name), &ports);
    if let Some(spec) = &mut service.spec {
        spec.cluster_ip = Some("None".to_owned());
        spec.publish_not_ready_addresses = Some(true);
    }
    service
}

/// Leads to the primary. It follows the label alone: the operator writes that when a master has won the election, and
/// a master that just has must be reachable at once, not when the next probe of its readiness comes round. Whoever
/// arrives before its port is open is refused and tries again, which is better than no answer at all.
pub(super) fn leader(identity: &Identity, spec: &MasterClusterSpec) -> Service {
    let ports = with_metadata(spec, &[RPC, HTTP, ADMIN]);
    let mut service = service(identity, leader_service(&identity.name), &ports);
    if let Some(spec) = &mut service.spec {
        if let Some(selector) = &mut spec.selector {
            selector.insert(ROLE_LABEL.to_owned(), ROLE_PRIMARY.to_owned());
        }
        spec.publish_not_ready_addresses = Some(true);
    }
    service
}

/// Leads to any master that is caught up, for questions that each of them can answer. Without the port for Mooncake
/// clients, which only the primary has open.
pub(super) fn masters(identity: &Identity) -> Service {
    service(identity, masters_service(&identity.name), &[HTTP, ADMIN])
}

/// The ports, and that of the metadata server if there is one. Only the primary takes changes there.
fn with_metadata(spec: &MasterClusterSpec, ports: &[(&'static str, u16)]) -> Vec<(&'static str, u16)> {
    ports.iter().copied().chain(spec.metadata_server.enabled.then_some(METADATA)).collect()
}

fn service(identity: &Identity, name: String, ports: &[(&str, u16)]) -> Service {
    let selector: BTreeMap<String, String> = identity.selector_labels();
    let ports = ports.iter().map(|(name, port)| ServicePort {
        name: Some((*name).to_owned()),
        port: i32::from(*port),
        target_port: Some(IntOrString::String((*name).to_owned())),
        protocol: Some("TCP".to_owned()),
        ..ServicePort::default()
    });
    Service {
        metadata: identity.metadata(name),
        spec: Some(ServiceSpec {
            type_: Some("ClusterIP".to_owned()),
            selector: Some(selector),
            ports: Some(ports.collect()),
            ..ServiceSpec::default()
        }),
        ..Service::default()
    }
}
