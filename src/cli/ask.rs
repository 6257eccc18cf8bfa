//! HTTP requests to masters, with the certificates that a command line names.

use std::path::PathBuf;

use axum::http::StatusCode;
use bytes::Bytes;
use clap::Args;

use crate::net::http_client::{self, Trust};
pub(super) use crate::net::http_client::{AskError, Question};

/// Certificates for the admin API
// Ids that differ from those of `EtcdOptions`: a command may have both.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct TlsFiles {
    /// PEM file with the authorities that the master's certificate is checked with; turns TLS on
    #[arg(id = "admin_ca", long = "admin_cacert", alias = "admin-cacert", value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// PEM file with the certificate to show
    #[arg(
        id = "admin_cert",
        long = "admin_cert",
        alias = "admin-cert",
        value_name = "FILE",
        requires_all = ["admin_ca", "admin_key"]
    )]
    pub(crate) cert: Option<PathBuf>,
    /// PEM file with its private key
    #[arg(
        id = "admin_key",
        long = "admin_key",
        alias = "admin-key",
        value_name = "FILE",
        requires = "admin_cert"
    )]
    pub(crate) key: Option<PathBuf>,
}

impl TlsFiles {
    fn trust(&self) -> Result<Option<Trust>, AskError> {
        let shown = self.cert.as_deref().zip(self.key.as_deref());
        self.ca.as_deref().map(|ca| Trust::in_files(ca, shown)).transpose()
    }
}

/// Sends a request, and waits for the response.
pub(super) async fn ask(question: &Question<'_>, tls: &TlsFiles) -> Result<(StatusCode, Bytes), AskError> {
    http_client::ask(question, tls.trust()?.as_ref()).await
}
