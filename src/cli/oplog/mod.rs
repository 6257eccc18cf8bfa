//! `moonkeeper oplog dump`: prints the records of a cluster's log as they are in etcd, one line each.
//!
//! It reads batch by batch, all as of one revision, and holds no more than a page of them, however long the log is. It
//! is for diagnosis, so a batch that is damaged or missing is reported and the rest is printed.

mod key_filter;
pub(super) mod pages;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};

use super::etcd_options::{EtcdOptions, cluster_id};
use super::status::Output;
use crate::cluster::keys::Keys;
use crate::cluster::log_end::Checksum;
use crate::coordination::etcd::{Etcd, SettingsError};
use crate::coordination::types::Failure;
use crate::engine::record::Record;
use crate::engine::types::SequenceId;
use crate::master::settings::ha::EndpointsError;
use crate::replication::batch::{Batch, MAX_RECORDS};
use crate::replication::codec::json::RecordJson;

use key_filter::KeyFilter;
use pages::{Pages, PagesError};

/// Looks into the log of a cluster
#[derive(Debug, Parser)]
#[command(name = "moonkeeper oplog", disable_help_subcommand = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints records, one line each
    #[command(after_help = EXAMPLES)]
    Dump(Dump),
}

#[derive(Debug, Args)]
struct Dump {
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The cluster (else the variable MOONKEEPER_CLUSTER_ID, else mooncake_cluster)
    #[arg(long = "cluster_id", alias = "cluster-id", value_name = "NAME")]
    cluster_id: Option<String>,
    /// The first record to show
    #[arg(long, value_name = "ID", default_value_t = 1)]
    from: u64,
    /// The last record to show
    #[arg(long, value_name = "ID", default_value_t = u64::MAX, hide_default_value = true)]
    to: u64,
    /// Show only what is about this key, from when it was first written in this log on
    #[arg(id = "object_key", long = "key", value_name = "KEY")]
    key: Option<String>,
    /// text or json: one object on each line
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

const EXAMPLES: &str = "\
Examples:
  moonkeeper oplog dump --etcd_endpoints etcd:2379
  moonkeeper oplog dump --etcd_endpoints etcd:2379 --from 1000 --to 2000 -o json
  moonkeeper oplog dump --etcd_endpoints etcd:2379 --cluster_id demo --key model/block-7";

/// Why the log cannot be printed.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error("the address of etcd is needed: --etcd_endpoints=HOST:2379")]
    NoEtcd,
    #[error(transparent)]
    Endpoints(#[from] EndpointsError),
    #[error("'{0}' is not a cluster id: 1 to 63 of a-z, 0-9, - and _, and not oplog")]
    ClusterId(String),
    #[error("--from={from} is greater than --to={to}")]
    Range { from: u64, to: u64 },
    #[error(transparent)]
    Settings(#[from] SettingsError),
    #[error("cannot read the log of '{cluster}' from etcd: {failure}")]
    Etcd { cluster: String, failure: Failure },
    #[error("there is no log of '{0}' in etcd")]
    NoLog(String),
    #[error(transparent)]
    End(crate::cluster::log_end::LatestError),
    #[error("cannot write: {0}")]
    Output(#[from] io::Error),
}

impl DumpError {
    /// Returns whether the command line was wrong.
    fn is_usage(&self) -> bool {
        matches!(self, Self::NoEtcd | Self::Endpoints(_) | Self::ClusterId(_) | Self::Range { .. })
    }
}

/// Prints the log; fails if problems are found in it.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper oplog", args) {
        Ok(Arguments { command: Command::Dump(arguments) }) => arguments,
        Err(code) => return code,
    };
    let result = super::block_on(async { dump(&arguments).await });
    match result.unwrap_or_else(|why| Err(why.into())) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        // The reader of the pipe has seen enough.
        Err(DumpError::Output(why)) if why.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("moonkeeper oplog: {why}");
            if why.is_usage() { ExitCode::from(super::USAGE) } else { ExitCode::FAILURE }
        }
    }
}

