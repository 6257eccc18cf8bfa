//! The token that the masters of a cluster share: from a file, or from etcd, where the first master creates one.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use ring::hmac;
use tokio::time::Instant;

use super::line::hex;
use super::proof_kind::ProofKind;
use crate::coordination::etcd::Etcd;
use crate::coordination::types::{Compare, Get, KeyRange, LeaseId, Op, OpResult, Request, Response, Txn};
use crate::master::admin_api::{TokenError, read_token};

/// Least time between two reads of the file or of etcd: connections with wrong tokens must not make a master read all
/// the time.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two attempts to get a token at the start.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Timeout of a call to etcd.
const ETCD_TIMEOUT: Duration = Duration::from_secs(2);

/// Random bytes of a token that a master creates.
const FRESH_BYTES: usize = 32;

/// Fewest characters of a token: a shorter one could be guessed.
const MIN_CHARACTERS: usize = 16;

enum Source {
    File(PathBuf),
    Etcd {
        etcd: Arc<Etcd>,
        key: Bytes,
    },
    /// Handed over by a master, which has it from a source of this kind.
    Given(ProofKind),
}

/// The token of a master. Clones share it.
#[derive(Clone)]
pub struct PeerToken(Arc<Shared>);

impl std::fmt::Debug for PeerToken {
    /// Formats without the token, which must not get into logs.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("PeerToken").field(&self.kind()).finish()
    }
}

struct Shared {
    source: Source,
    known: Mutex<Known>,
    /// Held while the source is read, so that only one read is under way.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct Known {
    token: Option<String>,
    /// When the source was last read, successfully or not.
    read_at: Option<Instant>,
}

/// Why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum PeerTokenError {
    /// The file contains no token.
    #[error("--peer_token_file: {0}")]
    File(#[from] TokenError),
    /// etcd did not answer.
    #[error("cannot read the peer token from etcd: {0}")]
    Etcd(String),
    /// The value in etcd is not a token.
    #[error("the value of {0} in etcd is not a peer token")]
    Malformed(String),
    /// The system's random source failed.
    #[error("cannot create a peer token: {0}")]
    Random(getrandom::Error),
    /// The last attempt failed a moment ago.
    #[error("there is no peer token yet")]
    NotYet,
}

impl PeerToken {
    /// Reads the token in the first line of a file. The file is read again from time to time, so that the token can be
    /// replaced.
    pub fn from_file(path: PathBuf) -> Result<Self, PeerTokenError> {
        let token = read_token(&path)?;
        let known = Known { token: Some(token), read_at: Some(Instant::now()) };
        Ok(Self::new(Source::File(path), known))
    }

    /// Uses the token under this key. It is read later, and created if it is absent.
    #[must_use]
    pub fn in_etcd(etcd: Arc<Etcd>, key: Bytes) -> Self {
        Self::new(Source::Etcd { etcd, key }, Known::default())
    }

    /// Uses a token that a master has read and handed over.
    #[must_use]
    pub fn given(kind: ProofKind, token: String) -> Self {
        Self::new(Source::Given(kind), Known { token: Some(token), read_at: None })
    }

    fn new(source: Source, known: Known) -> Self {
        Self(Arc::new(Shared { source, known: Mutex::new(known), reading: tokio::sync::Mutex::default() }))
    }

    /// Returns where the token comes from.
    #[must_use]
    pub fn kind(&self) -> ProofKind {
        match self.0.source {
            Source::File(_) => ProofKind::File,
            Source::Etcd { .. } => ProofKind::Etcd,
            Source::Given(kind) => kind,
        }
    }

    /// Retries until there is a token. Standbys find the primary a moment after it was elected, and must not have to
    /// wait for etcd then.
    pub async fn prepare(self) {
        while self.key().await.is_err() {
            tokio::time::sleep(FIRST_PAUSE).await;
        }
    }

    /// Returns the token as a key for proofs, without waiting if one is known.
    pub(super) async fn key(&self) -> Result<hmac::Key, PeerTokenError> {
        let (token, age) = {
            let known = self.0.known.lock();
            (known.token.clone(), known.read_at.map(|at| at.elapsed()))
        };
        let stale = match (&token, &self.0.source) {
            (None, _) => age.is_none_or(|age| age >= FIRST_PAUSE),
            // A file may be replaced, and a small file costs nothing to read.
            (Some(_), Source::File(_)) => age.is_none_or(|age| age >= READ_PAUSE),
            // The token in etcd is read again when a proof does not fit.
            (Some(_), Source::Etcd { .. } | Source::Given(_)) => false,
        };
        match token {
            Some(token) if !stale => Ok(key_of(&token)),
            Some(token) => match self.0.reading.try_lock() {
                Ok(_reading) => self.read().await,
                Err(_) => Ok(key_of(&token)),
            },
            None if stale => {
                let _reading = self.0.reading.lock().await;
                // Another connection may have read it meanwhile.
                let known = self.0.known.lock().token.clone();
                match known {
                    Some(token) => Ok(key_of(&token)),
                    None => self.read().await,
                }
            }
            None => Err(PeerTokenError::NotYet),
        }
    }

