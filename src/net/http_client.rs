//! HTTP client for the APIs of masters: one request on a connection of its own, with a timeout and an answer of bounded
//! length.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// Upper bound of an answer in bytes: a status with some hundred members is smaller.
const MAX_ANSWER: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// The address is not `HOST:PORT`.
    #[error("'{0}' is not HOST:PORT")]
    Address(String),
    /// The connection could not be opened.
    #[error("cannot reach {address}: {source}")]
    Connect { address: String, source: io::Error },
    /// The connection was opened, but no valid answer came over it.
    #[error("no answer from {address}: {why}")]
    Answer { address: String, why: String },
    #[error("no answer from {address} within {} s", .within.as_secs())]
    TimedOut { address: String, within: Duration },
    /// A file with certificates cannot be used.
    #[error("cannot use {path}: {why}")]
    File { path: PathBuf, why: String },
}

/// A request to a master.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    /// `HOST:PORT`, with or without `http://` or `https://` in front of it.
    pub(crate) address: &'a str,
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) token: Option<&'a str>,
    pub(crate) body: String,
    pub(crate) within: Duration,
}

impl<'a> Question<'a> {
    /// Returns a GET request without a token.
    pub(crate) fn get(address: &'a str, path: &'static str, within: Duration) -> Self {
        Self { address, method: Method::GET, path, token: None, body: String::new(), within }
    }
}

/// TLS settings of a request: which server to trust.
#[derive(Clone)]
pub(crate) struct Trust {
    connector: TlsConnector,
    /// The name that the certificate has to have, if it is not the host of the address.
    name: Option<ServerName<'static>>,
}

impl Trust {
    /// Trusts a server whose certificate is for the host of its address and was signed by one of the authorities in the
    /// file `ca`. If there is `shown` (certificate file, key file), presents that certificate to the server.
    pub(crate) fn in_files(ca: &Path, shown: Option<(&Path, &Path)>) -> Result<Self, AskError> {
        let failed = |path: &Path, why: &dyn std::fmt::Display| AskError::File {
            path: path.to_owned(),
            why: why.to_string(),
        };
        let certificates = |path: &Path| {
            let found = CertificateDer::pem_file_iter(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
            found.map_err(|why| failed(path, &why))
        };
        let mut roots = RootCertStore::empty();
        for certificate in certificates(ca)? {
            roots.add(certificate).map_err(|why| failed(ca, &why))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|why| failed(ca, &why))?
            .with_root_certificates(roots);
        let config = match shown {
            Some((cert, key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| failed(key, &why))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, secret)
                    .map_err(|why| failed(cert, &why))?
            }
            None => builder.with_no_client_auth(),
        };
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name: None })
    }

    /// Trusts a server with this name whose certificate was signed by one of these authorities, in PEM.
    pub(crate) fn in_authorities(pem: &[u8], name: &str) -> Result<Self, String> {
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|why| why.to_string())?;
            roots.add(certificate).map_err(|why| why.to_string())?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|why| why.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from(name.to_owned()).map_err(|why| why.to_string())?;
        Ok(Self { connector: TlsConnector::from(Arc::new(config)), name: Some(name) })
    }
}

/// Sends a request and waits for the answer; over TLS if there is `trust`.
pub(crate) async fn ask(
    question: &Question<'_>,
    trust: Option<&Trust>,
) -> Result<(StatusCode, Bytes), AskError> {
    let address = bare(question.address);
    match timeout(question.within, exchange(question, address, trust)).await {
        Ok(answer) => answer,
        Err(_) => Err(AskError::TimedOut { address: address.to_owned(), within: question.within }),
    }
}

/// Returns the address without scheme and trailing slash.
fn bare(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    rest.trim_end_matches('/')
}

async fn exchange(
    question: &Question<'_>,
    address: &str,
    trust: Option<&Trust>,
) -> Result<(StatusCode, Bytes), AskError> {
    let host = match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() && !host.is_empty() => {
            host.trim_start_matches('[').trim_end_matches(']')
        }
        _ => return Err(AskError::Address(address.to_owned())),
    };
    let unreachable = |source| AskError::Connect { address: address.to_owned(), source };
    let stream = TcpStream::connect(address).await.map_err(unreachable)?;
    match trust {
        None => send(question, address, stream).await,
        Some(Trust { connector, name }) => {
            let name = match name {
                Some(name) => name.clone(),
                None => ServerName::try_from(host.to_owned())
                    .map_err(|_| AskError::Address(address.to_owned()))?,
            };
            let stream = connector.connect(name, stream).await.map_err(unreachable)?;
            send(question, address, stream).await
        }
    }
}

async fn send(
    question: &Question<'_>,
    address: &str,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
) -> Result<(StatusCode, Bytes), AskError> {
    let failed =
        |why: &dyn std::fmt::Display| AskError::Answer { address: address.to_owned(), why: why.to_string() };
    let mut request = Request::builder()
        .method(question.method.clone())
        .uri(question.path)
        .header(header::HOST, address)
        .header(header::CONNECTION, "close");
    if let Some(token) = question.token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
    }
    let request = request.body(Body::from(question.body.clone())).map_err(|why| failed(&why))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|why| failed(&why))?;
    // Drives the connection; aborted below when the answer has come.
    let connection = tokio::spawn(connection);
    let answer = sender.send_request(request).await.map_err(|why| failed(&why))?;
    let status = answer.status();
    let body = to_bytes(Body::new(answer.into_body()), MAX_ANSWER).await.map_err(|why| failed(&why))?;
    connection.abort();
    Ok((status, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_is_no_address_is_named() {
        for address in ["here", "here:x", ":1", "http://here/"] {
            let question = Question::get(address, "/", Duration::from_secs(5));
            let why = ask(&question, None).await.unwrap_err();
            assert!(matches!(why, AskError::Address(_)), "{address}: {why}");
        }
        assert_eq!(bare("https://h:1/"), "h:1");
    }
}
