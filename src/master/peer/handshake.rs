//! The handshake of the peer port: both sides prove which processes they are, and that they share a secret, without
//! sending it.
//!
//! ```text
//! server -> client   protocol, server nonce, what it proves itself with
//! client -> server   client nonce, name, boot id, proof over both nonces and these
//! server -> client   boot id, proof over all of it           (or: refused, and why)
//! ```
//!
//! A proof is an HMAC-SHA256 over the side that makes it, the cluster and everything that was sent before, each with
//! its length in front. Its key is the cluster's token or, where masters have certificates, a secret of that TLS
//! connection, which only its two ends know: then TLS has verified the certificates, and the proofs tie names, boot ids
//! and cluster to the connection. The client proves itself first: the server reveals nothing about itself to an
//! unauthenticated client, not even a value against which a weak token could be guessed.

use std::io;

use ring::hmac;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::rustls;

use super::line::{Lines, hex, send};
use super::presence::Process;
use super::proof_kind::{ProofKind, other_kind};
use super::secret::Secret;
use super::token::PeerTokenError;

/// Name of this protocol and its version.
const PROTOCOL: &str = "moonkeeper-peer/1";

/// Random bytes of a nonce.
const NONCE_BYTES: usize = 32;

/// Longest name of a member.
const MAX_NAME: usize = 253;

/// Longest boot id that is accepted, in bytes.
const MAX_BOOT_ID: usize = 64;

/// First byte of a TLS connection: a handshake record. No line of JSON begins with it.
pub(super) const TLS_HANDSHAKE: u8 = 0x16;

/// What a process claims to be in a handshake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub cluster_id: String,
    /// The name of the member.
    pub name: String,
    pub boot_id: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Hello {
    protocol: String,
    nonce: String,
    #[serde(rename = "token")]
    proves_with: ProofKind,
}

#[derive(Debug, Serialize, Deserialize)]
struct Claim {
    nonce: String,
    name: String,
    boot_id: String,
    #[serde(rename = "token")]
    proves_with: ProofKind,
    proof: String,
}

#[derive(Debug, Default, Serialize, Deserialize)]
struct Verdict {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    refused: Option<String>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    boot_id: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    proof: String,
}

/// Why a handshake on the peer port failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The connection broke or was closed before the end.
    #[error("the connection ended: {0}")]
    Broke(io::Error),
    /// The other side speaks another protocol.
    #[error("the other side is not a master of this version: {0}")]
    NotAPeer(String),
    /// This master has no token.
    #[error("{0}")]
    NoToken(#[from] PeerTokenError),
    /// The two sides share no secret.
    #[error("{0}")]
    Differs(String),
    /// TLS rejected a certificate, this master's or the other's.
    #[error("{0}")]
    Certificate(String),
    /// The other side has not proven itself in time.
    #[error("the other side did not authenticate in time")]
    TooSlow,
}

impl HandshakeError {
    /// Returns the error for another side that does not begin with TLS.
    pub(super) fn no_tls() -> Self {
        HandshakeError::Differs(
            "this master has certificates (--peer_cert) and the other side does not speak TLS; all masters of a cluster \
             need certificates, or none of them"
                .to_owned(),
        )
    }

    /// Returns whether the failure deserves attention. A connection that was merely closed does not: probes and
    /// processes that end do that.
    pub(super) fn is_fault(&self) -> bool {
        !matches!(self, HandshakeError::Broke(_))
    }
}

impl From<io::Error> for HandshakeError {
    fn from(why: io::Error) -> Self {
        let tls = why.get_ref().and_then(|why| why.downcast_ref::<rustls::Error>());
        match (tls, why.kind()) {
            (Some(rustls::Error::AlertReceived(alert)), _) => HandshakeError::Certificate(format!(
                "the other side refuses this master's certificate: {alert:?}"
            )),
            (Some(rustls::Error::InvalidMessage(_)), _) => HandshakeError::no_tls(),
            (Some(why), _) => HandshakeError::Certificate(why.to_string()),
            // Without the details, which could copy a stranger's text into logs and status.
            (None, io::ErrorKind::InvalidData) => {
                HandshakeError::NotAPeer("it does not speak the protocol of the peer port".to_owned())
            }
            (None, _) => HandshakeError::Broke(why),
        }
    }
}

