//! What two masters share, so that each can prove to the other that it belongs to the cluster.

use ring::hmac;
use serde::{Deserialize, Serialize};

use super::handshake::HandshakeError;
use super::token::{PeerToken, PeerTokenError};

/// What a master proves itself with. Both sides of a connection say so in the clear, because two masters of one cluster
/// that differ in it is the likeliest reason for proofs that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// The token of `--peer_token_file`.
    File,
    /// The token in etcd.
    Etcd,
    /// Certificates.
    Certificates,
    /// Something else, in another version.
    #[serde(other)]
    Other,
}

impl ProofKind {
    /// What that is, in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProofKind::File => "the token in the file of --peer_token_file",
            ProofKind::Etcd => "the token under the key peer_token in etcd",
            ProofKind::Certificates => "the certificate of --peer_cert",
            ProofKind::Other => "something that this version does not know",
        }
    }
}

/// The secret that the two ends of a connection share.
pub(super) enum Secret<'a> {
    /// The cluster's token.
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

    /// The key of proofs.
    pub(super) async fn key(&self) -> Result<hmac::Key, PeerTokenError> {
        match self {
            Secret::Token(token) => token.key().await,
            Secret::Channel(key) => Ok(key.clone()),
        }
    }

    /// The key of proofs, because one did not fit with the key as it was known.
    pub(super) async fn key_again(&self) -> Result<hmac::Key, PeerTokenError> {
        match self {
            Secret::Token(token) => token.key_again().await,
            Secret::Channel(key) => Ok(key.clone()),
        }
    }

    /// Why a proof does not fit, as likely as not.
    pub(super) fn differs(&self, other: ProofKind, cluster_id: &str) -> HandshakeError {
        let own = self.kind();
        HandshakeError::Differs(match (own, other) {
            // The certificates fit, and the secret is that of the connection.
            (ProofKind::Certificates, _) => {
                format!("the other master belongs to another cluster than {cluster_id}")
            }
            (own, other) if own == other => {
                format!("the peer tokens differ; both masters prove themselves with {}", own.as_str())
            }
            _ => other_kind(own, other),
        })
    }
}

/// Two masters that cannot know each other.
pub(super) fn other_kind(own: ProofKind, other: ProofKind) -> String {
    format!(
        "this master proves itself with {}, the other one with {}; all masters of a cluster need the same",
        own.as_str(),
        other.as_str()
    )
}
