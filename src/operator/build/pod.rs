//! The pod of a master.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Capabilities, ConfigMapVolumeSource, Container, ContainerPort, EnvVar, EnvVarSource,
    HTTPGetAction, ObjectFieldSelector, PodSecurityContext, PodSpec, PodTemplateSpec, Probe,
    ResourceRequirements, SeccompProfile, SecretVolumeSource, SecurityContext, TopologySpreadConstraint,
    Volume, VolumeMount,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::folders::{
    ADMIN_FOLDER, ADMIN_TLS_FOLDER, CONFIG_FOLDER, ETCD_CREDENTIALS_FOLDER, ETCD_TLS_FOLDER,
};
use super::identity::Identity;
use super::typed::{typed, typed_list};
use super::{BuildError, Facts, companion, config, storage};
use crate::api::names::{ADMIN_PORT, CONTAINER, HTTP_PORT, METADATA_PORT, PEER_PORT, RPC_PORT, admin_secret};
use crate::api::{MasterCluster, MasterClusterSpec, PullPolicy, Spread};

/// Files of Secrets are readable for every user in the container, because the image or the platform decides which one
/// it runs as (OpenShift gives each namespace its own ids). Only containers that mount them see them.
const SECRET_MODE: i32 = 0o444;

/// Requests of a master for which the spec names neither a request nor a limit. Without any, a node that runs out of
/// memory kills the master first.
const REQUESTS: [(&str, &str); 2] = [("cpu", "250m"), ("memory", "512Mi")];

/// Keeps sidecars of service meshes out: a proxy in front of the peer port would answer for a primary that has died,
/// and standbys detect its death by the refused connection.
const NO_ISTIO: (&str, &str) = ("sidecar.istio.io/inject", "false");
const NO_LINKERD: (&str, &str) = ("linkerd.io/inject", "disabled");

/// Grace period to hand over and end. A master abandons a hand-over after 10 s, and its whole shutdown takes at most 15
/// s.
const GRACE_SECONDS: i64 = 30;

/// Maximum number of masters. Used instead of the actual number, because every change of that would make all pods out
/// of date.
const MOST_MASTERS: i32 = 7;

/// Builds the pod template of the masters, with the user's additions.
pub(super) fn template(
    identity: &Identity,
    cluster: &MasterCluster,
    facts: &Facts,
    settings: &str,
) -> Result<PodTemplateSpec, BuildError> {
    let spec = &cluster.spec;
    let added = &spec.pod_template;
    // The user's labels and annotations override ours about sidecars.
    let mut labels = text_pair(NO_ISTIO);
    labels.extend(added.labels.clone());
    labels.extend(identity.labels());
    let mut annotations = text_pair(NO_LINKERD);
    annotations.extend(added.annotations.clone());
    let master = master(cluster, facts)?;
    let init_containers = spec.failover.companion.then(|| vec![companion::container(&master)]);
    let mut containers = vec![master];
    containers.extend(typed_list::<Container>("podTemplate.containers", &added.containers)?);
    let mut volumes = volumes(identity, spec, settings);
    volumes.extend(storage::volume(spec));
    volumes.extend(spec.failover.companion.then(companion::volume));
    volumes.extend(typed_list::<Volume>("podTemplate.volumes", &added.volumes)?);
    let scheduling = &spec.scheduling;
    let affinity: Affinity = typed("scheduling.affinity", &scheduling.affinity)?;
    let priority_class = Some(scheduling.priority_class_name.clone()).filter(|name| !name.is_empty());
    let pod = PodSpec {
        affinity: (affinity != Affinity::default()).then_some(affinity),
        automount_service_account_token: Some(false),
        containers,
        // Variables for every Service of the namespace are of no use, and MOONKEEPER_* would be read as settings.
        enable_service_links: Some(false),
        init_containers,
        image_pull_secrets: some_list(typed_list("podTemplate.imagePullSecrets", &added.image_pull_secrets)?),
        node_selector: Some(scheduling.node_selector.clone()).filter(|labels| !labels.is_empty()),
        priority_class_name: priority_class,
        security_context: Some(security_context(spec, facts)?),
        service_account_name: Some(identity.name.clone()),
        termination_grace_period_seconds: Some(GRACE_SECONDS),
        tolerations: some_list(typed_list("scheduling.tolerations", &scheduling.tolerations)?),
        topology_spread_constraints: spread(identity, spec),
        volumes: Some(volumes),
        ..PodSpec::default()
    };
    let metadata =
        ObjectMeta { labels: Some(labels), annotations: Some(annotations), ..ObjectMeta::default() };
    Ok(PodTemplateSpec { metadata: Some(metadata), spec: Some(pod) })
}

