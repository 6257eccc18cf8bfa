//! Certificates and keys in files that are renewed while this process runs. The admin API and the peer port share it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

/// Least time between two lines in the log about files that cannot be read.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Why TLS cannot be spoken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file is not what it should be.
    #[error("cannot read {what} from {path}: {reason}")]
    File {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// The parts do not fit each other.
    #[error("cannot use TLS with these certificates: {0}")]
    Unusable(String),
}

impl TlsError {
    /// What a library says about parts that do not fit each other.
    pub(super) fn unusable(why: impl std::fmt::Display) -> Self {
        TlsError::Unusable(why.to_string())
    }

    fn file(what: &'static str, path: &Path, why: impl std::fmt::Display) -> Self {
        TlsError::File { what, path: path.to_owned(), reason: why.to_string() }
    }
}

/// The certificates in a PEM file; at least one.
pub(super) fn certificates(
    path: &Path,
    what: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why| TlsError::file(what, path, why);
    let found = CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<Vec<_>, _>>();
    match found.map_err(failed)? {
        none if none.is_empty() => Err(failed(pem::Error::NoItemsFound)),
        some => Ok(some),
    }
}

/// The private key in a PEM file.
pub(super) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|why| TlsError::file("a private key", path, why))
}

/// The certificate authorities in a PEM file; at least one.
pub(super) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    const WHAT: &str = "a certificate authority";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, WHAT)? {
        roots.add(certificate).map_err(|why| TlsError::file(WHAT, path, why))?;
    }
    Ok(roots)
}

/// What is made of files, and made anew when a connection needs it. Files that cannot be read leave the last that could
/// be read in force. Clones share it.
pub(super) struct Reloading<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    /// Names the user of these files in the log.
    owner: &'static str,
    pause: Duration,
    read: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    known: Mutex<Known<T>>,
    /// Held while the files are read, so that one read at a time is under way.
    reading: tokio::sync::Mutex<()>,
}

struct Known<T> {
    value: T,
    read_at: Instant,
    logged_at: Option<Instant>,
}

impl<T> Clone for Reloading<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> std::fmt::Debug for Reloading<T> {
    /// Without what is in the files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reloading").field(&self.shared.owner).finish()
    }
}

impl<T: Clone + Send + 'static> Reloading<T> {
    /// Reads the files once. Later reads have at least `pause` between them.
    pub(super) fn new(
        owner: &'static str,
        pause: Duration,
        read: impl Fn() -> Result<T, TlsError> + Send + Sync + 'static,
    ) -> Result<Self, TlsError> {
        let known = Known { value: read()?, read_at: Instant::now(), logged_at: None };
        let shared = Shared {
            owner,
            pause,
            read: Box::new(read),
            known: Mutex::new(known),
            reading: tokio::sync::Mutex::default(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// What the files hold now. While another caller reads them, what they held before.
    pub(super) async fn current(&self) -> T {
        let (value, age) = {
            let known = self.shared.known.lock();
            (known.value.clone(), known.read_at.elapsed())
        };
        if age < self.shared.pause {
            return value;
        }
        let Ok(_reading) = self.shared.reading.try_lock() else { return value };
        let shared = Arc::clone(&self.shared);
        // Small files, but they may lie on a disk that hangs.
        let read = match tokio::task::spawn_blocking(move || (shared.read)()).await {
            Ok(read) => read.map_err(|why| why.to_string()),
            Err(why) => Err(why.to_string()),
        };
        let mut known = self.shared.known.lock();
        known.read_at = Instant::now();
        match read {
            Ok(value) => known.value = value,
            Err(why) if known.logged_at.is_none_or(|at| at.elapsed() >= LOG_PAUSE) => {
                known.logged_at = Some(Instant::now());
                tracing::error!(why, "the {} goes on with the certificate that it had", self.shared.owner);
            }
            Err(_) => {}
        }
        known.value.clone()
    }
}
