//! Authentication of masters by certificates instead of a token: TLS 1.3 in both directions, verified by both sides.

use std::sync::Arc;
use std::time::Duration;

use ring::hmac;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::NoServerSessionStorage;
use tokio_rustls::rustls::version::TLS13;
use tokio_rustls::rustls::{self, ClientConfig, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};

use super::handshake::{HandshakeError, TLS_HANDSHAKE, say_certificates};
use super::verifier::PeerVerifier;
use crate::master::settings::peer::PeerTls;
use crate::net::tls::{Reloading, TlsError, authorities, certificates, private_key};

/// Least time between two reads of the files: unauthenticated connections must not make a master read all the time.
const READ_PAUSE: Duration = Duration::from_secs(1);

/// How long a client may take to begin with TLS. One that has a token waits for the server to begin, and learns after
/// this time what is wrong.
const FIRST_BYTE: Duration = Duration::from_secs(1);

/// ALPN protocol name. It rejects a connection that was diverted from or to another service with the same authorities.
const ALPN: &[u8] = b"moonkeeper-peer";

/// Label under which the key of a connection is exported from TLS.
const EXPORTER: &[u8] = b"EXPORTER-moonkeeper-peer";

/// The certificate of a master and the authorities of its cluster. The files are read again for new connections, at
/// most once a second, so that they can be renewed. Clones share it.
#[derive(Clone, Debug)]
pub struct PeerCertificates {
    sides: Reloading<Sides>,
    files: Arc<PeerTls>,
}

/// TLS configuration of both sides.
#[derive(Clone)]
struct Sides {
    server: TlsAcceptor,
    client: TlsConnector,
}

/// An open connection, and the HMAC key of its proofs.
pub(super) type Opened = (TlsStream<TcpStream>, hmac::Key);

impl PeerCertificates {
    /// Reads the files, and checks that they can be used.
    pub fn read(files: PeerTls) -> Result<Self, TlsError> {
        let files = Arc::new(files);
        let read = Arc::clone(&files);
        let sides = Reloading::new("peer port", READ_PAUSE, move || sides(&read))?;
        Ok(Self { sides, files })
    }

    /// Returns the paths of the files.
    pub(super) fn files(&self) -> &PeerTls {
        &self.files
    }

    /// Performs the TLS handshake of the listening side.
    pub(super) async fn accept(&self, mut stream: TcpStream) -> Result<Opened, HandshakeError> {
        let mut first = [0];
        match timeout(FIRST_BYTE, stream.peek(&mut first)).await {
            Ok(Ok(0)) => return Err(HandshakeError::Broke(std::io::ErrorKind::UnexpectedEof.into())),
            Ok(Ok(_)) if first == [TLS_HANDSHAKE] => {}
            Ok(Err(why)) => return Err(why.into()),
            // Nothing arrived, or plain text.
            Ok(Ok(_)) | Err(_) => {
                say_certificates(&mut stream).await?;
                return Err(HandshakeError::no_tls());
            }
        }
        let sides = self.sides.current().await;
        opened(sides.server.accept(stream).await?.into())
    }

    /// Performs the TLS handshake of the connecting side.
    pub(super) async fn connect(&self, stream: TcpStream) -> Result<Opened, HandshakeError> {
        // The address is neither checked nor sent: pods have another one after each start.
        let name = ServerName::from(stream.peer_addr()?.ip());
        let sides = self.sides.current().await;
        opened(sides.client.connect(name, stream).await?.into())
    }
}

fn opened(stream: TlsStream<TcpStream>) -> Result<Opened, HandshakeError> {
    let connection = stream.get_ref().1;
    if connection.alpn_protocol() != Some(ALPN) {
        return Err(HandshakeError::NotAPeer("it is another service".to_owned()));
    }
    let secret = match &stream {
        TlsStream::Client(client) => client.get_ref().1.export_keying_material([0; 32], EXPORTER, None),
        TlsStream::Server(server) => server.get_ref().1.export_keying_material([0; 32], EXPORTER, None),
    };
    let secret = secret.map_err(|why: rustls::Error| HandshakeError::Certificate(why.to_string()))?;
    Ok((stream, hmac::Key::new(hmac::HMAC_SHA256, &secret)))
}

fn sides(files: &PeerTls) -> Result<Sides, TlsError> {
    let chain = certificates(&files.cert, "a certificate")?;
    let key = private_key(&files.key)?;
    let provider = Arc::new(default_provider());
    let verifier = PeerVerifier::new(authorities(&files.ca)?, files.name.as_deref(), &provider)?;
    let verifier = Arc::new(verifier);

    let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::unusable)?
        .with_client_cert_verifier(verifier.clone())
        .with_single_cert(chain.clone(), key.clone_key())
        .map_err(TlsError::unusable)?;
    // Every connection has to show its certificate: a resumed session would rest on one that was shown before.
    server.session_storage = Arc::new(NoServerSessionStorage {});
    server.send_tls13_tickets = 0;
    server.alpn_protocols = vec![ALPN.to_vec()];

    let mut client = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13])
        .map_err(TlsError::unusable)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_client_auth_cert(chain, key)
        .map_err(TlsError::unusable)?;
    client.resumption = Resumption::disabled();
    client.enable_sni = false;
    client.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Sides { server: Arc::new(server).into(), client: Arc::new(client).into() })
}