    /// Returns the token itself, for a process that this master hands it to.
    pub(super) async fn text(&self) -> Result<String, PeerTokenError> {
        self.key().await?;
        self.0.known.lock().token.clone().ok_or(PeerTokenError::NotYet)
    }

    /// Returns the token as its source has it now, because a proof did not fit. Reads at most once a second.
    pub(super) async fn key_again(&self) -> Result<hmac::Key, PeerTokenError> {
        let _reading = self.0.reading.lock().await;
        let recent = {
            let known = self.0.known.lock();
            let recent = known.read_at.is_some_and(|at| at.elapsed() < READ_PAUSE);
            known.token.clone().filter(|_| recent)
        };
        match recent {
            Some(token) => Ok(key_of(&token)),
            None => self.read().await,
        }
    }

    /// Reads the source. If it cannot be read, the token that was known stays in use.
    async fn read(&self) -> Result<hmac::Key, PeerTokenError> {
        let read = match &self.0.source {
            Source::File(path) => {
                let path = path.clone();
                // The file has a few bytes, but its disk may hang.
                match tokio::task::spawn_blocking(move || read_token(&path)).await {
                    Ok(read) => read.map_err(PeerTokenError::from),
                    Err(_) => Err(PeerTokenError::NotYet),
                }
            }
            Source::Etcd { etcd, key } => self.read_etcd(etcd, key).await,
            // The source is another process, so it cannot be read again.
            Source::Given(_) => self.0.known.lock().token.clone().ok_or(PeerTokenError::NotYet),
        };
        let mut known = self.0.known.lock();
        known.read_at = Some(Instant::now());
        match read {
            Ok(token) => {
                let key = key_of(&token);
                known.token = Some(token);
                Ok(key)
            }
            Err(why) => match &known.token {
                Some(token) => {
                    tracing::warn!(%why, "the peer token cannot be read again, the last one stays in use");
                    Ok(key_of(token))
                }
                None => {
                    tracing::debug!(%why, "there is no peer token yet");
                    Err(why)
                }
            },
        }
    }

    /// Reads the key, or creates it if it is absent: in one transaction, so that all masters get the same token. A
    /// master that has a token writes that one, so that a deleted key changes nothing.
    async fn read_etcd(&self, etcd: &Etcd, key: &Bytes) -> Result<String, PeerTokenError> {
        let known = self.0.known.lock().token.clone();
        let proposal = match known {
            Some(token) => token,
            None => fresh().map_err(PeerTokenError::Random)?,
        };
        let put = Op::Put { key: key.clone(), value: proposal.clone().into(), lease: LeaseId(0) };
        let txn = Txn {
            compare: vec![Compare::CreateRevision { key: key.clone(), equals: 0 }],
            success: vec![put],
            failure: vec![Op::Get(Get::all(KeyRange::key(key.clone())))],
        };
        match etcd.call(Request::Txn(txn), ETCD_TIMEOUT).await {
            Ok(Response::Txn { succeeded: true, .. }) => {
                tracing::info!("created a peer token for this cluster in etcd");
                Ok(proposal)
            }
            Ok(Response::Txn { results, .. }) => match results.first() {
                Some(OpResult::Got(page)) => {
                    let value = page.entries.first().map(|entry| &entry.value[..]).unwrap_or_default();
                    let token = std::str::from_utf8(value).map(str::trim).unwrap_or_default();
                    if token.len() < MIN_CHARACTERS {
                        return Err(PeerTokenError::Malformed(String::from_utf8_lossy(key).into_owned()));
                    }
                    Ok(token.to_owned())
                }
                _ => Err(PeerTokenError::Etcd("unexpected answer".to_owned())),
            },
            Ok(_) => Err(PeerTokenError::Etcd("unexpected answer".to_owned())),
            // Whether the key was created is unknown (R5); the next read finds out.
            Err(why) => Err(PeerTokenError::Etcd(why.to_string())),
        }
    }
}

fn key_of(token: &str) -> hmac::Key {
    hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes())
}

fn fresh() -> Result<String, getrandom::Error> {
    let mut bytes = [0; FRESH_BYTES];
    getrandom::fill(&mut bytes)?;
    Ok(hex(&bytes))
}