/// A handshake that failed on the listening side.
#[derive(Debug)]
pub(super) struct Refusal {
    pub(super) why: HandshakeError,
    /// Name that the other side claimed.
    pub(super) claimed: Option<String>,
}

impl From<HandshakeError> for Refusal {
    fn from(why: HandshakeError) -> Self {
        Self { why, claimed: None }
    }
}

/// The values that a proof covers.
struct Transcript<'a> {
    cluster_id: &'a str,
    server_nonce: &'a str,
    client_nonce: &'a str,
    client: (&'a str, &'a str),
}

impl Transcript<'_> {
    /// Returns the bytes that the client signs, or, with the server's boot id, those that the server signs.
    fn bytes(&self, server: Option<&str>) -> Vec<u8> {
        let side = if server.is_some() { "server" } else { "client" };
        let (name, boot_id) = self.client;
        let fields = [PROTOCOL, side, self.cluster_id, self.server_nonce, self.client_nonce, name, boot_id];
        let mut bytes = Vec::with_capacity(512);
        for field in fields.into_iter().chain(server) {
            // With lengths, so that two different lists of fields never give the same bytes.
            bytes.extend_from_slice(&(field.len() as u64).to_be_bytes());
            bytes.extend_from_slice(field.as_bytes());
        }
        bytes
    }

    fn prove(&self, key: &hmac::Key, server: Option<&str>) -> String {
        hex(hmac::sign(key, &self.bytes(server)).as_ref())
    }

    /// Verifies a proof in constant time.
    fn fits(&self, key: &hmac::Key, server: Option<&str>, proof: &str) -> bool {
        unhex(proof).is_some_and(|proof| hmac::verify(key, &self.bytes(server), &proof).is_ok())
    }
}

/// Tells a client in plain text that this master has certificates, and nothing else.
pub(super) async fn say_certificates(to: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let (protocol, nonce) = (PROTOCOL.to_owned(), String::new());
    send(to, &Hello { protocol, nonce, proves_with: ProofKind::Certificates }).await
}

/// Runs the handshake of the listening side. Returns the proven identity of the client.
pub(super) async fn admit<R, W>(
    lines: &mut Lines<R>,
    to: &mut W,
    own: &Identity,
    secret: &Secret<'_>,
) -> Result<Process, Refusal>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let mut claimed = None;
    let admitted = admit_claim(lines, to, own, secret, &mut claimed).await;
    admitted.map_err(|why| match lines.first_byte() {
        Some(TLS_HANDSHAKE) => {
            HandshakeError::Differs(other_kind(secret.kind(), ProofKind::Certificates)).into()
        }
        _ => Refusal { why, claimed },
    })
}

async fn admit_claim<R, W>(
    lines: &mut Lines<R>,
    to: &mut W,
    own: &Identity,
    secret: &Secret<'_>,
    claimed: &mut Option<String>,
) -> Result<Process, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let hello = Hello { protocol: PROTOCOL.to_owned(), nonce: nonce()?, proves_with: secret.kind() };
    send(to, &hello).await?;
    let Some(claim) = lines.next::<Claim>().await? else {
        return Err(HandshakeError::Broke(io::ErrorKind::UnexpectedEof.into()));
    };
    if !is_plain(&claim.name, MAX_NAME) || !is_plain(&claim.boot_id, MAX_BOOT_ID) {
        return Err(HandshakeError::NotAPeer("it has no name or no boot id".to_owned()));
    }
    // This process never connects to itself: an attacker reflects its own claim.
    if claim.boot_id == own.boot_id {
        return Err(HandshakeError::NotAPeer("it claims to be this very process".to_owned()));
    }
    *claimed = Some(claim.name.clone());
    let transcript = Transcript {
        cluster_id: &own.cluster_id,
        server_nonce: &hello.nonce,
        client_nonce: &claim.nonce,
        client: (&claim.name, &claim.boot_id),
    };
    let mut key = secret.key().await?;
    if !transcript.fits(&key, None, &claim.proof) {
        key = secret.key_again().await?;
    }
    if !transcript.fits(&key, None, &claim.proof) {
        let refused = Some("the proof does not fit".to_owned());
        send(to, &Verdict { refused, ..Verdict::default() }).await?;
        return Err(HandshakeError::Differs(secret.differs(claim.proves_with, &own.cluster_id)));
    }
    let proof = transcript.prove(&key, Some(&own.boot_id));
    send(to, &Verdict { refused: None, boot_id: own.boot_id.clone(), proof }).await?;
    Ok((claim.name, claim.boot_id))
}

