//! `moonkeeper switchover`: hands over to another master, and prints how long no master answered.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use axum::http::{Method, StatusCode};
use bytes::Bytes;
use clap::Parser;
use serde::Deserialize;

use super::ask::{AskError, Question, TlsFiles, ask};
use super::status::Output;
use crate::cluster::status::Status;
use crate::cluster::switchover::{SwitchoverDone, SwitchoverRequest};
use crate::master::admin_api::{TokenError, read_token};

/// Timeout of the switchover. A hand-over takes well under a second, or is given up after some seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Timeout of a request for a status.
const STATUS_PATIENCE: Duration = Duration::from_secs(5);

/// Lets another master lead, without losing anything
#[derive(Debug, Parser)]
#[command(name = "moonkeeper switchover", after_help = EXAMPLES)]
struct Arguments {
    /// The member that shall lead; without it the best placed standby
    #[arg(long, value_name = "NAME")]
    to: Option<String>,
    /// Address of the admin API (--admin_port) of any master; the primary is found from there
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9004")]
    admin: String,
    /// File with the token (else the variable MOONKEEPER_ADMIN_TOKEN_FILE)
    #[arg(long = "admin_token_file", alias = "admin-token-file", value_name = "FILE")]
    token_file: Option<PathBuf>,
    #[command(flatten)]
    tls: TlsFiles,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  moonkeeper switchover --admin_token_file token
  moonkeeper switchover --to store-1 --admin 10.0.0.1:9004 --admin_cacert ca.pem --admin_token_file token";

/// Why the switchover failed.
#[derive(Debug, thiserror::Error)]
enum SwitchoverError {
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

/// Requests a switchover and prints which master leads now.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper switchover", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let done = match super::block_on(switch(&arguments)) {
        Ok(Ok(done)) => done,
        Ok(Err(why)) => {
            eprintln!("moonkeeper switchover: {why}");
            return ExitCode::FAILURE;
        }
        Err(why) => {
            eprintln!("moonkeeper switchover: {why}");
            return ExitCode::FAILURE;
        }
    };
    match arguments.output {
        Output::Json => super::print_json(&done),
        Output::Text => super::print(&format!(
            "{} leads now (term {}) in place of {}; no master answered for {} ms, the whole switchover took {} ms\n",
            done.to, done.term, done.from, done.unanswered_ms, done.total_ms
        )),
    }
    ExitCode::SUCCESS
}

async fn switch(arguments: &Arguments) -> Result<SwitchoverDone, SwitchoverError> {
    let variable = || std::env::var_os("MOONKEEPER_ADMIN_TOKEN_FILE").map(PathBuf::from);
    let token = match arguments.token_file.clone().or_else(variable) {
        Some(path) => Some(read_token(&path)?),
        None => None,
    };
    match order(arguments, &arguments.admin, token.as_deref()).await {
        Err(SwitchoverError::Refused { code, message }) if code == "not_primary" => {
            match primary(arguments).await {
                Some(address) => order(arguments, &address, token.as_deref()).await,
                None => Err(SwitchoverError::Refused { code, message }),
            }
        }
        result => result,
    }
}

async fn order(
    arguments: &Arguments,
    address: &str,
    token: Option<&str>,
) -> Result<SwitchoverDone, SwitchoverError> {
    let request = SwitchoverRequest { to: arguments.to.clone() };
    let question = Question {
        address,
        method: Method::POST,
        path: "/api/v1/switchover",
        token,
        body: serde_json::to_string(&request).unwrap_or_default(),
        within: PATIENCE,
    };
    let (status, body) = ask(&question, &arguments.tls).await?;
    read(address, status, &body)
}

fn read(address: &str, status: StatusCode, body: &Bytes) -> Result<SwitchoverDone, SwitchoverError> {
    #[derive(Deserialize)]
    struct Refusal {
        code: String,
        message: String,
    }
    let unreadable = || SwitchoverError::Unreadable { address: address.to_owned(), status };
    if status.is_success() {
        return serde_json::from_slice(body).map_err(|_| unreadable());
    }
    match serde_json::from_slice(body) {
        Ok(Refusal { code, message }) => Err(SwitchoverError::Refused { code, message }),
        Err(_) => Err(unreadable()),
    }
}

/// Returns the admin address of the primary, if the given master knows of another one that is.
async fn primary(arguments: &Arguments) -> Option<String> {
    let question = Question::get(&arguments.admin, "/api/v1/status", STATUS_PATIENCE);
    let (_, body) = ask(&question, &arguments.tls).await.ok()?;
    let status: Status = serde_json::from_slice(&body).ok()?;
    let leader = status.leader?.name;
    let address = status.members.into_iter().find(|member| member.name == leader)?.admin_address;
    (!address.is_empty() && leader != status.name).then_some(address)
}
