//! `moonkeeper companion`: the process that turns clients away from the port of a master that has died. Masters start
//! it themselves; in the pods of the operator it runs in a container of its own.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use super::die_with_parent;
use crate::master::companion::process::{Options, run};

/// The first descriptor that is not one of the three standard ones.
const FIRST_INHERITED: i32 = 3;

/// Turns clients away from the port of a master that has died. Masters start it themselves unless --companion=false
#[derive(Debug, Parser)]
#[command(name = "moonkeeper companion")]
struct Arguments {
    /// Unix socket on which the master reaches it
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,
    /// Stay when the master has ended or never comes, as a container of a pod does
    #[arg(long)]
    sidecar: bool,
}

/// Runs a companion until it has nothing to wait for.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    close_inherited();
    let Arguments { socket, sidecar } = match super::parse("moonkeeper companion", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    // Leaves the session and process group of the master, whose end must not end this process. It fails for the first
    // process of a container, which is alone in its session already.
    let _ = rustix::process::setsid();
    let result = die_with_parent::parent().map_err(|why| why.to_string()).and_then(|dies_with| {
        let options = Options { socket, sidecar, dies_with };
        let result = super::block_on(run(&options, &mut log)).and_then(|result| result);
        result.map_err(|why| why.to_string())
    });
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            log(&why);
            ExitCode::FAILURE
        }
    }
}

/// Writes a line to stderr, and ignores errors: the reader of stderr may end before the companion does.
fn log(text: &str) {
    let _ = writeln!(std::io::stderr(), "moonkeeper companion: {text}");
}

/// Closes all descriptors that this process inherited besides the standard ones. A master opens its own so that they
/// are not inherited, but it may have inherited some itself; if they stayed open here, they would keep an unrelated
/// pipe or port open.
fn close_inherited() {
    let Ok(folder) = std::fs::read_dir("/proc/self/fd") else { return };
    let numbers = folder.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    let found: Vec<i32> = numbers.filter(|number| *number >= FIRST_INHERITED).collect();
    // The descriptor of the folder itself is closed by now, so it is filtered out.
    let is_open = |number: &i32| std::fs::symlink_metadata(format!("/proc/self/fd/{number}")).is_ok();
    for number in found.into_iter().filter(is_open) {
        #[allow(
            unsafe_code,
            reason = "what this process was started with has no owner in it, and nothing else is open yet"
        )]
        // SAFETY: this is the first thing that the process does, before threads, files or sockets.
        unsafe {
            rustix::io::close(number);
        }
    }
}
