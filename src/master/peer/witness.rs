//! The witness of an ended process: how another process reports to the standbys that a master has ended (R6).
//!
//! A new primary has to wait until the old one can have answered its last read: one full leader lease, because a
//! process that does not answer may merely be stopped. A witness knows better. It holds a pidfd that the master itself
//! handed over, and a pidfd becomes readable when, and only when, that very process has ended. It then reports the boot
//! id of the process to the peer ports of the other masters. A report shortens the wait and does nothing else: no lease
//! is revoked because of it, and a master that has not read this boot id in the last `NewTerm` of its log ignores it.
//!
//! The sending side is
//!
//! ```text
//! pub async fn report_end(ended: &EndedProcess, peers: &[String], within: Duration)
//!     -> Vec<(String, Result<(), WitnessError>)>
//! ```
//!
//! [`EndedProcess`] is plain values that can be serialised: a master makes it while it lives
//! ([`EndedProcess::describe`]) and hands it to the witness, together with the peer addresses of the other members,
//! again whenever either changes. `report_end` connects to all `peers` (each `host:port`) at once, proves itself as a
//! master does, in the name of the ended process, sends the report and waits for the acknowledgement, all of it bounded
//! by `within`. It makes one attempt and returns the result for each peer: a caller that wants another attempt calls it
//! again with the peers that failed. The caller alone is responsible for the truth of the report: it must not report a
//! process of which it merely lost a connection.

use std::path::PathBuf;
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::certificates::PeerCertificates;
use super::credentials::PeerCredentials;
use super::handshake::{self, HandshakeError, Identity};
use super::line::{Lines, prepare, send};
use super::proof_kind::ProofKind;
use super::secret::Secret;
use super::token::{PeerToken, PeerTokenError};
use crate::master::settings::peer::PeerTls;
use crate::net::tls::TlsError;

/// A process that has ended, and the credentials of its witness.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedProcess {
    pub cluster_id: String,
    /// The name of the member.
    pub name: String,
    /// Its boot id, 16 hexadecimal digits.
    pub boot_id: String,
    /// Credentials of a master of this cluster.
    pub credentials: WitnessCredentials,
}

/// Credentials of a master as plain values.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WitnessCredentials {
    /// A token that all masters share.
    Token {
        /// Where the master has the token from; both sides of a connection send this.
        kind: ProofKind,
        token: String,
    },
    /// Files with certificates, which the witness has to be able to read at the time of the report.
    Certificates {
        cert: PathBuf,
        key: PathBuf,
        /// The authorities that verify the certificates of the other masters.
        ca: PathBuf,
        /// The DNS name that the certificate of every master must have.
        name: Option<String>,
    },
}

impl std::fmt::Debug for WitnessCredentials {
    /// Formats without the token, which must not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            WitnessCredentials::Token { kind, .. } => f.debug_tuple("Token").field(kind).finish(),
            WitnessCredentials::Certificates { cert, .. } => {
                f.debug_tuple("Certificates").field(cert).finish()
            }
        }
    }
}

/// Why a peer has not acknowledged a report.
#[derive(Debug, thiserror::Error)]
pub enum WitnessError {
    /// There is no usable certificate.
    #[error("cannot use the certificates of the peer port: {0}")]
    Certificates(#[from] TlsError),
    /// The connection could not be made, or broke.
    #[error("the connection failed: {0}")]
    Connection(#[from] std::io::Error),
    /// The two sides did not accept each other.
    #[error("the handshake failed: {0}")]
    Handshake(String),
    /// The other side closed the connection instead.
    #[error("the other master did not accept the report; its version may be older than such reports")]
    NotTaken,
    #[error("no acknowledgement in time")]
    TooSlow,
}

impl From<HandshakeError> for WitnessError {
    fn from(why: HandshakeError) -> Self {
        WitnessError::Handshake(why.to_string())
    }
}

/// The report as a line.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct EndedLine {
    /// The boot id of the process that has ended.
    pub(super) ended: String,
}

/// A line to the witness: the acknowledgement, or a state line, which the witness ignores.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct WitnessedLine {
    /// The boot id whose end was reported.
    #[serde(default)]
    pub(super) witnessed: Option<String>,
}

impl EndedProcess {
    /// Describes a live process, so that a witness can report its end one day. Fails if there is no token yet.
    pub async fn describe(own: &Identity, credentials: &PeerCredentials) -> Result<Self, PeerTokenError> {
        let credentials = match credentials {
            PeerCredentials::Token(token) => {
                WitnessCredentials::Token { kind: token.kind(), token: token.text().await? }
            }
            PeerCredentials::Certificates(certificates) => {
                let PeerTls { cert, key, ca, name } = certificates.files().clone();
                WitnessCredentials::Certificates { cert, key, ca, name }
            }
        };
        let Identity { cluster_id, name, boot_id } = own.clone();
        Ok(Self { cluster_id, name, boot_id, credentials })
    }

    fn identity(&self) -> Identity {
        let Self { cluster_id, name, boot_id, .. } = self.clone();
        Identity { cluster_id, name, boot_id }
    }

    fn credentials(&self) -> Result<PeerCredentials, TlsError> {
        Ok(match self.credentials.clone() {
            WitnessCredentials::Token { kind, token } => PeerToken::given(kind, token).into(),
            WitnessCredentials::Certificates { cert, key, ca, name } => {
                PeerCertificates::read(PeerTls { cert, key, ca, name })?.into()
            }
        })
    }

    /// Reports to one peer, and waits for its acknowledgement.
    async fn report_to(&self, peer: &str) -> Result<(), WitnessError> {
        let credentials = self.credentials()?;
        let mut stream = TcpStream::connect(peer).await?;
        prepare(&stream)?;
        match credentials {
            PeerCredentials::Token(token) => self.speak(stream.split(), &Secret::Token(&token)).await,
            PeerCredentials::Certificates(certificates) => {
                let (stream, key) = certificates.connect(stream).await?;
                self.speak(tokio::io::split(stream), &Secret::Channel(key)).await
            }
        }
    }

    async fn speak<R, W>(&self, (from, mut to): (R, W), secret: &Secret<'_>) -> Result<(), WitnessError>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let mut lines = Lines::new(from);
        handshake::present(&mut lines, &mut to, &self.identity(), secret).await?;
        send(&mut to, &EndedLine { ended: self.boot_id.clone() }).await?;
        while let Some(WitnessedLine { witnessed }) = lines.next().await? {
            if witnessed.as_ref() == Some(&self.boot_id) {
                return Ok(());
            }
        }
        Err(WitnessError::NotTaken)
    }
}

/// Reports the end of a process to all of these peers at once, and returns the result for each.
pub async fn report_end(
    ended: &EndedProcess,
    peers: &[String],
    within: Duration,
) -> Vec<(String, Result<(), WitnessError>)> {
    let each = peers.iter().map(|peer| async {
        let done = timeout(within, ended.report_to(peer)).await;
        (peer.clone(), done.unwrap_or(Err(WitnessError::TooSlow)))
    });
    join_all(each).await
}
