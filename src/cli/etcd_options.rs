//! The flags for etcd that commands share: those of `moonkeeper master`, with the same names and environment variables.

use std::path::PathBuf;

use clap::Args;

use crate::coordination::etcd::{LoginFiles, UserName};
use crate::master::settings::ha::{EndpointsError, EtcdAccess};

/// How to reach etcd
#[derive(Clone, Debug, Default, Args)]
pub(super) struct EtcdOptions {
    /// Where etcd is: HOST:PORT, several separated by ; or , (else the variable MOONKEEPER_ETCD_ENDPOINTS)
    #[arg(long = "etcd_endpoints", alias = "etcd-endpoints", value_name = "LIST")]
    pub(super) endpoints: Option<String>,
    /// PEM file with the authorities that etcd's certificate is checked with; turns TLS on
    #[arg(long = "etcd_cacert", alias = "etcd-cacert", value_name = "FILE")]
    pub(super) cacert: Option<PathBuf>,
    /// PEM file with the certificate to show to etcd
    #[arg(long = "etcd_cert", alias = "etcd-cert", value_name = "FILE", requires = "key")]
    pub(super) cert: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long = "etcd_key", alias = "etcd-key", value_name = "FILE", requires = "cert")]
    pub(super) key: Option<PathBuf>,
    /// User of etcd
    #[arg(
        long = "etcd_user",
        alias = "etcd-user",
        value_name = "NAME",
        requires = "password_file",
        group = "name"
    )]
    pub(super) user: Option<String>,
    /// File whose first line is the user of etcd
    #[arg(
        long = "etcd_user_file",
        alias = "etcd-user-file",
        value_name = "FILE",
        requires = "password_file",
        group = "name"
    )]
    pub(super) user_file: Option<PathBuf>,
    /// File whose first line is the user's password
    #[arg(long = "etcd_password_file", alias = "etcd-password-file", value_name = "FILE", requires = "name")]
    pub(super) password_file: Option<PathBuf>,
}

impl EtcdOptions {
    /// Returns the access to etcd; `None` if neither flag nor variable names endpoints.
    pub(super) fn access(&self) -> Result<Option<EtcdAccess>, EndpointsError> {
        let variable = || std::env::var("MOONKEEPER_ETCD_ENDPOINTS").ok().filter(|text| !text.is_empty());
        let Some(endpoints) = self.endpoints.clone().or_else(variable) else { return Ok(None) };
        let name = self.user.clone().map(UserName::Given);
        let name = name.or_else(|| self.user_file.clone().map(UserName::File));
        let access = EtcdAccess {
            endpoints: Vec::new(),
            ca: self.cacert.clone(),
            identity: self.cert.clone().zip(self.key.clone()),
            login: name.zip(self.password_file.clone()).map(|(name, password)| LoginFiles { name, password }),
        };
        access.with_endpoints(&endpoints).map(Some)
    }

    /// Returns the flags that give a master the same access to etcd, without the endpoints.
    pub(super) fn more_flags(&self) -> Vec<String> {
        let file = |flag: &str, path: &Option<PathBuf>| {
            path.as_ref().map(|path| format!("--{flag}={}", path.display()))
        };
        [
            file("etcd_cacert", &self.cacert),
            file("etcd_cert", &self.cert),
            file("etcd_key", &self.key),
            self.user.as_ref().map(|user| format!("--etcd_user={user}")),
            file("etcd_user_file", &self.user_file),
            file("etcd_password_file", &self.password_file),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

/// Returns the cluster id from the flag, else from the environment variable, else the default.
pub(super) fn cluster_id(flag: Option<&str>) -> String {
    let variable = || std::env::var("MOONKEEPER_CLUSTER_ID").ok().filter(|text| !text.is_empty());
    flag.map(str::to_owned).or_else(variable).unwrap_or_else(|| "mooncake_cluster".to_owned())
}