/// Runs the handshake of the connecting side. Returns the proven boot id of the server.
pub(super) async fn present<R, W>(
    lines: &mut Lines<R>,
    to: &mut W,
    own: &Identity,
    secret: &Secret<'_>,
) -> Result<String, HandshakeError>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let ended = || HandshakeError::Broke(io::ErrorKind::UnexpectedEof.into());
    let hello = lines.next::<Hello>().await?.ok_or_else(ended)?;
    if hello.protocol != PROTOCOL {
        return Err(HandshakeError::NotAPeer(format!("this master speaks {PROTOCOL}")));
    }
    if hello.proves_with == ProofKind::Certificates && secret.kind() != ProofKind::Certificates {
        return Err(HandshakeError::Differs(other_kind(secret.kind(), hello.proves_with)));
    }
    let nonce = nonce()?;
    let transcript = Transcript {
        cluster_id: &own.cluster_id,
        server_nonce: &hello.nonce,
        client_nonce: &nonce,
        client: (&own.name, &own.boot_id),
    };
    let key = secret.key().await?;
    let (name, boot_id) = (own.name.clone(), own.boot_id.clone());
    let proof = transcript.prove(&key, None);
    send(to, &Claim { nonce: nonce.clone(), name, boot_id, proves_with: secret.kind(), proof }).await?;
    let verdict = lines.next::<Verdict>().await?.ok_or_else(ended)?;
    // A server without a valid proof counts as one that refuses.
    if verdict.refused.is_some() || !transcript.fits(&key, Some(&verdict.boot_id), &verdict.proof) {
        // Read the token again for the next attempt.
        let _ = secret.key_again().await;
        return Err(HandshakeError::Differs(secret.differs(hello.proves_with, &own.cluster_id)));
    }
    Ok(verdict.boot_id)
}

fn is_plain(text: &str, longest: usize) -> bool {
    (1..=longest).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

fn nonce() -> io::Result<String> {
    let mut bytes = [0; NONCE_BYTES];
    getrandom::fill(&mut bytes).map_err(|why| io::Error::other(why.to_string()))?;
    Ok(hex(&bytes))
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.is_ascii() || !text.len().is_multiple_of(2) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_about_everything_that_was_said() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef");
        let said =
            Transcript { cluster_id: "demo", server_nonce: "s", client_nonce: "c", client: ("m-1", "b1") };
        let proof = said.prove(&key, None);
        assert!(said.fits(&key, None, &proof));
        // The proof does not fit the other side, another key or other values.
        assert!(!said.fits(&key, Some("b0"), &proof));
        assert!(!said.fits(&hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdee"), None, &proof));
        for other in [
            Transcript { cluster_id: "demos", server_nonce: "", ..said },
            Transcript { server_nonce: "t", ..said },
            Transcript { client_nonce: "d", ..said },
            Transcript { client: ("m-1b", "1"), ..said },
            Transcript { client: ("m-2", "b1"), ..said },
        ] {
            assert!(!other.fits(&key, None, &proof));
        }
        for bad in ["", "zz", "0", "\u{e4}\u{e4}", &proof[2..]] {
            assert!(!said.fits(&key, None, bad), "{bad}");
        }
        let server = said.prove(&key, Some("b0"));
        assert!(said.fits(&key, Some("b0"), &server) && !said.fits(&key, Some("b1"), &server));
    }
}
