//! The commands of the binary. Each takes its arguments and says with which code the process ends: 0 when it did what
//! it was asked for, 1 when it could not, 2 when it was asked in a way that makes no sense.

pub(crate) mod ask;
pub mod bench;
pub mod companion;
pub mod crd;
mod etcd_options;
pub mod kubectl;
pub mod master;
pub mod operator;
pub mod oplog;
mod parent;
pub mod status;
pub mod switchover;
pub mod up;

use std::fmt::Display;
use std::io::Write;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// The code for a command line that makes no sense.
const USAGE: u8 = 2;

/// Reads the arguments of the command called `name`, or says how to end.
fn parse<T: Parser>(name: &str, args: &[String]) -> Result<T, ExitCode> {
    T::try_parse_from(std::iter::once(name).chain(args.iter().map(String::as_str))).map_err(|error| {
        // A broken pipe is nothing to complain about.
        let _ = error.print();
        ExitCode::from(if error.use_stderr() { USAGE } else { 0 })
    })
}

/// Waits for something in a runtime of its own.
fn block_on<T>(work: impl Future<Output = T>) -> std::io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(work))
}

/// Chooses how TLS computes, once for the process: several crates want to know.
fn use_ring() {
    // An error means that it was chosen already.
    let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
}

/// Runs a server on `threads` threads. It is told when somebody asks the process to end.
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
            // Nobody listens any more only when everything has ended.
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

/// Waits until somebody asks the process to end.
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

/// Prints text. Somebody who does not read it is nothing to complain about.
pub fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints an answer for programs.
fn print_json(answer: &impl Serialize) {
    match serde_json::to_string_pretty(answer) {
        Ok(text) => print(&(text + "\n")),
        Err(why) => eprintln!("cannot be written as JSON: {why}"),
    }
}