fn text_pair((name, value): (&str, &str)) -> BTreeMap<String, String> {
    BTreeMap::from([(name.to_owned(), value.to_owned())])
}

/// Builds the pods' security context: the user's settings, and for the rest what the `restricted` Pod Security Standard
/// requires. No user: the image names one, and OpenShift refuses any but its own. A group only for a claim, whose volume
/// would belong to root otherwise, and not on OpenShift, which gives each namespace a group itself.
fn security_context(spec: &MasterClusterSpec, facts: &Facts) -> Result<PodSecurityContext, BuildError> {
    let given: PodSecurityContext =
        typed("podTemplate.securityContext", &spec.pod_template.security_context)?;
    let default_profile = SeccompProfile { type_: "RuntimeDefault".to_owned(), ..SeccompProfile::default() };
    let needs_group = spec.snapshots.store.volume_claim.is_some() && !facts.platform_sets_group;
    let group = given.fs_group.or(needs_group.then_some(storage::GROUP));
    // Without this the kubelet changes the group of every file at every start.
    let once = given.fs_group_change_policy.clone().or(needs_group.then(|| "OnRootMismatch".to_owned()));
    Ok(PodSecurityContext {
        fs_group: group,
        fs_group_change_policy: once,
        run_as_non_root: given.run_as_non_root.or(Some(true)),
        seccomp_profile: given.seccomp_profile.or(Some(default_profile)),
        ..given
    })
}

fn some_list<T>(list: Vec<T>) -> Option<Vec<T>> {
    (!list.is_empty()).then_some(list)
}

/// Builds the container of the master.
fn master(cluster: &MasterCluster, facts: &Facts) -> Result<Container, BuildError> {
    let spec = &cluster.spec;
    let mut env = vec![pod_field("POD_IP", "status.podIP"), pod_field("POD_NAME", "metadata.name")];
    env.extend(typed_list::<EnvVar>("podTemplate.env", &spec.pod_template.env)?);
    let mut mounts = mounts(spec);
    mounts.push(storage::mount());
    mounts.extend(spec.failover.companion.then(companion::mount));
    mounts.extend(typed_list::<VolumeMount>("podTemplate.volumeMounts", &spec.pod_template.volume_mounts)?);
    let mut ports = vec![("rpc", RPC_PORT), ("http", HTTP_PORT), ("admin", ADMIN_PORT), ("peer", PEER_PORT)];
    ports.extend(spec.metadata_server.enabled.then_some(("metadata", METADATA_PORT)));
    Ok(Container {
        name: CONTAINER.to_owned(),
        image: Some(facts.image.clone()),
        image_pull_policy: Some(
            match spec.image.pull_policy {
                PullPolicy::Always => "Always",
                PullPolicy::IfNotPresent => "IfNotPresent",
                PullPolicy::Never => "Never",
            }
            .to_owned(),
        ),
        args: Some(vec!["master".to_owned(), format!("--config_path={CONFIG_FOLDER}/{}", config::FILE)]),
        env: Some(env),
        ports: Some(
            ports
                .iter()
                .map(|(name, port)| ContainerPort {
                    name: Some((*name).to_owned()),
                    container_port: i32::from(*port),
                    protocol: Some("TCP".to_owned()),
                    ..ContainerPort::default()
                })
                .collect(),
        ),
        // Ready means that it serves or could take over at once. It does not mean that it leads.
        readiness_probe: Some(Probe {
            period_seconds: Some(2),
            timeout_seconds: Some(2),
            failure_threshold: Some(2),
            ..probe("/ready")
        }),
        // Alive means that its own loop still runs, independently of etcd and the primary: killing masters because etcd
        // is unavailable would make a short outage a long one. Half a minute tolerates an overloaded machine.
        liveness_probe: Some(Probe {
            period_seconds: Some(10),
            timeout_seconds: Some(5),
            failure_threshold: Some(3),
            ..probe("/live")
        }),
        resources: Some(resources(spec)),
        security_context: Some(SecurityContext {
            allow_privilege_escalation: Some(false),
            capabilities: Some(Capabilities {
                drop: Some(vec!["ALL".to_owned()]),
                ..Capabilities::default()
            }),
            read_only_root_filesystem: Some(true),
            run_as_non_root: Some(true),
            ..SecurityContext::default()
        }),
        // So the end of its log is in the status of the pod.
        termination_message_policy: Some("FallbackToLogsOnError".to_owned()),
        volume_mounts: Some(mounts),
        ..Container::default()
    })
}

