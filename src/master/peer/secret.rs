//! The secret that two masters share, so that each can prove to the other that it belongs to the cluster.

use ring::hmac;

use super::proof_kind::{ProofKind, other_kind};
use super::token::{PeerToken, PeerTokenError};

/// The secret that the two ends of a connection share.
pub(super) enum Secret<'a> {
    Token(&'a PeerToken),
    /// A secret of this TLS connection, whose two sides have shown certificates.
    Channel(hmac::Key),
}

impl Secret<'_> {
    pub(super) fn kind(&self) -> ProofKind {
        match self {
            Secret::Token(token) => token.kind(),
            Secret::Channel(_) => ProofKind::Certificates,
        }
    }

    /// Returns the HMAC key of the proofs.
    pub(super) async fn key(&self) -> Result<hmac::Key, PeerTokenError> {
        match self {
            Secret::Token(token) => token.key().await,
            Secret::Channel(key) => Ok(key.clone()),
        }
    }

    /// Returns the HMAC key of the proofs after reading its source again, because a proof did not fit.
    pub(super) async fn key_again(&self) -> Result<hmac::Key, PeerTokenError> {
        match self {
            Secret::Token(token) => token.key_again().await,
            Secret::Channel(key) => Ok(key.clone()),
        }
    }

    /// Returns the most likely reason why a proof does not fit.
    pub(super) fn differs(&self, other: ProofKind, cluster_id: &str) -> String {
        let own = self.kind();
        match (own, other) {
            // The certificates are valid, and the secret is that of the connection, so only the cluster can differ.
            (ProofKind::Certificates, _) => {
                format!("the other master belongs to another cluster than {cluster_id}")
            }
            (own, other) if own == other => {
                format!("the peer tokens differ; both masters authenticate with {}", own.as_str())
            }
            _ => other_kind(own, other),
        }
    }
}
