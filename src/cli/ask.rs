//! Asks masters over HTTP: one request on a connection of its own, within a time, with an answer of bounded length.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{Method, Request, StatusCode, header};
use bytes::Bytes;
use clap::Args;
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

/// Longest answer: a status with some hundred members.
const MAX_ANSWER: usize = 4 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AskError {
    /// It is no address.
    #[error("'{0}' is not HOST:PORT")]
    Address(String),
    /// Nobody is there.
    #[error("cannot reach {address}: {source}")]
    Connect { address: String, source: io::Error },
    /// Somebody is there, and says nothing that can be understood.
    #[error("no answer from {address}: {why}")]
    Answer { address: String, why: String },
    /// It took too long.
    #[error("no answer from {address} within {} s", .within.as_secs())]
    TimedOut { address: String, within: Duration },
    /// A file with certificates cannot be used.
    #[error("cannot use {path}: {why}")]
    File { path: PathBuf, why: String },
}

/// Certificates for the admin API
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsFiles {
    /// PEM file with the authorities that the master's certificate is checked with; turns TLS on
    #[arg(long = "admin_cacert", alias = "admin-cacert", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file with the certificate to show
    #[arg(long = "admin_cert", alias = "admin-cert", value_name = "FILE", requires_all = ["ca", "key"])]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(long = "admin_key", alias = "admin-key", value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
}

impl TlsFiles {
    fn connector(&self) -> Result<Option<TlsConnector>, AskError> {
        let Some(ca) = &self.ca else { return Ok(None) };
        let failed = |path: &PathBuf, why: &dyn std::fmt::Display| AskError::File {
            path: path.clone(),
            why: why.to_string(),
        };
        let certificates = |path: &PathBuf| {
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
        let config = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                let secret = PrivateKeyDer::from_pem_file(key).map_err(|why| failed(key, &why))?;
                builder
                    .with_client_auth_cert(certificates(cert)?, secret)
                    .map_err(|why| failed(cert, &why))?
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(TlsConnector::from(Arc::new(config))))
    }
}

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Question<'a> {
    /// `HOST:PORT`, with `http://` or `https://` in front of it or not.
    pub(crate) address: &'a str,
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) token: Option<&'a str>,
    pub(crate) body: String,
    pub(crate) within: Duration,
}

impl<'a> Question<'a> {
    /// A question for something that anybody may read.
    pub(crate) fn get(address: &'a str, path: &'static str, within: Duration) -> Self {
        Self { address, method: Method::GET, path, token: None, body: String::new(), within }
    }
}

/// TLS for a question.
#[derive(Clone)]
pub(crate) struct Trust {
    connector: TlsConnector,
    /// The name that the certificate has to have, if it is not the host of the address.
    name: Option<ServerName<'static>>,
}

impl Trust {
    /// Of a server with this name whose certificate was signed by one of these authorities, in PEM.
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

/// Asks, and waits for the answer.
pub(crate) async fn ask(question: &Question<'_>, tls: &TlsFiles) -> Result<(StatusCode, Bytes), AskError> {
    let trust = tls.connector()?.map(|connector| Trust { connector, name: None });
    ask_with(question, trust.as_ref()).await
}

/// The same with TLS from elsewhere.
pub(crate) async fn ask_with(
    question: &Question<'_>,
    trust: Option<&Trust>,
) -> Result<(StatusCode, Bytes), AskError> {
    let address = bare(question.address);
    match timeout(question.within, exchange(question, address, trust)).await {
        Ok(answer) => answer,
        Err(_) => Err(AskError::TimedOut { address: address.to_owned(), within: question.within }),
    }
}

/// The address without scheme and slash.
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
    // It ends with the answer.
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
            let why = ask(&question, &TlsFiles::default()).await.unwrap_err();
            assert!(matches!(why, AskError::Address(_)), "{address}: {why}");
        }
        assert_eq!(bare("https://h:1/"), "h:1");
    }
}
