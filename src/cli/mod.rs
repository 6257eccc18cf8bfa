//! The commands of the binary. Each takes its arguments and returns the exit code of the process: 0 if it succeeded, 1
//! if it failed, 2 if its arguments were wrong.

mod admin;
mod ask;
pub mod bench;
pub mod companion;
pub mod crd;
mod die_with_parent;
mod etcd_options;
pub mod kubectl;
pub mod master;
pub mod operator;
pub mod oplog;
pub mod recover;
pub mod snapshot;
pub mod status;
pub mod switchover;
pub mod up;
pub mod verify;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// Exit code for a wrong command line.
const USAGE: u8 = 2;

/// Parses the arguments of the command called `name`; the error is the exit code.
fn parse<T: Parser>(name: &str, args: &[String]) -> Result<T, ExitCode> {
    T::try_parse_from(std::iter::once(name).chain(args.iter().map(String::as_str))).map_err(|error| {
        // A broken pipe is not an error.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
    })
}

/// Runs a future in a runtime of its own.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// Chooses the crypto provider of rustls, once for the process, because several crates use its default.
fn use_ring() {
    // An error means that it was chosen already.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}

/// Runs a server on `threads` threads. Its receiver turns true when the process receives SIGTERM or SIGINT.
fn serve<E, F>(threads: usize, run: impl FnOnce(watch::Receiver<bool>) -> F) -> ExitCode
where
    E: Display,
    F: Future<Output = Result<(), E>>,
{
    let runtime =
        match tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                tracing::error!(%error, "cannot start threads");
                return ExitCode::FAILURE;
            }
        };
    let result = runtime.block_on(async {
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move {
            stop_signal().await;
            // An error means that all receivers are gone, so everything has ended.
            let _ = stop.send(true);
        });
        run(stopped).await
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(%error, "cannot start");
            ExitCode::FAILURE
        }
    }
}

/// Waits for SIGTERM or SIGINT.
async fn stop_signal() {
    let (terminate, interrupt) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()));
    match (terminate, interrupt) {
        (Ok(mut terminate), Ok(mut interrupt)) => {
            let name = tokio::select! {
                _ = terminate.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            };
            tracing::info!(signal = name, "stopping");
        }
        _ => {
            tracing::error!("cannot listen for signals; only SIGKILL ends this process");
            std::future::pending::<()>().await;
        }
    }
}

/// Prints text. Errors are ignored: a reader may close the pipe early.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a value as JSON, for programs.
fn print_json(answer: &impl Serialize) {
    match serde_json::to_string_pretty(answer) {
        Ok(text) => print(&(text + "\n")),
        Err(why) => eprintln!("the output cannot be written as JSON: {why}"),
    }
}
