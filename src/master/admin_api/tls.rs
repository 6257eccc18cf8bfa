//! The admin API over TLS, with or without certificates of clients.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::{Extension, Router};
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, pem};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::{self, RootCertStore, ServerConfig};

use super::access::Certified;
use super::audit::Remote;
use super::subject::subject;
use crate::master::http::server;
use crate::master::settings::HttpLimits;
use crate::master::settings::ha::AdminTls;

/// Why TLS cannot be served.
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
    #[error("cannot serve TLS with these certificates: {0}")]
    Unusable(String),
}

/// A server for TLS. Its files are read again for every connection, so that they can be replaced: connections are few,
/// and certificates are renewed by others. What cannot be read leaves the last that could in force.
#[derive(Clone)]
pub(super) struct Tls {
    files: AdminTls,
    certificate_needed: bool,
    last: Arc<Mutex<TlsAcceptor>>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads the files. Clients must show a certificate if there is nothing else that they could show.
    pub(super) fn read(files: &AdminTls, certificate_needed: bool) -> Result<Self, TlsError> {
        let acceptor = acceptor(files, certificate_needed)?;
        Ok(Self { files: files.clone(), certificate_needed, last: Arc::new(Mutex::new(acceptor)) })
    }

    async fn acceptor(&self) -> TlsAcceptor {
        let (files, needed) = (self.files.clone(), self.certificate_needed);
        // Small files, but they may lie on a disk that hangs.
        let read = tokio::task::spawn_blocking(move || acceptor(&files, needed)).await;
        let mut last = self.last.lock();
        match read {
            Ok(Ok(read)) => *last = read,
            Ok(Err(why)) => tracing::error!(%why, "the admin API goes on with the certificate that it had"),
            Err(why) => tracing::error!(%why, "the admin API goes on with the certificate that it had"),
        }
        last.clone()
    }

    pub(super) async fn serve(
        self,
        listener: TcpListener,
        router: Router,
        limits: HttpLimits,
        stop: watch::Receiver<bool>,
    ) {
        let open = move |stream: TcpStream| {
            let remote = Remote(stream.peer_addr().ok());
            let (tls, router) = (self.clone(), router.clone().layer(Extension(remote)));
            async move {
                let stream = tls.acceptor().await.accept(stream).await?;
                // A certificate that is there has been checked.
                let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
                let router = match shown {
                    Some(certificate) => {
                        let subject = subject(certificate).unwrap_or_else(|| "without a subject".to_owned());
                        router.layer(Extension(Certified(subject.into())))
                    }
                    None => router,
                };
                Ok::<_, io::Error>((stream, router))
            }
        };
        server::serve_with(listener, open, limits, stop).await;
    }
}

fn acceptor(files: &AdminTls, certificate_needed: bool) -> Result<TlsAcceptor, TlsError> {
    let unusable = |why: &dyn std::fmt::Display| TlsError::Unusable(why.to_string());
    let chain = certificates(&files.cert, "a certificate")?;
    let key = PrivateKeyDer::from_pem_file(&files.key)
        .map_err(|why| file_error("a private key", &files.key, &why))?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|why| unusable(&why))?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(verifier(path, provider, certificate_needed)?),
    };
    let config = builder.with_single_cert(chain, key).map_err(|why| unusable(&why))?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn verifier(
    path: &Path,
    provider: Arc<rustls::crypto::CryptoProvider>,
    needed: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(path, "a certificate authority")? {
        roots.add(certificate).map_err(|why| TlsError::File {
            what: "a certificate authority",
            path: path.to_owned(),
            reason: why.to_string(),
        })?;
    }
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
    let builder = if needed { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(|why| TlsError::Unusable(why.to_string()))
}

fn certificates(path: &Path, what: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |why| file_error(what, path, &why);
    let found = CertificateDer::pem_file_iter(path).map_err(failed)?.collect::<Result<Vec<_>, _>>();
    match found.map_err(failed)? {
        none if none.is_empty() => Err(failed(pem::Error::NoItemsFound)),
        some => Ok(some),
    }
}

fn file_error(what: &'static str, path: &Path, why: &pem::Error) -> TlsError {
    TlsError::File { what, path: path.to_owned(), reason: why.to_string() }
}
