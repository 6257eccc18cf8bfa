//! `moonkeeper snapshot verify`: reads snapshot files without a master.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;

use crate::cli::status::Output;
use crate::cluster::etcd_health::size;
use crate::engine::types::SequenceId;
use crate::replication::snapshot::{self, FileError, FormatError, Header};

pub(super) const EXAMPLES: &str = "\
Examples:
  moonkeeper snapshot verify /var/lib/moonkeeper               all snapshots of a data directory
  moonkeeper snapshot verify 00000000000000012345.snapshot -o json";

#[derive(Debug, Args)]
pub(super) struct Verify {
    /// Files, folders with snapshots, or data directories
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// What was found in a file.
#[derive(Debug, Serialize)]
struct Verdict {
    file: PathBuf,
    good: bool,
    #[serde(flatten)]
    contents: Option<Contents>,
    /// What is wrong.
    error: Option<String>,
}

/// The contents of a good snapshot.
#[derive(Debug, Serialize)]
struct Contents {
    log: String,
    term: u64,
    sequence_id: u64,
    digest: String,
    bytes: u64,
}

/// Why nothing can be verified.
#[derive(Debug, thiserror::Error)]
enum VerifyError {
    #[error("{path}: {source}", path = .path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Folder(#[from] FileError),
    #[error("there are no snapshots in {}", .0.display())]
    Empty(PathBuf),
}

pub(super) fn run(arguments: &Verify) -> ExitCode {
    let mut code = ExitCode::SUCCESS;
    let mut verdicts = Vec::new();
    for path in &arguments.paths {
        let files = match files(path) {
            Ok(files) => files,
            Err(why) => {
                code = super::failed(ExitCode::FAILURE, &why);
                continue;
            }
        };
        for (file, named) in files {
            // A running master removes old snapshots.
            if named.is_some() && matches!(file.try_exists(), Ok(false)) {
                continue;
            }
            let verdict = verify(&file, named);
            if !verdict.good {
                code = ExitCode::FAILURE;
            }
            // Large files take seconds, so each is shown when it has been read.
            if arguments.output == Output::Text {
                crate::cli::print(&text(&verdict));
            }
            verdicts.push(verdict);
        }
    }
    if arguments.output == Output::Json {
        crate::cli::print_json(&verdicts);
    }
    code
}

/// Returns the snapshots at a path, each with the last record that its name promises.
fn files(path: &Path) -> Result<Vec<(PathBuf, Option<SequenceId>)>, VerifyError> {
    let found = path.metadata().map_err(|source| VerifyError::Unreadable { path: path.into(), source })?;
    if !found.is_dir() {
        return Ok(vec![(path.to_owned(), None)]);
    }
    let mut files = snapshot::list(path)?;
    let below = path.join("snapshots");
    if below.is_dir() {
        files.extend(snapshot::list(&below)?);
    }
    if files.is_empty() {
        return Err(VerifyError::Empty(path.to_owned()));
    }
    Ok(files.into_iter().map(|(named, file)| (file, Some(named))).collect())
}

/// Reads a file to its end, and computes the digest of the state in it.
fn verify(file: &Path, named: Option<SequenceId>) -> Verdict {
    let read = snapshot::check(file).and_then(|Header { at, digest }| {
        if let Some(said) = named.filter(|named| *named != at.last) {
            let why = FormatError::Position { found: at.last, said };
            return Err(FileError::Wrong { path: file.into(), why });
        }
        let bytes = file.metadata().map_err(|source| FileError::Io { path: file.into(), source })?.len();
        Ok(Contents {
            log: at.log.to_string(),
            term: at.term.0,
            sequence_id: at.last.0,
            digest: format!("{:016x}", digest.0),
            bytes,
        })
    });
    let file = file.to_owned();
    match read {
        Ok(contents) => Verdict { file, good: true, contents: Some(contents), error: None },
        // Its text begins with the file.
        Err(FileError::Wrong { why, .. }) => {
            Verdict { file, good: false, contents: None, error: Some(why.to_string()) }
        }
        Err(FileError::Io { source, .. }) => {
            Verdict { file, good: false, contents: None, error: Some(source.to_string()) }
        }
        Err(why) => Verdict { file, good: false, contents: None, error: Some(why.to_string()) },
    }
}

fn text(verdict: &Verdict) -> String {
    let file = verdict.file.display();
    match (&verdict.contents, &verdict.error) {
        (Some(Contents { log, term, sequence_id, digest, bytes }), _) => format!(
            "{file}: good: up to record {sequence_id} of term {term} of log {log}, digest {digest}, {}\n",
            size(*bytes)
        ),
        (None, why) => format!("{file}: not good: {}\n", why.as_deref().unwrap_or("unknown")),
    }
}
