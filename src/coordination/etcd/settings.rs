//! Settings of the etcd client: endpoints, TLS and login.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcd_client::{Certificate, Identity, TlsOptions};

/// The endpoints of etcd and how to connect to them.
#[derive(Clone, Debug)]
pub struct EtcdSettings {
    /// `host:port`, `http://host:port` or `https://host:port`; without a scheme it is `https` if there is `tls`.
    pub endpoints: Vec<String>,
    /// Names to look up instead of the host of an endpoint, in this order; the first that exists is used. Certificates
    /// still have to be for the host in the endpoint.
    pub lookups: BTreeMap<String, Vec<String>>,
    /// Certificates, for `https`.
    pub tls: Option<Tls>,
    /// User name and password, if etcd requires them.
    pub login: Option<Login>,
    /// Whether a member that knows no leader has to refuse calls and to end watches, which would deliver nothing more.
    pub require_leader: bool,
    /// Timeout of connecting to one endpoint, login included.
    pub connect_timeout: Duration,
    /// How long a watch may be silent, although it is asked for its progress, until it counts as broken.
    pub watch_silence: Duration,
}

impl EtcdSettings {
    /// Returns default settings for these endpoints.
    #[must_use]
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            lookups: BTreeMap::new(),
            tls: None,
            login: None,
            require_leader: true,
            connect_timeout: Duration::from_secs(2),
            watch_silence: Duration::from_secs(3),
        }
    }
}

/// Where the certificates for etcd come from.
#[derive(Clone, Debug)]
pub enum Tls {
    Files(TlsFiles),
    /// PEM in memory.
    Given(TlsPem),
}

impl From<TlsFiles> for Tls {
    fn from(files: TlsFiles) -> Self {
        Self::Files(files)
    }
}

/// Certificates in PEM, with our private key if there is one.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsPem {
    /// The CA that signed etcd's certificate.
    pub ca: Vec<u8>,
    /// Our own certificate and its key, if etcd requires one.
    pub identity: Option<(Vec<u8>, Vec<u8>)>,
    /// The name that etcd's certificate has to have, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

impl fmt::Debug for TlsPem {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key must not get into logs.
        formatter.debug_struct("TlsPem").finish_non_exhaustive()
    }
}

/// Files with certificates in PEM. They are read again for every new connection, so they may be replaced.
#[derive(Clone, Debug)]
pub struct TlsFiles {
    /// The CA that signed etcd's certificate.
    pub ca: PathBuf,
    /// Our own certificate and its key, if etcd requires one.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The name that etcd's certificate has to have, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

/// Where the name and the password of a user of etcd come from.
#[derive(Clone, Debug)]
pub enum Login {
    Files(LoginFiles),
    /// In memory.
    Given(User),
}

impl From<LoginFiles> for Login {
    fn from(files: LoginFiles) -> Self {
        Self::Files(files)
    }
}

impl From<User> for Login {
    fn from(user: User) -> Self {
        Self::Given(user)
    }
}

/// Files with the login of a user of etcd; the first line of each counts. They are read again for every new connection,
/// and a login that etcd refuses ends the connection: so a password can be changed, and a user replaced by another one,
/// under a running process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginFiles {
    pub name: UserName,
    /// The file with the password.
    pub password: PathBuf,
}

/// Where the name of a user comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserName {
    Given(String),
    /// The path of a file whose first line is the name.
    File(PathBuf),
}

/// Name and password of a user of etcd.
#[derive(Clone)]
pub struct User {
    pub name: String,
    pub password: String,
}

impl fmt::Debug for User {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The password must not get into logs.
        formatter.debug_struct("User").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Why settings cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    #[error("no etcd endpoint is given")]
    NoEndpoint,
    /// An endpoint is not a usable URL.
    #[error("the etcd endpoint {endpoint:?} cannot be used: {why}")]
    Endpoint { endpoint: String, why: String },
    /// A certificate, a key, a user name or a password cannot be read.
    #[error("{path} cannot be read: {why}")]
    File { path: PathBuf, why: std::io::Error },
}

impl Tls {
    /// Returns the certificates as they are now.
    pub(super) fn load(&self) -> Result<TlsOptions, SettingsError> {
        match self {
            Self::Files(files) => files.load(),
            Self::Given(pem) => {
                let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(&pem.ca));
                if let Some((certificate, key)) = &pem.identity {
                    options = options.identity(Identity::from_pem(certificate, key));
                }
                if let Some(name) = &pem.server_name {
                    options = options.domain_name(name);
                }
                Ok(options)
            }
        }
    }
}

impl TlsFiles {
    /// Reads the files; fails if one of them cannot be read.
    fn load(&self) -> Result<TlsOptions, SettingsError> {
        let mut options = TlsOptions::new().ca_certificate(Certificate::from_pem(read(&self.ca)?));
        if let Some((certificate, key)) = &self.identity {
            options = options.identity(Identity::from_pem(read(certificate)?, read(key)?));
        }
        if let Some(name) = &self.server_name {
            options = options.domain_name(name);
        }
        Ok(options)
    }
}

impl Login {
    /// Returns the user as the files name it now.
    pub(super) fn load(&self) -> Result<User, SettingsError> {
        match self {
            Self::Given(user) => Ok(user.clone()),
            Self::Files(LoginFiles { name, password }) => {
                let name = match name {
                    UserName::Given(name) => name.clone(),
                    UserName::File(path) => first_line(path)?,
                };
                Ok(User { name, password: first_line(password)? })
            }
        }
    }
}

fn read(path: &Path) -> Result<Vec<u8>, SettingsError> {
    std::fs::read(path).map_err(|why| SettingsError::File { path: path.to_owned(), why })
}

fn first_line(path: &Path) -> Result<String, SettingsError> {
    let text = String::from_utf8(read(path)?).map_err(|_| SettingsError::File {
        path: path.to_owned(),
        why: std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not UTF-8"),
    })?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
