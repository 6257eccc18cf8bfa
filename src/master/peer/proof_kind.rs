//! Kinds of credentials, which two masters compare before their proofs.

use serde::{Deserialize, Serialize};

/// Kind of credentials of a master. Both sides of a connection send it in the clear, because a difference in it is the
/// likeliest reason for proofs that do not fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProofKind {
    /// The token of `--peer_token_file`.
    File,
    /// The token in etcd.
    Etcd,
    Certificates,
    /// A kind that this version does not know.
    #[serde(other)]
    Other,
}

impl ProofKind {
    /// Describes the kind in words.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            ProofKind::File => "the token in the file of --peer_token_file",
            ProofKind::Etcd => "the token under the key peer_token in etcd",
            ProofKind::Certificates => "the certificate of --peer_cert",
            ProofKind::Other => "credentials that this version does not know",
        }
    }
}

/// Describes that two masters have different kinds of credentials.
pub(super) fn other_kind(own: ProofKind, other: ProofKind) -> String {
    format!(
        "this master authenticates with {}, the other one with {}; all masters of a cluster need the same",
        own.as_str(),
        other.as_str()
    )
}