/// Prints the log, and returns the number of problems in it.
async fn dump(arguments: &Dump) -> Result<u64, DumpError> {
    let Dump { from, to, .. } = *arguments;
    if from > to {
        return Err(DumpError::Range { from, to });
    }
    let cluster = cluster_id(arguments.cluster_id.as_deref());
    if !Keys::is_cluster_id(&cluster) {
        return Err(DumpError::ClusterId(cluster));
    }
    let access = arguments.etcd.access()?.ok_or(DumpError::NoEtcd)?;
    let etcd = Etcd::connect(access.settings())?;
    let filter = arguments.key.as_ref().map(|key| KeyFilter::new(key.as_bytes()));
    // A batch that begins before `from` may reach it; and a key may have been written long before.
    let start = if filter.is_some() { 1 } else { from.saturating_sub(u64::from(MAX_RECORDS) - 1).max(1) };
    let keys = Keys::new(&cluster);
    let failed = |failure| DumpError::Etcd { cluster: cluster.clone(), failure };
    let opened = Pages::open(&etcd, &keys, SequenceId(start)).await;
    let opened = opened.map_err(|error| match error {
        PagesError::Etcd(failure) => failed(failure),
        PagesError::End(error) => DumpError::End(error),
    })?;
    let Some(mut pages) = opened else { return Err(DumpError::NoLog(cluster)) };
    let mut shown = Shown {
        out: BufWriter::new(io::stdout().lock()),
        from: SequenceId(from),
        to: SequenceId(to),
        output: arguments.output,
        filter,
        before: None,
        wrong: 0,
    };
    while let Some(page) = pages.next().await.map_err(failed)? {
        for entry in &page {
            if shown.batch(&entry.key, &entry.value)? {
                shown.out.flush()?;
                return Ok(shown.wrong);
            }
        }
    }
    shown.out.flush()?;
    Ok(shown.wrong)
}

/// State of the output, with the number of problems found so far.
struct Shown<W: Write> {
    out: W,
    from: SequenceId,
    to: SequenceId,
    output: Output,
    filter: Option<KeyFilter>,
    /// Last record and checksum of the batch before.
    before: Option<(SequenceId, Checksum)>,
    wrong: u64,
}

impl<W: Write> Shown<W> {
    /// Prints a batch, and returns whether it was the last one that was requested.
    fn batch(&mut self, key: &[u8], bytes: &[u8]) -> io::Result<bool> {
        let batch = match Batch::open(bytes) {
            Ok(batch) => batch,
            Err(why) => {
                self.complain(key, &why)?;
                self.before = None;
                return Ok(false);
            }
        };
        let header = &batch.header;
        if let Some((last, checksum)) = self.before {
            if header.first.0 != last.0 + 1 {
                self.complain(key, &format_args!("the records after {} are missing (INV-1)", last.0))?;
            } else if header.previous != checksum {
                self.complain(key, &"it does not follow the batch before it: the checksums differ (INV-1)")?;
            }
        }
        self.before = Some((header.last, batch.checksum));
        if header.first > self.to {
            return Ok(true);
        }
        let mut result = Ok(());
        batch.each(|id, at, record| {
            if result.is_err() || id > self.to {
                return;
            }
            let mut show = |record: &Record<'_>, key: Option<&[u8]>| {
                if id < self.from {
                    return Ok(());
                }
                let mut json = RecordJson::new(batch.checksum, id, at, record);
                key.into_iter().for_each(|key| json.name(key));
                print(&mut self.out, self.output, &json)
            };
            result = match &mut self.filter {
                None => show(record, None),
                Some(filter) => filter.about(id, at, record, |record, key| show(record, Some(key))),
            };
        });
        result.map(|()| header.last >= self.to)
    }

    fn complain(&mut self, key: &[u8], why: &dyn std::fmt::Display) -> io::Result<()> {
        // Flush first, so that a terminal shows both streams in the order of the log.
        self.out.flush()?;
        eprintln!("moonkeeper oplog: {}: {why}", String::from_utf8_lossy(key));
        self.wrong += 1;
        Ok(())
    }
}

fn print(out: &mut impl Write, output: Output, json: &RecordJson) -> io::Result<()> {
    match output {
        Output::Json => serde_json::to_writer(&mut *out, json)?,
        Output::Text => {
            write!(out, "{} {} {}", json.sequence_id, json.timestamp, json.op_type)?;
            if let Some(key) = &json.key {
                write!(out, " key={key}")?;
            }
            if let Some(before) = json.key_sequence_id {
                write!(out, " after={before}")?;
            }
            write!(out, " {}", json.payload)?;
        }
    }
    out.write_all(b"\n")
}
