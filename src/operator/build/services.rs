//! The Services of a cluster. Mooncake clients that use etcd need none of these.

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

/// Builds the headless Service. It gives pods their DNS names even before they are ready: a master that catches up must
/// be reachable as well.
pub(super) fn headless(identity: &Identity, spec: &MasterClusterSpec) -> Service {
    let ports = with_metadata(spec, &[RPC, HTTP, ADMIN, PEER]);
    let mut service = service(identity, headless_service(&identity.name), &ports);
    if let Some(spec) = &mut service.spec {
        spec.cluster_ip = Some("None".to_owned());
        spec.publish_not_ready_addresses = Some(true);
    }
    service
}

/// Builds the Service of the primary. It follows the role label alone, not readiness: the operator writes the label
/// when a master has won the election, and that master must be reachable at once, not after its next readiness probe. A
/// client that connects before the port is open is refused and retries, which is better than no answer at all.
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

/// Builds the Service of all ready masters, for requests that each of them can answer. Without the port for Mooncake
/// clients, which only the primary has open.
pub(super) fn masters(identity: &Identity) -> Service {
    service(identity, masters_service(&identity.name), &[HTTP, ADMIN])
}

/// Adds the port of the metadata server if that is enabled. Only the primary accepts changes there.
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
