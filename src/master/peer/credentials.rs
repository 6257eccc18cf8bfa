//! The credentials of this master: a token or certificates, as its settings say, with no fallback from one to the
//! other.

use std::sync::Arc;

use bytes::Bytes;

use super::certificates::PeerCertificates;
use super::token::{PeerToken, PeerTokenError};
use crate::coordination::etcd::Etcd;
use crate::master::settings::peer::PeerAuth;
use crate::net::tls::TlsError;

/// What this master proves itself with, and demands of the other masters. Clones share it.
#[derive(Clone, Debug)]
pub enum PeerCredentials {
    /// A token that all masters share.
    Token(PeerToken),
    /// A certificate of its own.
    Certificates(PeerCertificates),
}

/// Why the credentials cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum PeerCredentialsError {
    /// The token cannot be read.
    #[error(transparent)]
    Token(#[from] PeerTokenError),
    /// The certificates cannot be used.
    #[error(transparent)]
    Certificates(#[from] TlsError),
}

impl PeerCredentials {
    /// Reads the files that the settings name. A token in etcd is under `key`, and read later.
    pub fn read(auth: &PeerAuth, etcd: &Arc<Etcd>, key: Bytes) -> Result<Self, PeerCredentialsError> {
        Ok(match auth {
            PeerAuth::TokenInEtcd => PeerToken::in_etcd(Arc::clone(etcd), key).into(),
            PeerAuth::TokenFile(path) => PeerToken::from_file(path.clone())?.into(),
            PeerAuth::Certificates(files) => PeerCertificates::read(files.clone())?.into(),
        })
    }

    /// Retries until this master has its credentials.
    pub async fn prepare(self) {
        if let PeerCredentials::Token(token) = self {
            token.prepare().await;
        }
    }
}

impl From<PeerToken> for PeerCredentials {
    fn from(token: PeerToken) -> Self {
        PeerCredentials::Token(token)
    }
}

impl From<PeerCertificates> for PeerCredentials {
    fn from(certificates: PeerCertificates) -> Self {
        PeerCredentials::Certificates(certificates)
    }
}
