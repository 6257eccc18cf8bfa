//! Settings of the authentication between masters on the peer port.

use std::path::PathBuf;

use tokio_rustls::rustls::pki_types::DnsName;

use super::{FlagError, Reader};

/// Credentials that masters prove themselves with to each other. Exactly one kind is in use, and it cannot be turned
/// off.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum PeerAuth {
    /// A token that the first master creates and stores in etcd.
    #[default]
    TokenInEtcd,
    /// The token in the first line of this file.
    TokenFile(PathBuf),
    /// Certificates, with TLS in both directions.
    Certificates(PeerTls),
}

/// The certificate of a master, and what verifies those of the others. Files are named, not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerTls {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// The authorities, one of which must have signed the certificate of every master.
    pub ca: PathBuf,
    /// The DNS name that the certificate of every master must have.
    pub name: Option<String>,
}

impl Reader<'_> {
    /// Reads the credentials of this master towards the others.
    pub(super) fn peer_auth(&self) -> Result<PeerAuth, FlagError> {
        let conflict = |text: String| Err(FlagError::Conflict(text));
        let flags = ["peer_cert", "peer_key", "peer_cacert"];
        let certificates = match flags.map(|flag| self.path(flag)) {
            [Some(cert), Some(key), Some(ca)] => Some((cert, key, ca)),
            [None, None, None] => None,
            files => {
                let missing = flags.iter().zip(&files).find(|(_, file)| file.is_none());
                return conflict(format!(
                    "--peer_cert, --peer_key and --peer_cacert go together, and --{} is not set",
                    missing.map(|(flag, _)| *flag).unwrap_or_default()
                ));
            }
        };
        let name = Some(self.values.text("peer_cert_name").to_owned()).filter(|name| !name.is_empty());
        match (certificates, self.path("peer_token_file")) {
            (Some(_), Some(_)) => conflict(
                "certificates take the place of the token, so --peer_cert and --peer_token_file do not go together: set \
                 one of them"
                    .to_owned(),
            ),
            (Some((cert, key, ca)), None) => {
                if name.as_deref().is_some_and(|name| DnsName::try_from(name).is_err()) {
                    return Err(self.values.out_of_range("peer_cert_name", "a DNS name is accepted"));
                }
                Ok(PeerAuth::Certificates(PeerTls { cert, key, ca, name }))
            }
            (None, _) if name.is_some() => {
                conflict("--peer_cert_name needs --peer_cert, --peer_key and --peer_cacert".to_owned())
            }
            (None, Some(file)) => Ok(PeerAuth::TokenFile(file)),
            (None, None) => Ok(PeerAuth::TokenInEtcd),
        }
    }
}