fn probe(path: &str) -> Probe {
    Probe {
        http_get: Some(HTTPGetAction {
            path: Some(path.to_owned()),
            port: IntOrString::String("http".to_owned()),
            scheme: Some("HTTP".to_owned()),
            ..HTTPGetAction::default()
        }),
        ..Probe::default()
    }
}

fn pod_field(name: &str, path: &str) -> EnvVar {
    let field = ObjectFieldSelector { api_version: Some("v1".to_owned()), field_path: path.to_owned() };
    EnvVar {
        name: name.to_owned(),
        value_from: Some(EnvVarSource { field_ref: Some(field), ..EnvVarSource::default() }),
        ..EnvVar::default()
    }
}

fn resources(spec: &MasterClusterSpec) -> ResourceRequirements {
    let quantities = |amounts: &BTreeMap<String, IntOrString>| {
        let amounts = amounts.iter().map(|(name, amount)| {
            let text = match amount {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(text) => text.clone(),
            };
            (name.clone(), Quantity(text))
        });
        amounts.collect::<BTreeMap<_, _>>()
    };
    let (mut requests, limits) = (quantities(&spec.resources.requests), quantities(&spec.resources.limits));
    for (name, amount) in REQUESTS {
        // Kubernetes uses a limit without a request as the request, and ours could be above that limit.
        if !limits.contains_key(name) {
            requests.entry(name.to_owned()).or_insert_with(|| Quantity(amount.to_owned()));
        }
    }
    ResourceRequirements {
        requests: Some(requests).filter(|amounts| !amounts.is_empty()),
        limits: Some(limits).filter(|amounts| !amounts.is_empty()),
        ..ResourceRequirements::default()
    }
}

/// Returns the Secrets that the user names: volume, Secret, folder.
fn named_secrets(spec: &MasterClusterSpec) -> impl Iterator<Item = (&'static str, &str, &'static str)> {
    [
        ("admin-tls", spec.admin.tls_secret_name.as_str(), ADMIN_TLS_FOLDER),
        ("etcd-tls", spec.etcd.tls_secret_name.as_str(), ETCD_TLS_FOLDER),
        ("etcd-credentials", spec.etcd.credentials_secret_name.as_str(), ETCD_CREDENTIALS_FOLDER),
    ]
    .into_iter()
    .filter(|(_, secret, _)| !secret.is_empty())
}

fn volumes(identity: &Identity, spec: &MasterClusterSpec, settings: &str) -> Vec<Volume> {
    let secret = |name: &str, secret: &str| Volume {
        name: name.to_owned(),
        secret: Some(SecretVolumeSource {
            secret_name: Some(secret.to_owned()),
            default_mode: Some(SECRET_MODE),
            ..SecretVolumeSource::default()
        }),
        ..Volume::default()
    };
    let config = Volume {
        name: "config".to_owned(),
        config_map: Some(ConfigMapVolumeSource {
            name: config::name(identity, settings),
            ..ConfigMapVolumeSource::default()
        }),
        ..Volume::default()
    };
    let mut volumes = vec![config, secret("admin", &admin_secret(&identity.name))];
    volumes.extend(named_secrets(spec).map(|(name, named, _)| secret(name, named)));
    volumes
}

fn mounts(spec: &MasterClusterSpec) -> Vec<VolumeMount> {
    let mount = |(name, folder): (&str, &str)| VolumeMount {
        name: name.to_owned(),
        mount_path: folder.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    };
    let own = [("config", CONFIG_FOLDER), ("admin", ADMIN_FOLDER)];
    own.into_iter().chain(named_secrets(spec).map(|(name, _, folder)| (name, folder))).map(mount).collect()
}

/// Builds the spread constraints. `Required` demands at least as many domains as there can be masters, which means one
/// master in each: with fewer, Kubernetes would accept three masters on one node if it is the only node.
fn spread(identity: &Identity, spec: &MasterClusterSpec) -> Option<Vec<TopologySpreadConstraint>> {
    let (when, min_domains) = match spec.scheduling.spread {
        Spread::None => return None,
        Spread::Preferred => ("ScheduleAnyway", None),
        Spread::Required => ("DoNotSchedule", Some(MOST_MASTERS)),
    };
    Some(vec![TopologySpreadConstraint {
        label_selector: Some(identity.selector()),
        max_skew: 1,
        min_domains,
        topology_key: spec.scheduling.topology_key.clone(),
        when_unsatisfiable: when.to_owned(),
        ..TopologySpreadConstraint::default()
    }])
}
