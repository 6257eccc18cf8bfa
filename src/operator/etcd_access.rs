//! Settings of the connection to a cluster's etcd: endpoints from the spec, certificates and credentials from the
//! Secrets that it names.
//!
//! Secrets are read by name, never listed or watched: the operator needs no right to list Secrets.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client};
use xxhash_rust::xxh3::xxh3_64;

use super::apply::said;
use super::endpoints::all_lookups;
use crate::api::names::{CA_KEY, CERT_KEY, PASSWORD_KEY, PRIVATE_KEY_KEY, USERNAME_KEY};
use crate::api::{Etcd, MasterCluster};
use crate::cluster::keys::Keys;
use crate::coordination::etcd::{EtcdSettings, Tls, TlsPem, User};

/// How to connect to a cluster's etcd.
#[derive(Clone, Debug)]
pub struct Access {
    pub settings: EtcdSettings,
    pub keys: Keys,
    /// Whether there is a client certificate.
    pub client_certificate: bool,
    /// Hash of endpoints, cluster id, certificates and credentials.
    pub fingerprint: u64,
}

/// Why there is no access. It will not change by itself.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct NoAccess {
    /// The reason, in one CamelCase word.
    pub reason: &'static str,
    pub message: String,
}

/// Why the access could not be resolved.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// A setting or a Secret is missing or invalid.
    #[error(transparent)]
    None(#[from] NoAccess),
    /// A Secret could not be read.
    #[error("cannot read the Secret {name}: {}", said(source))]
    Read { name: String, source: kube::Error },
}

type Data = BTreeMap<String, ByteString>;

/// Reads the Secrets that the spec names and combines them with the endpoints.
pub async fn resolve(client: &Client, cluster: &MasterCluster) -> Result<Access, AccessError> {
    let api: Api<Secret> = match &cluster.metadata.namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::default_namespaced(client.clone()),
    };
    let etcd = &cluster.spec.etcd;
    let tls = read(&api, &etcd.tls_secret_name).await?;
    let credentials = read(&api, &etcd.credentials_secret_name).await?;
    let mut access = access(etcd, &cluster.cluster_id(), tls.as_ref(), credentials.as_ref())?;
    let namespace = cluster.metadata.namespace.as_deref().unwrap_or_default();
    access.settings.lookups = all_lookups(&etcd.endpoints, namespace);
    Ok(access)
}

/// Reads the certificate authorities in the Secret that `spec.admin` names.
pub async fn authorities(client: &Client, namespace: &str, name: &str) -> Result<Vec<u8>, AccessError> {
    let api: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let data = read(&api, name).await?.unwrap_or_default();
    let missing =
        || NoAccess { reason: "SecretIncomplete", message: format!("the Secret {name} has no {CA_KEY}") };
    Ok(data.get(CA_KEY).filter(|ca| !ca.0.is_empty()).ok_or_else(missing)?.0.clone())
}

async fn read(api: &Api<Secret>, name: &str) -> Result<Option<Data>, AccessError> {
    if name.is_empty() {
        return Ok(None);
    }
    match api.get_opt(name).await {
        Ok(Some(secret)) => Ok(Some(secret.data.unwrap_or_default())),
        Ok(None) => {
            let message = format!("the Secret {name} that the spec names does not exist");
            Err(NoAccess { reason: "SecretNotFound", message }.into())
        }
        Err(source) => Err(AccessError::Read { name: name.to_owned(), source }),
    }
}

