//! Where the files of a master's pod are mounted.

/// Where the settings file is.
pub(super) const CONFIG_FOLDER: &str = "/etc/moonkeeper";
/// Where the admin Secret is.
pub(super) const ADMIN_FOLDER: &str = "/etc/moonkeeper-admin";
/// Where the volume with a master's own files is.
pub(super) const DATA_FOLDER: &str = "/var/lib/moonkeeper";
/// Where the Secret of `admin.tlsSecretName` is.
pub(super) const ADMIN_TLS_FOLDER: &str = "/etc/moonkeeper-admin-tls";
/// Where the Secret of `etcd.tlsSecretName` is.
pub(super) const ETCD_TLS_FOLDER: &str = "/etc/moonkeeper-etcd-tls";
/// Where the Secret of `etcd.credentialsSecretName` is.
pub(super) const ETCD_CREDENTIALS_FOLDER: &str = "/etc/moonkeeper-etcd-credentials";
