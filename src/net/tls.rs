//! Certificates and keys in files that are renewed while this process runs. The admin API and the peer port share this
//! code.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};

/// Least time between two log lines about files that cannot be read.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or does not contain what it should.
    #[error("cannot read {what} from {path}: {reason}")]
    File {
        /// What the file should contain.
        what: &'static str,
        path: PathBuf,
        reason: String,
    },
    /// The certificate, the key or the authorities do not fit each other.
    #[error("cannot use TLS with these certificates: {0}")]
    Unusable(String),
}

impl TlsError {
    /// Returns the error of a TLS library about parts that do not fit each other.
    pub(crate) fn unusable(why: impl std::fmt::Display) -> Self {
        TlsError::Unusable(why.to_string())
    }

    fn file(what: &'static str, path: &Path, why: impl std::fmt::Display) -> Self {
        TlsError::File { what, path: path.to_owned(), reason: why.to_string() }
    }
}

/// Reads the certificates in a PEM file; at least one.
pub(crate) fn certificates(
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

/// Reads the private key in a PEM file.
pub(crate) fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|why| TlsError::file("a private key", path, why))
}

/// Reads the certificate authorities in a PEM file; at least one.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    const WHAT: &str = "a certificate authority";
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, WHAT)? {
        roots.add(certificate).map_err(|why| TlsError::file(WHAT, path, why))?;
    }
    Ok(roots)
}

/// A value that is made from files, and made again when a connection needs it. If the files cannot be read, the last
/// good value stays in force. Clones share it.
pub(crate) struct Reloading<T> {
    shared: Arc<Shared<T>>,
}

struct Shared<T> {
    /// The user of these files, for log lines.
    owner: &'static str,
    pause: Duration,
    read: Box<dyn Fn() -> Result<T, TlsError> + Send + Sync>,
    known: Mutex<Known<T>>,
    /// Held while the files are read, so that only one read at a time is in progress.
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
    /// Leaves out the contents of the files.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Reloading").field(&self.shared.owner).finish()
    }
}

impl<T: Clone + Send + 'static> Reloading<T> {
    /// Reads the files once. Later reads have at least `pause` between them.
    pub(crate) fn new(
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

    /// Returns the value of the present files. While another caller reads them, and within `pause` of the last read,
    /// returns the last value.
    pub(crate) async fn current(&self) -> T {
        let (value, age) = {
            let known = self.shared.known.lock();
            (known.value.clone(), known.read_at.elapsed())
        };
        if age < self.shared.pause {
            return value;
        }
        let Ok(_reading) = self.shared.reading.try_lock() else { return value };
        let shared = Arc::clone(&self.shared);
        // The files are small, but may be on a disk that hangs.
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
                tracing::error!(
                    why,
                    "cannot read the new certificate: the {} keeps the one that it has",
                    self.shared.owner
                );
            }
            Err(_) => {}
        }
        known.value.clone()
    }
}