/// Combines the spec with the data of the Secrets.
fn access(
    etcd: &Etcd,
    cluster_id: &str,
    tls: Option<&Data>,
    user: Option<&Data>,
) -> Result<Access, NoAccess> {
    if !Keys::is_cluster_id(cluster_id) {
        let message = format!(
            "'{cluster_id}' cannot be the cluster id, which is 1 to 63 of a-z, 0-9, - and _, and not oplog: delete this \
             resource and create it again under another name, or with spec.clusterId set"
        );
        return Err(NoAccess { reason: "InvalidClusterId", message });
    }
    let field = |data: &Data, secret: &str, key: &str| match data.get(key) {
        Some(value) if !value.0.is_empty() => Ok(value.0.clone()),
        _ => {
            Err(NoAccess { reason: "SecretIncomplete", message: format!("the Secret {secret} has no {key}") })
        }
    };
    let mut settings = EtcdSettings::new(etcd.endpoints.clone());
    let mut mark: Vec<u8> = format!("{cluster_id}\n{:?}", etcd.endpoints).into_bytes();
    let mut client_certificate = false;
    if let Some(data) = tls {
        let name = &etcd.tls_secret_name;
        let ca = field(data, name, CA_KEY)?;
        let identity = if data.contains_key(CERT_KEY) || data.contains_key(PRIVATE_KEY_KEY) {
            Some((field(data, name, CERT_KEY)?, field(data, name, PRIVATE_KEY_KEY)?))
        } else {
            None
        };
        client_certificate = identity.is_some();
        mark.extend_from_slice(&ca);
        if let Some((certificate, key)) = &identity {
            mark.extend_from_slice(certificate);
            mark.extend_from_slice(key);
        }
        settings.tls = Some(Tls::Given(TlsPem { ca, identity, server_name: None }));
    }
    if let Some(data) = user {
        let name = &etcd.credentials_secret_name;
        let text = |key| {
            let bytes = field(data, name, key)?;
            let message = format!("{key} in the Secret {name} is not text");
            String::from_utf8(bytes).map_err(|_| NoAccess { reason: "SecretIncomplete", message })
        };
        // The first line of each value, as masters read them.
        let line = |key| text(key).map(|text| text.lines().next().unwrap_or_default().to_owned());
        let user = User { name: line(USERNAME_KEY)?, password: line(PASSWORD_KEY)? };
        mark.extend_from_slice(format!("\n{}\n{}", user.name, user.password).as_bytes());
        settings.login = Some(user.into());
    }
    let fingerprint = xxh3_64(&mark);
    Ok(Access { settings, keys: Keys::new(cluster_id), client_certificate, fingerprint })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::etcd::Login;

    fn data(pairs: &[(&str, &str)]) -> Data {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), ByteString(value.as_bytes().to_vec()))).collect()
    }

    fn etcd() -> Etcd {
        Etcd {
            endpoints: vec!["https://e:1".into()],
            tls_secret_name: "tls".into(),
            credentials_secret_name: "user".into(),
        }
    }

    #[test]
    fn what_is_missing_is_named() {
        let why = |tls: &[(&str, &str)], user: &[(&str, &str)]| {
            access(&etcd(), "demo", Some(&data(tls)), Some(&data(user))).map(|_| ()).unwrap_err().message
        };
        assert_eq!(why(&[], &[]), "the Secret tls has no ca.crt");
        assert_eq!(why(&[("ca.crt", "c"), ("tls.crt", "c")], &[]), "the Secret tls has no tls.key");
        assert_eq!(why(&[("ca.crt", "c")], &[("username", "u")]), "the Secret user has no password");
        assert!(access(&etcd(), "OPLOG", None, None).is_err());
    }

    #[test]
    fn another_secret_is_another_way() {
        let with = |ca: &str, password: &str| {
            let user = data(&[("username", "u\n"), ("password", password)]);
            access(&etcd(), "demo", Some(&data(&[("ca.crt", ca)])), Some(&user)).unwrap()
        };
        assert_eq!(with("a", "p").fingerprint, with("a", "p").fingerprint);
        assert_ne!(with("a", "p").fingerprint, with("b", "p").fingerprint);
        assert_ne!(with("a", "p").fingerprint, with("a", "q").fingerprint);
        let Some(Login::Given(user)) = with("a", "p\n").settings.login else { panic!("no user") };
        assert_eq!((user.name.as_str(), user.password.as_str()), ("u", "p"));
    }
}
