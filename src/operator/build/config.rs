//! The settings file of the masters: a flat mapping with flag names as keys, as `moonkeeper master --config_path`
//! reads.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use serde_json::{Value, json};

use super::folders::{ADMIN_FOLDER, ADMIN_TLS_FOLDER, DATA_FOLDER, ETCD_CREDENTIALS_FOLDER, ETCD_TLS_FOLDER};
use super::identity::Identity;
use super::{BuildError, Facts, companion};
use crate::api::names::{
    ADMIN_PORT, CA_KEY, CERT_KEY, HTTP_PORT, METADATA_PORT, PASSWORD_KEY, PEER_PORT, PRIVATE_KEY_KEY,
    RPC_PORT, TOKEN_KEY, USERNAME_KEY,
};
use crate::api::{Durability, Expired, GoDuration, MasterCluster};
use crate::cluster::keys::Keys;

/// The name of the file.
pub(super) const FILE: &str = "master.yaml";

/// Builds the ConfigMap with the file. It is immutable, and other settings are another ConfigMap, so that a container
/// that restarts by itself reads the file that its pod was created with, whatever the spec has by then.
pub(super) fn config_map(identity: &Identity, settings: &str) -> ConfigMap {
    ConfigMap {
        metadata: identity.metadata(name(identity, settings)),
        immutable: Some(true),
        data: Some(BTreeMap::from([(FILE.to_owned(), settings.to_owned())])),
        ..ConfigMap::default()
    }
}

/// Returns the name of the ConfigMap with this content.
pub(super) fn name(identity: &Identity, settings: &str) -> String {
    format!("{}-{:016x}", identity.name, xxhash_rust::xxh3::xxh3_64(settings.as_bytes()))
}

/// Builds the content of the file.
pub(super) fn settings_file(cluster: &MasterCluster, facts: &Facts) -> Result<String, BuildError> {
    let spec = &cluster.spec;
    let cluster_id = cluster.cluster_id();
    if !Keys::is_cluster_id(&cluster_id) {
        return Err(BuildError::ClusterId(cluster_id));
    }
    let mut settings: BTreeMap<&str, Value> = BTreeMap::from([
        ("enable_ha", json!(true)),
        ("cluster_id", json!(cluster_id)),
        ("rpc_port", json!(RPC_PORT)),
        ("metrics_port", json!(HTTP_PORT)),
        ("admin_port", json!(ADMIN_PORT)),
        // The operator connects from another pod. NetworkPolicy and the token keep others out.
        ("admin_host", json!("::")),
        ("admin_token_file", json!(format!("{ADMIN_FOLDER}/{TOKEN_KEY}"))),
        ("peer_port", json!(PEER_PORT)),
        // The masters have the admin token anyway, and its holder can do more than a peer can.
        ("peer_token_file", json!(format!("{ADMIN_FOLDER}/{TOKEN_KEY}"))),
        ("default_kv_lease_ttl", milliseconds("store.leaseTTL", &spec.store.lease_ttl)?),
        ("default_kv_soft_pin_ttl", milliseconds("store.softPinTTL", &spec.store.soft_pin_ttl)?),
        (
            "eviction_high_watermark_ratio",
            ratio("store.evictionHighWatermark", &spec.store.eviction_high_watermark)?,
        ),
        ("eviction_ratio", ratio("store.evictionRatio", &spec.store.eviction_ratio)?),
        ("client_ttl", seconds("store.clientTTL", &spec.store.client_ttl)?),
        ("leader_lease_ttl", milliseconds("failover.leaseTTL", &spec.failover.lease_ttl)?),
        (
            "keep_alive_interval",
            milliseconds("failover.keepAliveInterval", &spec.failover.keep_alive_interval)?,
        ),
        (
            "inherited_client_ttl",
            milliseconds("failover.inheritedClientTTL", &spec.failover.inherited_client_ttl)?,
        ),
        (
            "expired",
            json!(match spec.promotion.expired {
                Expired::Keep => "keep",
                Expired::Evict => "evict",
            }),
        ),
        (
            "durability",
            json!(match spec.replication.durability {
                Durability::Strict => "strict",
                Durability::Relaxed => "relaxed",
            }),
        ),
        (
            "lease_sync_interval",
            milliseconds("replication.leaseSyncInterval", &spec.replication.lease_sync_interval)?,
        ),
    ]);
    if spec.failover.companion {
        settings.insert("companion_socket", json!(companion::SOCKET));
    } else {
        settings.insert("companion", json!(false));
    }
    if spec.metadata_server.enabled {
        settings.insert("enable_http_metadata_server", json!(true));
        settings.insert("http_metadata_server_port", json!(METADATA_PORT));
    }
    snapshots(cluster, &mut settings)?;
    etcd(cluster, facts, &mut settings);
    admin_tls(cluster, &mut settings);
    serde_saphyr::to_string(&settings).map_err(|why| BuildError::Settings(why.to_string()))
}

