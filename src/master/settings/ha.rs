//! The settings of a master that replicates.

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::companion::CompanionSettings;
use super::peer::PeerAuth;
use super::snapshots::SnapshotSettings;
use super::{FlagError, Reader, Settings, Warning};
use crate::cluster::keys::Keys;
use crate::coordination::etcd::{EtcdSettings, LoginFiles, TlsFiles, UserName};
use crate::net::listen::{Listen, host_and_port};
use crate::replication::snapshot::SharedStore;

/// Longest name of a member: that of a Kubernetes pod.
const MAX_NAME: usize = 253;

/// Bounds of the leader lease. etcd by itself grants no less than about two seconds; no operator wants to be without a
/// primary for more than a minute.
const LEASE_TTL: std::ops::RangeInclusive<Duration> = Duration::from_secs(2)..=Duration::from_secs(60);

/// Smallest queue to etcd: some batches of the largest size.
const MIN_QUEUE_BYTES: usize = 1 << 20;

/// Settings of a master that replicates, in addition to [`Settings`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HaSettings {
    /// Endpoints and credentials of etcd.
    pub etcd: EtcdAccess,
    /// Name of this master within its cluster.
    pub member_name: String,
    /// Addresses under which others reach this master.
    pub advertise: Advertise,
    /// Where the peer port listens.
    pub peer: Listen,
    /// Credentials that masters prove themselves with to each other.
    pub peer_auth: PeerAuth,
    pub admin: AdminSettings,
    /// How the companion is run.
    pub companion: CompanionSettings,
    /// The folder for data that survives restarts.
    pub data_dir: Option<PathBuf>,
    /// Snapshots in that folder; `None` without one.
    pub snapshots: Option<SnapshotSettings>,
    /// Storage that all masters share, for copies of snapshots.
    pub snapshot_store: Option<SharedStore>,
    /// How many members have to hold a snapshot before the log below it is deleted.
    pub snapshot_copies: usize,
    /// Which calls are answered before they are durable.
    pub durability: Durability,
    /// What a promotion does with objects whose lease has ended.
    pub expired: Expired,
    /// Time for a client of the previous primary to be heard from.
    pub inherited_client_ttl: Duration,
    /// Time to live of the leader's lease; whole seconds.
    pub leader_lease_ttl: Duration,
    /// Time between two renewals of it.
    pub keep_alive_interval: Duration,
    /// Time between two records of the leases that reads have set.
    pub lease_sync_interval: Duration,
    /// Most bytes of records that are not durable yet.
    pub queue_bytes: usize,
}

/// Endpoints and credentials of etcd. Files are named, not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EtcdAccess {
    /// URLs with their scheme; at least one.
    pub endpoints: Vec<String>,
    /// Certificate authorities that etcd's certificate is checked with.
    pub ca: Option<PathBuf>,
    /// The certificate to show, and its key.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// Files with the login of etcd's user; `None` without one.
    pub login: Option<LoginFiles>,
}

/// Addresses under which others reach this master.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertise {
    /// Without one it is the address of [`RpcSettings::interface`](super::RpcSettings::interface).
    pub host: Option<String>,
    /// The port for Mooncake clients.
    pub rpc_port: u16,
}

/// Settings of the admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminSettings {
    pub listen: Listen,
    /// The file with the token that authorises changes.
    pub token_file: Option<PathBuf>,
    /// Its certificate; plain HTTP without one.
    pub tls: Option<AdminTls>,
}

/// TLS files of the admin API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdminTls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Authorities whose client certificates authorise changes without a token.
    pub client_ca: Option<PathBuf>,
}

/// Which calls are answered before they are durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// None: every change is durable first.
    Strict,
    /// Ends, revokes, removals and unmounts; a start of a put is durable first.
    Relaxed {
        /// Most records that may be answered and not durable.
        records: u64,
        /// Longest time that an answered record may not be durable.
        time: Duration,
    },
}

/// What a promotion does with objects whose lease has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expired {
    /// They stay until memory is short.
    Keep,
    /// They are evicted as soon as no reader can hold a lease on them.
    Evict,
}

/// What the environment and the system know about the host of this master.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// The environment variable POD_IP, if it is set.
    pub pod_ip: Option<String>,
    /// The environment variable POD_NAME, if it is set.
    pub pod_name: Option<String>,
    /// The name of this machine.
    pub host_name: Option<String>,
}

