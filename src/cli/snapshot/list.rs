//! `moonkeeper snapshot list`: the snapshots that the members of a cluster hold.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::bar::share;
use crate::cli::etcd_options::EtcdOptions;
use crate::cli::status::{GatherError, Output, Source, gather, read_view, since, source};
use crate::cluster::etcd_health::size;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotStatus};
use crate::coordination::etcd::Etcd;

pub(super) const EXAMPLES: &str = "\
Examples:
  moonkeeper snapshot list                                    asks the master on this host, 127.0.0.1:9003
  moonkeeper snapshot list --http 10.0.0.1:9003,10.0.0.2:9003
  moonkeeper snapshot list --etcd_endpoints etcd:2379 --cluster_id demo -o json";

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The cluster (else the variable MOONKEEPER_CLUSTER_ID, else mooncake_cluster)
    #[arg(long = "cluster_id", alias = "cluster-id", value_name = "NAME")]
    cluster_id: Option<String>,
    /// HTTP addresses (--metrics_port) of masters, separated by commas, to be asked instead of etcd
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    http: Vec<String>,
    /// text or json
    #[arg(short, long, value_enum, default_value_t)]
    output: Output,
}

/// A member and its snapshots.
#[derive(Debug, Default, Serialize)]
struct MemberSnapshots {
    member: String,
    #[serde(flatten)]
    snapshots: SnapshotStatus,
    /// Why it is unknown what this member holds.
    #[serde(skip_serializing_if = "Option::is_none")]
    unknown: Option<String>,
}

pub(super) fn run(arguments: &List) -> ExitCode {
    let source = match source(&arguments.etcd, arguments.cluster_id.as_deref(), &arguments.http) {
        Ok(source) => source,
        Err(why) => return super::failed(ExitCode::from(crate::cli::USAGE), &why),
    };
    let holders = match crate::cli::block_on(holders(&source)) {
        Ok(Ok(holders)) => holders,
        Ok(Err(why)) => return super::failed(ExitCode::FAILURE, &why),
        Err(why) => return super::failed(ExitCode::FAILURE, &why),
    };
    match arguments.output {
        Output::Json => crate::cli::print_json(&holders),
        Output::Text => crate::cli::print(&text(&holders)),
    }
    ExitCode::SUCCESS
}

/// Reads what members hold from their keys in etcd, or from the masters themselves.
async fn holders(source: &Source) -> Result<Vec<MemberSnapshots>, GatherError> {
    if let Source::Etcd { access, cluster_id } = source {
        let view = read_view(&Etcd::connect(access.settings())?, cluster_id).await?;
        let holder = |(member, seen): (String, crate::cluster::view::Member)| {
            let unknown = seen.value.is_none();
            let held = seen.value.map(|value| value.snapshots).unwrap_or_default();
            MemberSnapshots {
                member,
                snapshots: SnapshotStatus { held, ..SnapshotStatus::default() },
                unknown: unknown
                    .then(|| "its key in etcd has a value that this version cannot read".to_owned()),
            }
        };
        return Ok(view.members.into_iter().map(holder).collect());
    }
    let overview = gather(source).await?;
    let holders = overview.members.into_iter().map(|seen| {
        let snapshots = seen.status.and_then(|status| status.snapshots).unwrap_or_default();
        MemberSnapshots { member: seen.member.name, snapshots, unknown: seen.error }
    });
    Ok(holders.collect())
}

fn text(holders: &[MemberSnapshots]) -> String {
    let mut rows =
        vec![["MEMBER", "RECORD", "TERM", "OBJECTS", "SIZE", "TAKEN", "STORED", "LOG"].map(str::to_owned)];
    let mut notes = Vec::new();
    for MemberSnapshots { member, snapshots, unknown } in holders {
        rows.extend(snapshots.held.iter().map(|held| row(member, held)));
        if let Some(why) = unknown {
            notes.push(format!("{member}: unknown: {why}\n"));
        } else if snapshots.held.is_empty() {
            notes.push(format!("{member} holds none\n"));
        }
        if let Some(running) = &snapshots.running {
            let (record, share, stage) = (running.sequence_id, share(running), running.stage);
            notes.push(format!("{member} is taking one up to record {record}: {share} %, {stage}\n"));
        }
        if let Some(why) = &snapshots.store_error {
            notes.push(format!("{member}: the copy to the shared storage failed: {why}\n"));
        }
        if let Some(why) = &snapshots.error {
            notes.push(format!("{member}: the last attempt failed: {why}\n"));
        }
    }
    let mut text = if rows.len() > 1 { columns(&rows) } else { String::new() };
    if !notes.is_empty() && !text.is_empty() {
        text.push('\n');
    }
    text.extend(notes);
    if holders.is_empty() { "there are no members\n".to_owned() } else { text }
}

fn row(member: &str, held: &HeldSnapshot) -> [String; 8] {
    [
        member.to_owned(),
        held.sequence_id.to_string(),
        held.term.to_string(),
        held.objects.map_or_else(|| "?".to_owned(), |objects| objects.to_string()),
        size(held.bytes),
        since(Duration::from_millis(held.taken_at_ms)),
        held.durability().to_owned(),
        held.log.clone(),
    ]
}

/// Aligns the columns.
fn columns<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}", width = *width));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::snapshot::SnapshotProgress;

    #[test]
    fn every_member_is_accounted_for() {
        let held = |sequence_id| HeldSnapshot {
            log: "00ff".into(),
            term: 3,
            sequence_id,
            bytes: 5 << 20,
            objects: Some(12),
            durable: sequence_id != 65,
            ..HeldSnapshot::default()
        };
        let taking = SnapshotProgress { sequence_id: 99, objects: 1, of: 4, ..SnapshotProgress::default() };
        let holders = [
            MemberSnapshots {
                member: "a".into(),
                snapshots: SnapshotStatus { held: vec![held(70), held(60)], ..SnapshotStatus::default() },
                unknown: None,
            },
            MemberSnapshots {
                member: "b-with-a-long-name".into(),
                snapshots: SnapshotStatus {
                    held: vec![HeldSnapshot { objects: None, ..held(65) }],
                    running: Some(taking),
                    error: Some("disk full".into()),
                    ..SnapshotStatus::default()
                },
                unknown: None,
            },
            MemberSnapshots { member: "c".into(), ..MemberSnapshots::default() },
            MemberSnapshots {
                member: "d".into(),
                unknown: Some("refused".into()),
                ..MemberSnapshots::default()
            },
        ];
        let text = text(&holders);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0].find("RECORD"), lines[1].find("70"), "{text}");
        assert_eq!(lines.iter().filter(|line| line.ends_with("00ff")).count(), 3, "{text}");
        assert!(lines[3].contains('?') && lines[3].contains("5.0 MiB"), "{text}");
        assert!(lines[1].contains("  durable ") && lines[3].contains("  ephemeral "), "{text}");
        for part in [
            "b-with-a-long-name is taking one up to record 99: 25 %, writing\n",
            "b-with-a-long-name: the last attempt failed: disk full\n",
            "c holds none\n",
            "d: unknown: refused\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("a holds") && !text.contains("d holds"), "{text}");
        assert_eq!(super::text(&[]), "there are no members\n");
    }
}
