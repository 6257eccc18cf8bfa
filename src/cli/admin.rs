//! The admin API as commands call it: the token, and what a master refuses.

use std::path::PathBuf;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use clap::Args;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::ask::{AskError, Question, TlsFiles, ask};
use crate::master::admin_api::{TokenError, read_token};

/// Credentials for the admin API
#[derive(Clone, Debug, Default, Args)]
pub(super) struct AdminOptions {
    /// File with the token (else the variable MOONKEEPER_ADMIN_TOKEN_FILE)
    #[arg(long = "admin_token_file", alias = "admin-token-file", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFiles,
}

/// Why a master did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub(super) enum AdminCallError {
    #[error(transparent)]
    Token(#[from] TokenError),
    #[error(transparent)]
    Ask(#[from] AskError),
    #[error("{message}")]
    Refused { code: String, message: String },
    #[error(
        "unexpected answer from {address} ({status}): is it the admin port of a master with --enable_ha?"
    )]
    Unreadable { address: String, status: StatusCode },
}

impl AdminOptions {
    /// Reads the token from the file that the flag or the variable names.
    pub(super) fn token(&self) -> Result<Option<String>, AdminCallError> {
        let variable = || std::env::var_os("MOONKEEPER_ADMIN_TOKEN_FILE").map(PathBuf::from);
        let file = self.token_file.clone().or_else(variable);
        Ok(file.map(|path| read_token(&path)).transpose()?)
    }

    /// Reads something from the admin API of a master.
    pub(super) async fn get<T: DeserializeOwned>(
        &self,
        address: &str,
        path: &'static str,
        within: Duration,
    ) -> Result<T, AdminCallError> {
        self.ask(&Question::get(address, path, within)).await
    }

    /// Requests a change, with the token if there is one.
    pub(super) async fn post<T: DeserializeOwned>(
        &self,
        address: &str,
        path: &'static str,
        token: Option<&str>,
        body: String,
        within: Duration,
    ) -> Result<T, AdminCallError> {
        self.ask(&Question { address, method: Method::POST, path, token, body, within }).await
    }

    async fn ask<T: DeserializeOwned>(&self, question: &Question<'_>) -> Result<T, AdminCallError> {
        let (status, body) = ask(question, &self.tls).await?;
        read(question.address, status, &body)
    }
}

fn read<T: DeserializeOwned>(address: &str, status: StatusCode, body: &Bytes) -> Result<T, AdminCallError> {
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
        message: String,
    }
    let unreadable = || AdminCallError::Unreadable { address: address.to_owned(), status };
    if status.is_success() {
        return serde_json::from_slice(body).map_err(|_| unreadable());
    }
    match serde_json::from_slice(body) {
        Ok(Refusal { code, message }) => Err(AdminCallError::Refused { code, message }),
        Err(_) => Err(unreadable()),
    }
}