impl Reader<'_> {
    /// Returns the settings of replication, if it is enabled.
    pub(super) fn ha(
        &self,
        settings: &Settings,
        place: &Surroundings,
        warnings: &mut Vec<Warning>,
    ) -> Result<Option<HaSettings>, FlagError> {
        if !self.bool("enable_ha") {
            return Ok(None);
        }
        if !Keys::is_cluster_id(&settings.cluster_id) {
            let accepted =
                "with --enable_ha, 1 to 63 of a-z, 0-9, - and _ are accepted, and not the word oplog";
            return Err(self.values.out_of_range("cluster_id", accepted));
        }
        if settings.rpc.port == 0 {
            return Err(FlagError::Conflict(
                "with --enable_ha the port for clients must be fixed, because clients find it in etcd: set --rpc_port"
                    .to_owned(),
            ));
        }
        if self.values.text("ha_backend_type") != "etcd" {
            return Err(self.values.out_of_range("ha_backend_type", "only etcd is accepted"));
        }
        let advertise = self.advertise(settings, place)?;
        let (leader_lease_ttl, keep_alive_interval) = self.leader_lease()?;
        Ok(Some(HaSettings {
            etcd: self.etcd()?,
            member_name: self.member_name(settings, place)?,
            advertise,
            peer: Listen { host: self.host("peer_host")?, port: self.port("peer_port")? },
            peer_auth: self.peer_auth()?,
            admin: self.admin()?,
            companion: self.companion(warnings),
            data_dir: self.path("data_dir"),
            snapshots: self.snapshots(warnings)?,
            snapshot_store: self.snapshot_store()?,
            snapshot_copies: self.snapshot_copies()?,
            durability: self.durability(warnings)?,
            expired: match self.values.text("expired") {
                "keep" => Expired::Keep,
                "evict" => Expired::Evict,
                _ => return Err(self.values.out_of_range("expired", "keep or evict is accepted")),
            },
            inherited_client_ttl: self.positive_duration("inherited_client_ttl")?,
            leader_lease_ttl,
            keep_alive_interval,
            lease_sync_interval: self.positive_duration("lease_sync_interval")?,
            queue_bytes: usize::try_from(self.uint("oplog_queue_bytes"))
                .ok()
                .filter(|bytes| *bytes >= MIN_QUEUE_BYTES)
                .ok_or_else(|| {
                    self.values.out_of_range("oplog_queue_bytes", "1048576 or more is accepted")
                })?,
        }))
    }

    pub(super) fn path(&self, name: &str) -> Option<PathBuf> {
        let text = self.values.text(name);
        (!text.is_empty()).then(|| PathBuf::from(text))
    }

    /// Reads two files that only make sense together.
    fn pair(&self, first: &str, second: &str) -> Result<Option<(PathBuf, PathBuf)>, FlagError> {
        let missing = |set: &str, unset: &str| {
            Err(FlagError::Conflict(format!("--{set} needs --{unset}, which is not set")))
        };
        match (self.path(first), self.path(second)) {
            (Some(one), Some(other)) => Ok(Some((one, other))),
            (None, None) => Ok(None),
            (Some(_), None) => missing(first, second),
            (None, Some(_)) => missing(second, first),
        }
    }

    fn etcd(&self) -> Result<EtcdAccess, FlagError> {
        let name = if self.values.text("etcd_endpoints").is_empty() {
            "ha_backend_connstring"
        } else {
            "etcd_endpoints"
        };
        let access = EtcdAccess {
            endpoints: Vec::new(),
            ca: self.path("etcd_cacert"),
            identity: self.pair("etcd_cert", "etcd_key")?,
            login: self.login()?,
        };
        match access.with_endpoints(self.values.text(name)) {
            Ok(access) => Ok(access),
            Err(EndpointsError::None) => Err(FlagError::Conflict(
                "--enable_ha needs to know where etcd is: set --etcd_endpoints=HOST:2379".to_owned(),
            )),
            Err(why) => Err(self.values.out_of_range(name, &why.to_string())),
        }
    }

    /// Reads the user of etcd, named by a flag or by a file.
    fn login(&self) -> Result<Option<LoginFiles>, FlagError> {
        let name = self.values.text("etcd_user");
        match self.path("etcd_user_file") {
            Some(_) if !name.is_empty() => {
                Err(FlagError::Conflict("--etcd_user and --etcd_user_file exclude each other".to_owned()))
            }
            Some(_) => {
                let files = self.pair("etcd_user_file", "etcd_password_file")?;
                Ok(files.map(|(name, password)| LoginFiles { name: UserName::File(name), password }))
            }
            None => {
                let name = UserName::Given(name.to_owned());
                let files = self.pair("etcd_user", "etcd_password_file")?;
                Ok(files.map(|(_, password)| LoginFiles { name, password }))
            }
        }
    }

    fn advertise(&self, settings: &Settings, place: &Surroundings) -> Result<Advertise, FlagError> {
        let text = self.values.text("advertise_address");
        if !text.is_empty() {
            let accepted =
                "the HOST or HOST:PORT under which clients reach this master is accepted, not a wildcard";
            let (host, port) = split_address(text)
                .filter(|(host, _)| is_host(host) && !is_wildcard(host))
                .ok_or_else(|| self.values.out_of_range("advertise_address", accepted))?;
            return Ok(Advertise {
                host: Some(host.to_owned()),
                rpc_port: port.unwrap_or(settings.rpc.port),
            });
        }
        let rpc_port = settings.rpc.port;
        if settings.rpc.interface.is_some() {
            return Ok(Advertise { host: None, rpc_port });
        }
        let named = Some(&settings.rpc.address).filter(|address| !is_wildcard(address));
        let pod =
            place.pod_ip.as_ref().filter(|ip| ip.parse::<IpAddr>().is_ok_and(|ip| !ip.is_unspecified()));
        match named.or(pod) {
            Some(host) => Ok(Advertise { host: Some(host.clone()), rpc_port }),
            None => Err(FlagError::Conflict(format!(
                "--enable_ha needs an address that clients and other masters can reach, and --rpc_address={} is \
                 none: set --advertise_address, or --rpc_address to one address of this host, or the variable POD_IP",
                settings.rpc.address
            ))),
        }
    }

    fn member_name(&self, settings: &Settings, place: &Surroundings) -> Result<String, FlagError> {
        let flag = self.values.text("member_name");
        let name = if !flag.is_empty() {
            flag.to_owned()
        } else if let Some(pod) = &place.pod_name {
            pod.clone()
        } else if let Some(host) = &place.host_name {
            format!("{host}-{}", settings.rpc.port)
        } else {
            String::new()
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        if (1..=MAX_NAME).contains(&name.len()) && name.chars().all(plain) {
            return Ok(name);
        }
        if flag.is_empty() {
            return Err(FlagError::Conflict(format!(
                "--enable_ha needs a name for this master, and '{name}' cannot be one: set --member_name to letters, \
                 digits, '.', '-' and '_'"
            )));
        }
        Err(self
            .values
            .out_of_range("member_name", "1 to 253 letters, digits, '.', '-' and '_' are accepted"))
    }

    fn admin(&self) -> Result<AdminSettings, FlagError> {
        let listen = Listen { host: self.host("admin_host")?, port: self.port("admin_port")? };
        let client_ca = self.path("admin_tls_client_ca");
        let tls = self.pair("admin_tls_cert", "admin_tls_key")?;
        if tls.is_none() && client_ca.is_some() {
            return Err(FlagError::Conflict(
                "--admin_tls_client_ca needs --admin_tls_cert and --admin_tls_key: without TLS there are no client \
                 certificates"
                    .to_owned(),
            ));
        }
        if tls.is_none() && !is_loopback(&listen.host) && !self.bool("admin_allow_plain") {
            return Err(FlagError::Conflict(format!(
                "--admin_host={} would let the token travel over the network as plain text: set --admin_tls_cert and \
                 --admin_tls_key, or leave --admin_host at 127.0.0.1, or set --admin_allow_plain",
                listen.host
            )));
        }
        Ok(AdminSettings {
            listen,
            token_file: self.path("admin_token_file"),
            tls: tls.map(|(cert, key)| AdminTls { cert, key, client_ca }),
        })
    }

    fn durability(&self, warnings: &mut Vec<Warning>) -> Result<Durability, FlagError> {
        match self.values.text("durability") {
            "strict" => {
                for name in ["relaxed_tail_records", "relaxed_tail_time"] {
                    if self.values.is_set(name) {
                        warnings
                            .push(Warning(format!("--{name} has no effect without --durability=relaxed")));
                    }
                }
                Ok(Durability::Strict)
            }
            "relaxed" => Ok(Durability::Relaxed {
                records: self.at_least_one("relaxed_tail_records")? as u64,
                time: self.positive_duration("relaxed_tail_time")?,
            }),
            _ => Err(self.values.out_of_range("durability", "strict or relaxed is accepted")),
        }
    }

    /// Reads the time to live of the leader lease, and the time between two renewals.
    fn leader_lease(&self) -> Result<(Duration, Duration), FlagError> {
        let ttl = self.duration("leader_lease_ttl");
        if !LEASE_TTL.contains(&ttl) || ttl.subsec_nanos() != 0 {
            let accepted = "2s to 60s in whole seconds is accepted, which is what etcd counts leases in";
            return Err(self.values.out_of_range("leader_lease_ttl", accepted));
        }
        let interval = self.positive_duration("keep_alive_interval")?;
        // A primary stops this much before its lease ends (R1, R6).
        let usable = ttl - (ttl / 10).max(Duration::from_millis(500));
        if interval * 2 > usable {
            return Err(FlagError::Conflict(format!(
                "--keep_alive_interval={} is too long for --leader_lease_ttl={}: one lost renewal would depose a \
                 healthy primary; at most {} ms fit",
                self.values.text("keep_alive_interval"),
                self.values.text("leader_lease_ttl"),
                (usable / 2).as_millis()
            )));
        }
        Ok((ttl, interval))
    }
}

