//! The admin API of a master that replicates: its status, and the few things that people and the operator request of
//! it.
//!
//! Reading is free, as on the HTTP port, where the same status can be had. Changing needs a token or a client
//! certificate. [`Control`] is all that the routes know of the master, so they are tested without one. Errors are JSON:
//! `{"code": "...", "message": "..."}`.

mod access;
mod audit;
mod control;
mod digests;
mod failure;
mod routes;
mod snapshots;
mod subject;
mod tls;

use std::io;
use std::sync::Arc;

use axum::{Extension, Router};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub use access::{Access, TokenError, read_token};
pub use control::{Control, ControlError, Pending};
pub use digests::DigestAnswer;
pub use routes::{readable, router};
pub use snapshots::{SnapshotAnswer, SnapshotsAnswer};

use crate::master::settings::ha::AdminSettings;
use crate::net::http_server::{self, HttpLimits};
use crate::net::listen;
use crate::net::tls::TlsError;

/// An admin API that is ready to listen: its files have been read.
#[derive(Debug)]
pub struct AdminApi {
    listener: TcpListener,
    access: Access,
    tls: Option<tls::Tls>,
}

/// Why the admin API cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// The port could not be opened.
    #[error(transparent)]
    Bind(#[from] io::Error),
    /// The token could not be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A certificate could not be read.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl AdminApi {
    /// Reads the token and the certificates, and opens the port.
    pub async fn bind(settings: &AdminSettings) -> Result<Self, AdminError> {
        let access = Access::new(settings.token_file.clone())?;
        let tls = settings
            .tls
            .as_ref()
            .map(|files| tls::Tls::read(files, settings.token_file.is_none()))
            .transpose()?;
        let listener = listen::bind(&settings.listen.host, settings.listen.port).await?;
        Ok(Self { listener, access, tls })
    }

    /// The address that it listens on.
    pub fn local_address(&self) -> io::Result<std::net::SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` turns true or its sender is gone. `changes` are routes that need the same rights, such as
    /// [`http::changes`](crate::master::http::changes).
    pub async fn serve(
        self,
        control: Arc<dyn Control>,
        changes: Router,
        limits: HttpLimits,
        stop: watch::Receiver<bool>,
    ) {
        let router = router(control, self.access, changes);
        match self.tls {
            None => {
                let open = move |stream: TcpStream| {
                    let remote = audit::Remote(stream.peer_addr().ok());
                    std::future::ready(Ok((stream, router.clone().layer(Extension(remote)))))
                };
                http_server::serve_with(self.listener, open, limits, stop).await;
            }
            Some(tls) => tls.serve(self.listener, router, limits, stop).await,
        }
    }
}