fn snapshots(cluster: &MasterCluster, settings: &mut BTreeMap<&str, Value>) -> Result<(), BuildError> {
    let snapshots = &cluster.spec.snapshots;
    settings.insert("data_dir", json!(DATA_FOLDER));
    settings.insert("data_dir_durable", json!(snapshots.store.volume_claim.is_some()));
    settings.insert("snapshot_interval", milliseconds("snapshots.interval", &snapshots.interval)?);
    settings.insert("snapshots_kept", json!(snapshots.keep));
    Ok(())
}

fn etcd(cluster: &MasterCluster, facts: &Facts, settings: &mut BTreeMap<&str, Value>) {
    let etcd = &cluster.spec.etcd;
    settings.insert("etcd_endpoints", json!(etcd.endpoints.join(",")));
    if !etcd.tls_secret_name.is_empty() {
        settings.insert("etcd_cacert", json!(format!("{ETCD_TLS_FOLDER}/{CA_KEY}")));
        if facts.etcd_client_certificate {
            settings.insert("etcd_cert", json!(format!("{ETCD_TLS_FOLDER}/{CERT_KEY}")));
            settings.insert("etcd_key", json!(format!("{ETCD_TLS_FOLDER}/{PRIVATE_KEY_KEY}")));
        }
    }
    if !etcd.credentials_secret_name.is_empty() {
        // Masters read both files again whenever they log in, so user and password can be replaced without a restart.
        settings.insert("etcd_user_file", json!(format!("{ETCD_CREDENTIALS_FOLDER}/{USERNAME_KEY}")));
        settings.insert("etcd_password_file", json!(format!("{ETCD_CREDENTIALS_FOLDER}/{PASSWORD_KEY}")));
    }
}

fn admin_tls(cluster: &MasterCluster, settings: &mut BTreeMap<&str, Value>) {
    let folder = if cluster.spec.admin.tls_secret_name.is_empty() { ADMIN_FOLDER } else { ADMIN_TLS_FOLDER };
    settings.insert("admin_tls_cert", json!(format!("{folder}/{CERT_KEY}")));
    settings.insert("admin_tls_key", json!(format!("{folder}/{PRIVATE_KEY_KEY}")));
}

fn milliseconds(field: &'static str, text: &GoDuration) -> Result<Value, BuildError> {
    let duration = text.parse().map_err(|why| BuildError::Duration { field, why })?;
    Ok(json!(format!("{}ms", duration.as_millis())))
}

fn seconds(field: &'static str, text: &GoDuration) -> Result<Value, BuildError> {
    let duration = text.parse().map_err(|why| BuildError::Duration { field, why })?;
    Ok(json!(duration.as_secs()))
}

fn ratio(field: &'static str, text: &str) -> Result<Value, BuildError> {
    match text.parse::<f64>() {
        Ok(share) if (0.0..=1.0).contains(&share) => Ok(json!(share)),
        _ => Err(BuildError::Ratio { field, text: text.to_owned() }),
    }
}
