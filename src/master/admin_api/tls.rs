//! The admin API over TLS, with or without client certificates.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::{Extension, Router};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;

use super::access::Certified;
use super::audit::Remote;
use super::subject::subject;
use crate::master::settings::ha::AdminTls;
use crate::net::http_server::{self, HttpLimits};
use crate::net::tls::{Reloading, TlsError, authorities, certificates, private_key};

/// TLS acceptor. Its files are read again for every connection, because other programs renew certificates; connections
/// are few.
#[derive(Clone, Debug)]
pub(super) struct Tls(Reloading<TlsAcceptor>);

impl Tls {
    /// Reads the files. Clients must show a certificate if there is no token that they could show instead.
    pub(super) fn read(files: &AdminTls, certificate_needed: bool) -> Result<Self, TlsError> {
        let files = files.clone();
        let read = move || acceptor(&files, certificate_needed);
        Reloading::new("admin API", Duration::ZERO, read).map(Self)
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
                let stream = tls.0.current().await.accept(stream).await?;
                // A certificate that is present has been verified.
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
        http_server::serve_with(listener, open, limits, stop).await;
    }
}

fn acceptor(files: &AdminTls, certificate_needed: bool) -> Result<TlsAcceptor, TlsError> {
    let chain = certificates(&files.cert, "a certificate")?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(ring::default_provider());
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(TlsError::unusable)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => builder.with_client_cert_verifier(verifier(path, provider, certificate_needed)?),
    };
    let config = builder.with_single_cert(chain, key).map_err(TlsError::unusable)?;
    Ok(TlsAcceptor::from(Arc::new(config)))
}

fn verifier(
    path: &Path,
    provider: Arc<CryptoProvider>,
    needed: bool,
) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots = Arc::new(authorities(path)?);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, provider);
    let builder = if needed { builder } else { builder.allow_unauthenticated() };
    builder.build().map_err(TlsError::unusable)
}
