//! `moonkeeper switchover`: hands over to another master, and prints how long no master answered.

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;

use super::admin::{AdminCallError, AdminOptions};
use super::status::Output;
use crate::cluster::status::Status;
use crate::cluster::switchover::{SwitchoverDone, SwitchoverRequest};

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
    #[command(flatten)]
    access: AdminOptions,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  moonkeeper switchover --admin_token_file token
  moonkeeper switchover --to store-1 --admin 10.0.0.1:9004 --admin_cacert ca.pem --admin_token_file token";

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

async fn switch(arguments: &Arguments) -> Result<SwitchoverDone, AdminCallError> {
    let token = arguments.access.token()?;
    match order(arguments, &arguments.admin, token.as_deref()).await {
        Err(AdminCallError::Refused { code, message }) if code == "not_primary" => {
            match primary(arguments).await {
                Some(address) => order(arguments, &address, token.as_deref()).await,
                None => Err(AdminCallError::Refused { code, message }),
            }
        }
        result => result,
    }
}

async fn order(
    arguments: &Arguments,
    address: &str,
    token: Option<&str>,
) -> Result<SwitchoverDone, AdminCallError> {
    let request = SwitchoverRequest { to: arguments.to.clone() };
    let body = serde_json::to_string(&request).unwrap_or_default();
    arguments.access.post(address, "/api/v1/switchover", token, body, PATIENCE).await
}

/// Returns the admin address of the primary, if the given master knows of another one that is.
async fn primary(arguments: &Arguments) -> Option<String> {
    let asked = arguments.access.get(&arguments.admin, "/api/v1/status", STATUS_PATIENCE).await;
    let status: Status = asked.ok()?;
    let leader = status.leader?.name;
    let address = status.members.into_iter().find(|member| member.name == leader)?.admin_address;
    (!address.is_empty() && leader != status.name).then_some(address)
}
