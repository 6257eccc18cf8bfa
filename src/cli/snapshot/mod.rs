//! `moonkeeper snapshot`: has a standby take a snapshot, lists those that masters hold, and verifies files.

mod bar;
mod create;
mod list;
mod verify;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Takes, lists and verifies snapshots of the state of a cluster
#[derive(Debug, Parser)]
#[command(name = "moonkeeper snapshot", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Has a standby take a snapshot, and waits until it counts
    #[command(after_help = create::EXAMPLES)]
    Create(create::Create),
    /// Shows the snapshots that the members of a cluster hold
    #[command(after_help = list::EXAMPLES)]
    List(list::List),
    /// Reads snapshot files to their end and checks that they are complete and undamaged; no master is needed
    #[command(after_help = verify::EXAMPLES)]
    Verify(verify::Verify),
}

/// Runs one of the commands.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    match super::parse::<Arguments>("moonkeeper snapshot", args) {
        Ok(Arguments { command: Command::Create(arguments) }) => create::run(&arguments),
        Ok(Arguments { command: Command::List(arguments) }) => list::run(&arguments),
        Ok(Arguments { command: Command::Verify(arguments) }) => verify::run(&arguments),
        Err(code) => code,
    }
}

/// Names the command and what went wrong, and returns the exit code.
fn failed(code: ExitCode, why: &dyn std::fmt::Display) -> ExitCode {
    eprintln!("moonkeeper snapshot: {why}");
    code
}
