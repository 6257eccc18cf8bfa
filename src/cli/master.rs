//! `moonkeeper master`: flags, logs, signals, and a runtime to serve in.

use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use crate::master::fd_limit;
use crate::master::run::run;
use crate::master::settings::command_line::{Parsed, parse};
use crate::master::settings::{LogFormat, LogLevel, LogSettings, Settings};

/// Exit code of the reference for wrong flags.
const BAD_FLAGS: u8 = 1;

/// Runs a master with the reference's flags.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    if let Err(why) = super::die_with_parent::end_with_parent() {
        eprintln!("moonkeeper master: {why}");
        return ExitCode::FAILURE;
    }
    let env: Vec<(String, String)> = std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect();
    let (settings, warnings) = match parse(args, &env, &|path| std::fs::read_to_string(path)) {
        Ok(Parsed::Run { settings, warnings }) => (settings, warnings),
        Ok(Parsed::Print(text)) => {
            super::print(&text);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("moonkeeper master: {error}");
            return ExitCode::from(BAD_FLAGS);
        }
    };
    start_logs(&settings.log);
    end_on_panic();
    fd_limit::raise();
    for warning in warnings {
        tracing::warn!("{}", warning.0);
    }
    serve(&settings)
}

fn serve(settings: &Settings) -> ExitCode {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = settings.rpc.threads.on(cores);
    super::serve(threads, |stopped| run(settings, stopped))
}

/// Makes every panic end the process: it may have left the metadata half changed, and no client may be served from
/// that.
pub fn end_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        report(panic);
        std::process::abort();
    }));
}

fn start_logs(settings: &LogSettings) {
    let level = match settings.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new(level));
    let logs = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.format {
        LogFormat::Json => logs.json().init(),
        LogFormat::Text => logs.with_ansi(settings.color).init(),
    }
}
