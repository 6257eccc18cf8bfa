//! Connects to a host that is looked up under other names than the one in its endpoint.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use tokio::net::{TcpStream, lookup_host};
use tonic::codegen::Service;
use tonic::codegen::http::Uri;

/// A connector that looks the names up in their order and connects to the first that exists.
#[derive(Clone, Debug)]
pub(super) struct Dialer(pub(super) Vec<String>);

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<TokioIo<TcpStream>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, endpoint: Uri) -> Self::Future {
        let names = self.0.clone();
        Box::pin(async move {
            let port =
                endpoint.port_u16().unwrap_or(if endpoint.scheme_str() == Some("https") { 443 } else { 80 });
            dial(&names, port).await.map(TokioIo::new)
        })
    }
}

async fn dial(names: &[String], port: u16) -> io::Result<TcpStream> {
    for name in names {
        // If the lookup fails, the next name is tried. The first that exists is used, even if connecting to it fails.
        let Ok(addresses) = lookup_host((name.as_str(), port)).await else { continue };
        let addresses: Vec<_> = addresses.collect();
        if addresses.is_empty() {
            continue;
        }
        let stream = TcpStream::connect(&addresses[..]).await?;
        stream.set_nodelay(true)?;
        return Ok(stream);
    }
    Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no host called {}", names.join(" or "))))
}
