//! What is handed to Kubernetes: the definition of MasterCluster, and the objects that are made for one. The files
//! beside this one are what is expected; `MOONKEEPER_BLESS=1 cargo test --test operator` writes them anew.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{PodTemplateSpec, Secret};
use moonkeeper::api::{Ephemeral, MasterCluster, SnapshotStore};
use moonkeeper::coordination::etcd::{LoginFiles, UserName};
use moonkeeper::master::settings::command_line::{Parsed, parse};
use moonkeeper::master::settings::companion::CompanionSettings;
use moonkeeper::master::settings::ha::{Durability, Expired};
use moonkeeper::master::settings::peer::PeerAuth;
use moonkeeper::master::settings::{HaSettings, Settings};
use moonkeeper::operator::build::{AdminCredentials, BuildError, Certificate, Facts, Objects, objects};
use serde::Serialize;
use serde_json::{Value, json};

/// A version that no operator has.
const IMAGE: &str = "ghcr.io/moonkeeper/moonkeeper:9.8.7";

fn file(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn case(name: &str) -> MasterCluster {
    let text = std::fs::read_to_string(file(&format!("tests/operator/objects/cases/{name}.yaml"))).unwrap();
    serde_saphyr::from_str(&text).unwrap()
}

fn pem(what: &str) -> String {
    format!("-----BEGIN {what}-----\n")
}

fn facts() -> Facts {
    Facts {
        image: IMAGE.to_owned(),
        operator_namespace: "moonkeeper-system".to_owned(),
        admin: AdminCredentials {
            token: "a-token-of-some-length".to_owned(),
            certificate: Some(Certificate {
                ca: pem("CERTIFICATE"),
                cert: pem("CERTIFICATE"),
                key: pem("PRIVATE KEY"),
            }),
        },
        etcd_client_certificate: false,
        platform_sets_group: false,
    }
}

/// The case with this name, with what is known there.
fn built(name: &str) -> Objects {
    let cluster = case(name);
    let mut facts = facts();
    if name == "production" {
        facts.image = "registry.example:5000/moonkeeper:1.2.3".to_owned();
        facts.etcd_client_certificate = true;
        facts.admin.certificate = None;
    }
    objects(&cluster, &facts).unwrap()
}

const CASES: [&str; 3] = ["minimal", "production", "bare"];

/// All objects as one file for `kubectl apply`.
fn text(objects: Objects) -> String {
    let Objects {
        service_account,
        config_map,
        admin_secret,
        headless_service,
        leader_service,
        masters_service,
        pod_disruption_budget,
        network_policy,
        stateful_set,
    } = objects;
    let mut parts = vec![
        yaml(&service_account),
        yaml(&config_map),
        yaml(&admin_secret),
        yaml(&headless_service),
        yaml(&leader_service),
        yaml(&masters_service),
        yaml(&pod_disruption_budget),
    ];
    parts.extend(network_policy.iter().map(yaml));
    parts.push(yaml(&stateful_set));
    parts.join("---\n")
}

fn yaml(object: &impl Serialize) -> String {
    serde_saphyr::to_string(object).unwrap()
}

/// Fails if the file is not what it should be, or writes it if that was asked for.
fn expect(path: &str, text: &str) {
    let path = file(path);
    if std::env::var_os("MOONKEEPER_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    let same = kept.lines().zip(text.lines()).take_while(|(kept, new)| kept == new).count();
    assert!(
        kept == text,
        "{} is not what it should be from line {} on: {:?}, not {:?}; MOONKEEPER_BLESS=1 writes it anew",
        path.display(),
        same + 1,
        text.lines().nth(same),
        kept.lines().nth(same),
    );
}

#[test]
fn the_definition_is_what_the_command_prints() {
    expect("crds/masterclusters.moonkeeper.dev.yaml", &moonkeeper::cli::crd::text().unwrap());
}

#[test]
fn the_definition_fits_into_the_annotation_of_a_plain_apply() {
    // `kubectl apply` keeps the whole object as JSON in an annotation; all annotations together have 256 KiB.
    let size = serde_json::to_vec(&moonkeeper::api::crd()).unwrap().len();
    assert!(size < 64 << 10, "{size} bytes");
}

#[test]
fn objects_are_those_that_are_expected() {
    for name in CASES {
        expect(&format!("tests/operator/objects/expected/{name}.yaml"), &text(built(name)));
    }
}

#[test]
fn objects_do_not_name_the_version_of_the_operator() {
    for name in CASES {
        let text = text(built(name));
        let version = env!("CARGO_PKG_VERSION");
        assert!(!text.contains(version), "{name} names {version}");
    }
}

#[test]
fn every_object_has_the_owner_and_the_label_that_it_is_found_by() {
    for name in CASES {
        for part in text(built(name)).split("---\n") {
            let object: Value = serde_saphyr::from_str(part).unwrap();
            let metadata = &object["metadata"];
            assert_eq!(metadata["ownerReferences"][0]["uid"], json!("11111111-2222-3333-4444-555555555555"));
            assert_eq!(metadata["ownerReferences"][0]["controller"], json!(true));
            assert_eq!(metadata["labels"]["app.kubernetes.io/managed-by"], json!("moonkeeper-operator"));
            assert_eq!(metadata["namespace"], json!("team"));
        }
    }
}

/// What the master makes of the settings file of a case, in the pod that is made for it.
fn settings(name: &str) -> Settings {
    let objects = built(name);
    let pod = objects.stateful_set.spec.unwrap().template.spec.unwrap();
    let file = objects.config_map.data.unwrap()["master.yaml"].clone();
    let env = pod.containers[0].env.as_ref().unwrap().iter().map(|variable| {
        let value = match variable.name.as_str() {
            "POD_IP" => "10.1.2.3".to_owned(),
            "POD_NAME" => format!("{name}-0"),
            _ => variable.value.clone().unwrap(),
        };
        (variable.name.clone(), value)
    });
    let read = |path: &str| match path {
        "/etc/moonkeeper/master.yaml" => Ok(file.clone()),
        _ => Err(std::io::Error::from(std::io::ErrorKind::NotFound)),
    };
    let args = pod.containers[0].args.as_ref().unwrap();
    assert_eq!(args[0], "master");
    match parse(&args[1..], &env.collect::<Vec<_>>(), &read).unwrap() {
        Parsed::Run { settings, warnings } => {
            assert!(warnings.is_empty(), "{warnings:?}");
            *settings
        }
        Parsed::Print(text) => panic!("{text}"),
    }
}

fn ha(settings: &Settings) -> &HaSettings {
    settings.ha.as_ref().unwrap()
}

#[test]
fn the_master_takes_its_settings_file() {
    let minimal = settings("minimal");
    assert_eq!(minimal.cluster_id, "team-demo");
    assert_eq!(ha(&minimal).member_name, "minimal-0");
    assert_eq!(ha(&minimal).advertise.host.as_deref(), Some("10.1.2.3"));
    assert_eq!(ha(&minimal).etcd.endpoints, ["http://etcd.team:2379"]);
    assert_eq!(ha(&minimal).durability, Durability::Strict);
    assert!(ha(&minimal).admin.token_file.is_some() && ha(&minimal).admin.tls.is_some());

    let production = settings("production");
    let ms = |duration: std::time::Duration| duration.as_millis();
    assert_eq!(production.cluster_id, "prod_cache");
    assert_eq!(ms(production.objects.lease_ttl), 5_000);
    assert_eq!(ms(ha(&production).leader_lease_ttl), 10_000);
    assert_eq!(ms(ha(&production).keep_alive_interval), 1_500);
    assert_eq!(ms(ha(&production).inherited_client_ttl), 180_000);
    assert_eq!(ms(ha(&production).lease_sync_interval), 500);
    assert_eq!(ha(&production).expired, Expired::Evict);
    assert!(matches!(ha(&production).durability, Durability::Relaxed { .. }));
    let etcd = &ha(&production).etcd;
    assert_eq!(etcd.endpoints, ["https://etcd-0.etcd:2379", "https://etcd-1.etcd:2379"]);
    let folder = std::path::Path::new("/etc/moonkeeper-etcd-credentials");
    let login =
        LoginFiles { name: UserName::File(folder.join("username")), password: folder.join("password") };
    assert_eq!(etcd.login, Some(login));
    assert!(etcd.identity.is_some() && ha(&production).admin.tls.is_some());
    assert!((production.eviction.high_watermark_ratio - 0.95).abs() < 1e-9);

    let snapshots = |settings: &Settings| ha(settings).snapshots.unwrap();
    assert!(snapshots(&minimal).durable && snapshots(&production).durable);
    assert_eq!((snapshots(&production).kept, snapshots(&production).interval.map(ms)), (3, Some(300_000)));

    let bare = settings("bare");
    assert!(!snapshots(&bare).durable);
    assert!(ha(&bare).etcd.ca.is_some() && ha(&bare).etcd.identity.is_none());
    assert!(ha(&bare).admin.tls.is_some());
}

#[test]
fn the_defaults_of_the_resource_are_those_of_the_master() {
    let read = |_: &str| Err(std::io::Error::from(std::io::ErrorKind::NotFound));
    let args = [
        "--enable_ha",
        "--etcd_endpoints=etcd.team:2379",
        "--cluster_id=team-demo",
        // The volume of the pod.
        "--data_dir=/var/lib/moonkeeper",
    ];
    let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
    let env =
        [("POD_IP", "10.1.2.3"), ("POD_NAME", "minimal-0")].map(|(name, value)| (name.into(), value.into()));
    let Parsed::Run { settings: mut own, .. } = parse(&args, &env, &read).unwrap() else {
        panic!("no settings")
    };
    let from_resource = settings("minimal");
    // Only the admin API is set up differently in a pod, and its token is the one of the peer port; and the companion is a
    // container.
    let own_ha = own.ha.as_mut().unwrap();
    assert_eq!(own_ha.companion, CompanionSettings::Own);
    own_ha.companion = ha(&from_resource).companion.clone();
    own_ha.admin = ha(&from_resource).admin.clone();
    own_ha.peer_auth = PeerAuth::TokenFile(own_ha.admin.token_file.clone().unwrap());
    assert_eq!(*own, from_resource);
}

#[test]
fn the_companion_is_a_sidecar_at_the_socket_that_the_master_is_told() {
    let CompanionSettings::At(socket) = ha(&settings("minimal")).companion.clone() else { panic!() };
    let pod = template(|_| {}).spec.unwrap();
    let sidecar = &pod.init_containers.as_ref().unwrap()[0];
    assert_eq!(sidecar.restart_policy.as_deref(), Some("Always"));
    assert!(sidecar.args.as_ref().unwrap().contains(&format!("--socket={}", socket.display())));
    assert_eq!(sidecar.image, pod.containers[0].image);
    assert_eq!(sidecar.security_context, pod.containers[0].security_context);
    let folder = socket.parent().unwrap().to_str().unwrap();
    for container in [sidecar, &pod.containers[0]] {
        let mounts = container.volume_mounts.as_ref().unwrap();
        let mount = mounts.iter().find(|mount| mount.mount_path == folder).unwrap();
        assert_eq!((mount.name.as_str(), mount.read_only), ("companion", None));
    }

    assert_eq!(ha(&settings("bare")).companion, CompanionSettings::Off);
    let pod = template(|it| it.spec.failover.companion = false).spec.unwrap();
    assert!(pod.init_containers.is_none());
    assert!(pod.volumes.unwrap().iter().all(|volume| volume.name != "companion"));
}

#[test]
fn another_setting_is_another_template() {
    let hash = |cluster: &MasterCluster| {
        let made = objects(cluster, &facts()).unwrap();
        let volumes = made.stateful_set.spec.unwrap().template.spec.unwrap().volumes.unwrap();
        let mounted = volumes.into_iter().find_map(|volume| volume.config_map).unwrap().name;
        assert_eq!(Some(&mounted), made.config_map.metadata.name.as_ref());
        assert_eq!(made.config_map.immutable, Some(true));
        mounted
    };
    let before = case("minimal");
    let mut after = before.clone();
    assert_eq!(hash(&before), hash(&after));
    after.spec.store.lease_ttl = "11s".into();
    assert_ne!(hash(&before), hash(&after));
    // Another number of masters is none.
    let mut more = before.clone();
    more.spec.replicas = 5;
    let template =
        |cluster: &MasterCluster| objects(cluster, &facts()).unwrap().stateful_set.spec.unwrap().template;
    assert_eq!(template(&before), template(&more));
    let mut required = before.clone();
    required.spec.scheduling.spread = moonkeeper::api::Spread::Required;
    more.spec.scheduling.spread = moonkeeper::api::Spread::Required;
    assert_eq!(template(&required), template(&more));
}

#[test]
fn what_cannot_be_built_is_told() {
    let message = |change: &dyn Fn(&mut MasterCluster)| {
        let mut cluster = case("minimal");
        change(&mut cluster);
        objects(&cluster, &facts()).unwrap_err().to_string()
    };
    let bad = |text: &str| moonkeeper::api::GoDuration::from(text);
    assert_eq!(
        message(&|cluster| cluster.spec.store.lease_ttl = bad("soon")),
        "spec.store.leaseTTL: 'soon' is not a duration like 500ms, 10s or 1h30m"
    );
    assert_eq!(
        message(&|cluster| cluster.spec.store.eviction_ratio = "NaN".into()),
        "spec.store.evictionRatio: 'NaN' is not a number between 0 and 1"
    );
    assert_eq!(
        message(&|cluster| cluster.spec.pod_template.env = vec![json!({"name": "A", "valu": "b"})]),
        "spec.podTemplate.env[0]: there is no field valu"
    );
    assert!(
        message(&|cluster| cluster.metadata.namespace = Some("n".repeat(60)))
            .contains("create it again under another name")
    );
    let mut nobody = case("minimal");
    nobody.metadata.uid = None;
    assert_eq!(objects(&nobody, &facts()), Err(BuildError::NoIdentity("uid")));
}

/// The template of the pods of a case after a change.
fn template(change: impl FnOnce(&mut MasterCluster)) -> PodTemplateSpec {
    let mut cluster = case("minimal");
    change(&mut cluster);
    objects(&cluster, &facts()).unwrap().stateful_set.spec.unwrap().template
}

/// OpenShift gives each namespace ids of its own, and refuses pods that name others.
#[test]
fn pods_name_no_user_and_on_openshift_no_group() {
    for name in CASES {
        let openshift = Facts { platform_sets_group: true, ..facts() };
        let text = text(objects(&case(name), &openshift).unwrap());
        for word in ["runAsUser", "runAsGroup", "fsGroup"] {
            assert!(!text.contains(word), "{name} has {word}");
        }
    }
    let context = |pod: PodTemplateSpec| pod.spec.unwrap().security_context.unwrap();
    // Elsewhere the volume of a claim would belong to root.
    let own = context(template(|_| {}));
    assert_eq!((own.fs_group, own.fs_group_change_policy.as_deref()), (Some(65532), Some("OnRootMismatch")));
    assert_eq!(context(template(make_ephemeral)).fs_group, None);
    // What the user says counts.
    let pod = template(|it| it.spec.pod_template.security_context = json!({"fsGroup": 7}));
    let given = context(pod.clone());
    assert_eq!((given.fs_group, given.run_as_non_root, given.run_as_user), (Some(7), Some(true), None));
    // Then the files of Secrets have to be there for all.
    let volumes = pod.spec.unwrap().volumes.unwrap();
    let modes = volumes.into_iter().filter_map(|volume| volume.secret?.default_mode);
    assert!(modes.collect::<Vec<_>>().iter().all(|mode| *mode == 0o444));
}

fn make_ephemeral(cluster: &mut MasterCluster) {
    cluster.spec.snapshots.store = SnapshotStore { volume_claim: None, ephemeral: Some(Ephemeral {}) };
}

/// Only the master has the volume, and can write to it although its root file system is read-only.
#[test]
fn a_master_has_a_volume_for_its_own_files() {
    let data = |cluster: &MasterCluster| {
        let set = objects(cluster, &facts()).unwrap().stateful_set.spec.unwrap();
        let retention = set.persistent_volume_claim_retention_policy.unwrap();
        assert_eq!(retention.when_deleted.as_deref(), Some("Retain"));
        assert_eq!(retention.when_scaled.as_deref(), Some("Retain"));
        let pod = set.template.spec.unwrap();
        let sidecars = pod.init_containers.unwrap();
        assert!(sidecars[0].volume_mounts.iter().flatten().all(|mount| mount.name != "data"));
        let mounts = pod.containers[0].volume_mounts.clone().unwrap();
        let mount = mounts.into_iter().find(|mount| mount.name == "data").unwrap();
        assert_eq!(mount.read_only, None);
        let volume = pod.volumes.unwrap().into_iter().find(|volume| volume.name == "data");
        (mount.mount_path, volume, set.volume_claim_templates)
    };
    let mut cluster = case("minimal");
    let (folder, volume, claims) = data(&cluster);
    assert_eq!(volume, None, "Kubernetes adds that of the claim");
    let claim = claims.unwrap().remove(0);
    assert_eq!(
        claim.metadata.labels.as_ref(),
        objects(&cluster, &facts()).unwrap().stateful_set.metadata.labels.as_ref()
    );
    let claim = claim.spec.unwrap();
    assert_eq!(claim.storage_class_name, None, "the default StorageClass");
    assert_eq!(claim.resources.unwrap().requests.unwrap()["storage"].0, "8Gi");
    assert_eq!(ha(&settings("minimal")).data_dir.as_deref(), Some(Path::new(&folder)));

    make_ephemeral(&mut cluster);
    let (_, volume, claims) = data(&cluster);
    assert!(claims.is_none() && volume.unwrap().empty_dir.is_some());
}

/// A master without requests is the first to go when its node is short of memory.
#[test]
fn masters_request_something() {
    let resources = |text: Value| {
        let pod = template(|it| it.spec.resources = serde_json::from_value(text).unwrap()).spec.unwrap();
        serde_json::to_value(pod.containers[0].resources.clone()).unwrap()
    };
    assert_eq!(resources(json!({})), json!({"requests": {"cpu": "250m", "memory": "512Mi"}}));
    assert_eq!(
        resources(json!({"requests": {"memory": "4Gi"}})),
        json!({"requests": {"cpu": "250m", "memory": "4Gi"}})
    );
    // A limit alone is a request as well.
    assert_eq!(
        resources(json!({"limits": {"cpu": "100m", "memory": "256Mi"}})),
        json!({"limits": {"cpu": "100m", "memory": "256Mi"}})
    );
    assert_eq!(
        resources(json!({"requests": {"cpu": 0, "memory": 0}})),
        json!({"requests": {"cpu": "0", "memory": "0"}})
    );
}

/// A proxy before the peer port would answer for a primary that has died.
#[test]
fn sidecars_stay_out_unless_they_are_asked_for() {
    let metadata = |template: PodTemplateSpec| {
        let metadata = template.metadata.unwrap();
        let label = metadata.labels.unwrap()["sidecar.istio.io/inject"].clone();
        (label, metadata.annotations.unwrap()["linkerd.io/inject"].clone())
    };
    assert_eq!(metadata(template(|_| {})), ("false".to_owned(), "disabled".to_owned()));
    let asked = template(|it| {
        it.spec.pod_template.labels.insert("sidecar.istio.io/inject".into(), "true".into());
        it.spec.pod_template.annotations.insert("linkerd.io/inject".into(), "enabled".into());
    });
    assert_eq!(metadata(asked), ("true".to_owned(), "enabled".to_owned()));
}

#[test]
fn the_metadata_server_is_reached_through_the_service_and_the_policy() {
    let mut cluster = case("minimal");
    let ports = |cluster: &MasterCluster| {
        let objects = objects(cluster, &facts()).unwrap();
        let service = objects.leader_service.spec.unwrap().ports.unwrap();
        let policy = serde_json::to_value(objects.network_policy).unwrap()["spec"]["ingress"].clone();
        let pod = objects.stateful_set.spec.unwrap().template.spec.unwrap();
        (
            service.iter().any(|port| port.port == 8080),
            policy.as_array().unwrap().iter().any(|rule| rule["ports"][0]["port"] == 8080),
            pod.containers[0].ports.as_ref().unwrap().iter().any(|port| port.container_port == 8080),
        )
    };
    assert_eq!(ports(&cluster), (false, false, false));
    cluster.spec.metadata_server.enabled = true;
    assert_eq!(ports(&cluster), (true, true, true));
    // The policy lets in the same peers as to the port for clients.
    let policy = serde_json::to_value(built("production").network_policy).unwrap();
    let from = |port: u16| {
        let rules = policy["spec"]["ingress"].as_array().unwrap();
        rules.iter().find(|rule| rule["ports"][0]["port"] == port).map(|rule| rule["from"].clone())
    };
    assert_eq!(from(8080), from(50051));
    assert!(from(8080).is_some());
    assert_eq!(settings("production").metadata_server.unwrap().port, 8080);
    assert!(settings("minimal").metadata_server.is_none());
}

#[test]
fn secrets_are_not_printed() {
    let text = format!("{:?}", facts());
    assert!(!text.contains("a-token"), "{text}");
    let Secret { data, .. } = built("minimal").admin_secret;
    assert_eq!(data.unwrap()["token"].0, b"a-token-of-some-length");
}