/// Why a list of endpoints cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EndpointsError {
    #[error("at least one HOST:PORT is needed")]
    None,
    /// One of them is not an address.
    #[error("'{0}' is not HOST:PORT or http(s)://HOST:PORT; several are separated by ; or ,")]
    Malformed(String),
    /// One of them has TLS, and no authority is configured to verify it.
    #[error("'{0}' uses TLS: set --etcd_cacert to the file with the authorities of etcd's certificate")]
    NoAuthority(String),
    /// One of them has no TLS although certificates are configured.
    #[error("'{0}' does not use TLS, but certificates for etcd are set: write https://, or leave them out")]
    Plain(String),
}

impl EtcdAccess {
    /// Replaces the endpoints by this list: separated by `;` or `,`, with or without a scheme.
    pub fn with_endpoints(self, list: &str) -> Result<Self, EndpointsError> {
        let tls = self.ca.is_some() || self.identity.is_some();
        let list = list.strip_prefix("etcd://").unwrap_or(list);
        let mut endpoints = Vec::new();
        for text in list.split([';', ',']).map(str::trim).filter(|text| !text.is_empty()) {
            let (scheme, rest) = match text.split_once("://") {
                Some((scheme @ ("http" | "https"), rest)) => (scheme, rest),
                Some(_) => return Err(EndpointsError::Malformed(text.to_owned())),
                None => (if tls { "https" } else { "http" }, text),
            };
            if tls && scheme == "http" {
                return Err(EndpointsError::Plain(text.to_owned()));
            }
            if self.ca.is_none() && scheme == "https" {
                return Err(EndpointsError::NoAuthority(text.to_owned()));
            }
            match split_address(rest.strip_suffix('/').unwrap_or(rest)) {
                Some((host, Some(port))) if is_host(host) && port > 0 => {
                    endpoints.push(format!("{scheme}://{}", host_and_port(host, port)));
                }
                _ => return Err(EndpointsError::Malformed(text.to_owned())),
            }
        }
        if endpoints.is_empty() { Err(EndpointsError::None) } else { Ok(Self { endpoints, ..self }) }
    }

