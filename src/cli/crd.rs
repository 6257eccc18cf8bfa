//! `moonkeeper crd`: prints the definition of MasterCluster, for `kubectl apply -f -`.

use std::process::ExitCode;

use clap::Parser;

/// Prints the definition of MasterCluster
#[derive(Debug, Parser)]
#[command(name = "moonkeeper crd", after_help = EXAMPLES)]
struct Arguments {}

const EXAMPLES: &str = "\
Examples:
  moonkeeper crd | kubectl apply -f -";

/// Prints the definition of `MasterCluster` as YAML.
pub fn main(args: &[String]) -> ExitCode {
    let Arguments {} = match super::parse("moonkeeper crd", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    match text() {
        Ok(text) => {
            super::print(&text);
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("moonkeeper crd: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the printed text, which is also the content of the file in crds/.
pub fn text() -> Result<String, String> {
    let yaml = serde_saphyr::to_string(&crate::api::crd()).map_err(|why| why.to_string())?;
    Ok(format!("# What `moonkeeper crd` prints. Not written by hand.\n{yaml}"))
}