    /// Returns the settings of the etcd client, which reads the files itself, again for every connection.
    #[must_use]
    pub fn settings(&self) -> EtcdSettings {
        let files = |ca| TlsFiles { ca, identity: self.identity.clone(), server_name: None }.into();
        EtcdSettings {
            tls: self.ca.clone().map(files),
            login: self.login.clone().map(Into::into),
            ..EtcdSettings::new(self.endpoints.clone())
        }
    }
}

/// Splits `HOST`, `HOST:PORT`, an IPv6 address, or one in brackets with or without a port.
fn split_address(text: &str) -> Option<(&str, Option<u16>)> {
    if let Some(rest) = text.strip_prefix('[') {
        let (host, rest) = rest.split_once(']')?;
        return match rest.strip_prefix(':') {
            Some(port) => Some((host, Some(port.parse().ok()?))),
            None if rest.is_empty() => Some((host, None)),
            None => None,
        };
    }
    match text.split_once(':') {
        // A second colon means an IPv6 address.
        Some((_, rest)) if rest.contains(':') => Some((text, None)),
        Some((host, port)) => Some((host, Some(port.parse().ok()?))),
        None => Some((text, None)),
    }
}

fn is_host(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || ".:-_%".contains(c))
}

fn is_wildcard(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified())
}

fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_with_and_without_ports() {
        for (text, host, port) in [
            ("h", "h", None),
            ("h:1", "h", Some(1)),
            ("10.0.0.1:65535", "10.0.0.1", Some(65535)),
            ("::1", "::1", None),
            ("[::1]", "::1", None),
            ("[::1]:5", "::1", Some(5)),
        ] {
            assert_eq!(split_address(text), Some((host, port)), "{text}");
        }
        for text in ["h:", "h:x", "h:65536", "[::1", "[::1]5", "[::1]:"] {
            assert_eq!(split_address(text), None, "{text}");
        }
        assert_eq!(host_and_port("::1", 7), "[::1]:7");
        assert_eq!(host_and_port("h", 7), "h:7");
    }
}
