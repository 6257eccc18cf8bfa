//! Renders an overview as text.

use std::fmt::Write;
use std::time::{Duration, SystemTime};

use super::{Overview, Seen};
use crate::cluster::etcd_health::size;
use crate::cluster::promotion::PromotionReport;
use crate::cluster::role::Role;
use crate::cluster::snapshot::{HeldSnapshot, SnapshotStatus};
use crate::cluster::status::Status;

/// Renders the overview as text for a terminal.
pub(super) fn text(overview: &Overview) -> String {
    let mut text = String::new();
    let place = match &overview.client_address {
        Some(address) => format!("clients go to {address}"),
        None => "and has not published an address for clients yet".to_owned(),
    };
    let _ = match &overview.leader {
        Some(name) => {
            writeln!(text, "cluster {}: {name} leads in term {}, {place}", overview.cluster_id, overview.term)
        }
        None => writeln!(text, "cluster {}: no primary", overview.cluster_id),
    };
    text.push('\n');
    text.push_str(&table(overview));
    if let Some(health) = &overview.etcd {
        let _ = writeln!(text, "\netcd: {health}");
    }
    text.push_str(&log(overview));
    text.push_str(&snapshots(overview));
    if let Some(report) = &overview.last_failover {
        let _ = writeln!(text, "\n{}", failover(report));
    }
    if let Some(left) = longest(overview, |status| status.starts_held_ms_left) {
        let seconds = left.as_secs();
        let _ = writeln!(
            text,
            "\nnothing can be written for another {seconds} s: the log was begun by a recovery, and clients may still be \
             writing where a lost record has told them to"
        );
    }
    if let Some(left) = longest(overview, |status| status.hold_ms_left) {
        let seconds = left.as_secs_f64();
        let _ = writeln!(
            text,
            "\nobjects of earlier terms are neither evicted nor removed for another {seconds:.1} s, unless forced: readers \
             may still have leases from before the failover"
        );
    }
    if overview.problems.is_empty() {
        text.push_str("\nnothing is wrong\n");
    } else {
        text.push_str("\nwrong:\n");
        for problem in &overview.problems {
            let _ = writeln!(text, "  {problem}");
        }
    }
    text
}

/// Returns the remaining time of a restriction of the primary, if there is one.
fn longest(overview: &Overview, left_ms: impl Fn(&Status) -> u64) -> Option<Duration> {
    let statuses = overview.members.iter().filter_map(|seen| seen.status.as_ref());
    let primary = statuses.filter(|status| status.role == Role::Primary);
    primary.map(|status| Duration::from_millis(left_ms(status))).max().filter(|left| !left.is_zero())
}

fn table(overview: &Overview) -> String {
    let head = ["MEMBER", "ROLE", "PHASE", "APPLIED", "LAG", "CLIENTS", "HTTP", "ADMIN"].map(str::to_owned);
    let mut rows = vec![head];
    rows.extend(overview.members.iter().map(row));
    let mut widths = [0; 8];
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(line, "{cell:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

fn row(seen: &Seen) -> [String; 8] {
    let Seen { member, status, .. } = seen;
    let (role, phase, applied, lag) = match status {
        Some(status) => {
            let lag = status.lag.map_or_else(|| "?".to_owned(), |lag| lag.to_string());
            (status.role, status.phase.clone(), status.applied.to_string(), lag)
        }
        // From its member key, which may be old.
        None => (member.role, "no answer".to_owned(), format!("{}?", member.applied), "?".to_owned()),
    };
    let shown = |text: &str| if text.is_empty() { "-".to_owned() } else { text.to_owned() };
    [
        member.name.clone(),
        role.as_str().to_owned(),
        shown(&phase),
        applied,
        lag,
        shown(&member.rpc_address),
        shown(&member.http_address),
        shown(&member.admin_address),
    ]
}

/// Returns a line about the log, if the primary answers.
fn log(overview: &Overview) -> String {
    let statuses = overview.members.iter().filter_map(|seen| seen.status.as_ref());
    let primary = statuses.filter(|status| status.role == Role::Primary).max_by_key(|status| status.term);
    let Some((status, log)) = primary.and_then(|status| Some((status, status.oplog.as_ref()?))) else {
        return String::new();
    };
    let begins = match log.floor {
        0 => "it begins at its first record".to_owned(),
        floor => format!("batches up to record {floor} are deleted"),
    };
    let held = log.held_by.as_ref().map_or(String::new(), |why| format!("; {why}"));
    format!("\nlog: durable up to record {}, {begins}{held}\n", status.durable_prefix)
}

/// Returns a line for each member that keeps snapshots.
fn snapshots(overview: &Overview) -> String {
    let mut text = String::new();
    for Seen { member, status, .. } in &overview.members {
        let Some(snapshots) = status.as_ref().and_then(|status| status.snapshots.as_ref()) else { continue };
        if text.is_empty() {
            text.push_str("\nsnapshots:\n");
        }
        let _ = writeln!(text, "  {}: {}", member.name, held(snapshots));
    }
    text
}

fn held(snapshots: &SnapshotStatus) -> String {
    let record = |it: &HeldSnapshot| {
        format!(
            "record {} ({}, {}, {})",
            it.sequence_id,
            size(it.bytes),
            since(Duration::from_millis(it.taken_at_ms)),
            it.durability()
        )
    };
    let all: Vec<String> = snapshots.held.iter().map(record).collect();
    let mut text = if all.is_empty() { "none yet".to_owned() } else { all.join(", ") };
    if let Some(running) = &snapshots.running {
        let _ = write!(text, "; one up to record {} is being taken: {}", running.sequence_id, running.stage);
    }
    text
}

fn failover(report: &PromotionReport) -> String {
    let ago = since(Duration::from_millis(report.at_ms));
    format!(
        "last failover: {ago}, {} took over in {} ms ({}, term {}); of {} objects {} ({} bytes) are removed so far, because \
         their memory is gone; {} clients had to report their memory again",
        report.primary,
        report.total_ms,
        report.reason.as_str(),
        report.term,
        report.objects,
        report.objects_removed,
        report.bytes_removed,
        report.inherited_clients,
    )
}

/// Formats how long ago a time was, given since 1970.
pub(in crate::cli) fn since(at: Duration) -> String {
    let elapsed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH + at);
    elapsed.map_or_else(|_| "just now".to_owned(), ago)
}

fn ago(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ ..120 => format!("{seconds} s ago"),
        seconds @ ..7200 => format!("{} min ago", seconds / 60),
        seconds => format!("{} h ago", seconds / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd_health::{EtcdHealth, Usage};
    use crate::cluster::log_floor::FloorState;
    use crate::cluster::snapshot::SnapshotProgress;
    use crate::cluster::status::Member;

    #[test]
    fn a_screen_has_it_all() {
        let member = |name: &str| Member {
            name: name.into(),
            role: Role::Standby,
            rpc_address: "h:1".into(),
            applied: 7,
            ..Member::default()
        };
        let status = Status {
            role: Role::Primary,
            phase: "serving".into(),
            applied: 12,
            lag: Some(0),
            ..Status::default()
        };
        let overview = Overview {
            cluster_id: "demo".into(),
            leader: Some("a".into()),
            client_address: Some("h:1".into()),
            term: 3,
            members: vec![
                Seen { member: member("a"), status: Some(status), error: None },
                Seen { member: member("b-with-a-long-name"), status: None, error: Some("refused".into()) },
            ],
            last_failover: Some(PromotionReport { primary: "a".into(), total_ms: 52, ..Default::default() }),
            etcd: None,
            problems: vec!["b does not answer".into()],
        };
        let text = text(&overview);
        assert!(text.starts_with("cluster demo: a leads in term 3, clients go to h:1\n"), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[3].split_whitespace().collect::<Vec<_>>()[..5],
            ["a", "primary", "serving", "12", "0"]
        );
        assert!(lines[4].contains("no answer  7?"), "{text}");
        assert_eq!(lines[2].find("ROLE"), lines[4].find("standby"), "{text}");
        assert!(text.contains("a took over in 52 ms") && text.contains("wrong:\n  b does not"), "{text}");
        assert!(!text.contains("neither evicted nor removed"), "{text}");
        let elected = Overview { client_address: None, ..overview.clone() };
        let first = "cluster demo: a leads in term 3, and has not published an address for clients yet\n";
        assert!(super::text(&elected).starts_with(first));
        let mut quiet = Overview { problems: vec![], ..overview };
        assert!(super::text(&quiet).ends_with("nothing is wrong\n"));
        assert!(!text.contains("etcd"), "{text}");
        let fullest = Usage { in_use_bytes: Some(3 << 20), quota_bytes: Some(16 << 20), ..Usage::default() };
        quiet.etcd = Some(EtcdHealth { fullest, ..EtcdHealth::default() });
        let text = super::text(&quiet);
        assert!(text.contains("\netcd: 3.0 MiB of 16.0 MiB in use (19 %)"), "{text}");
        assert!(!text.contains("snapshots"), "{text}");
        quiet.members[0].status.as_mut().unwrap().snapshots = Some(SnapshotStatus::default());
        assert!(super::text(&quiet).contains("\nsnapshots:\n  a: none yet\n"));
        let taken_at_ms = u64::try_from(
            (SystemTime::now() - Duration::from_secs(300))
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap()
                .as_millis(),
        )
        .unwrap();
        let held = HeldSnapshot { sequence_id: 9, bytes: 3 << 20, taken_at_ms, ..HeldSnapshot::default() };
        let running = SnapshotProgress { sequence_id: 12, ..SnapshotProgress::default() };
        quiet.members[0].status.as_mut().unwrap().snapshots =
            Some(SnapshotStatus { held: vec![held], running: Some(running), ..SnapshotStatus::default() });
        let text = super::text(&quiet);
        let line =
            "  a: record 9 (3.0 MiB, 5 min ago, ephemeral); one up to record 12 is being taken: writing\n";
        assert!(text.contains(line), "{text}");
        assert!(!text.contains("\nlog:"), "{text}");
        let status = quiet.members[0].status.as_mut().unwrap();
        status.durable_prefix = 12;
        status.oplog = Some(FloorState::default());
        let whole = "\nlog: durable up to record 12, it begins at its first record\n";
        assert!(super::text(&quiet).contains(whole));
        let held_by = Some("c still has to read it".to_owned());
        let oplog = Some(FloorState { floor: 7, held_by, can_move: true });
        quiet.members[0].status.as_mut().unwrap().oplog = oplog;
        let text = super::text(&quiet);
        let line =
            "\nlog: durable up to record 12, batches up to record 7 are deleted; c still has to read it\n";
        assert!(text.contains(line), "{text}");
        quiet.members[0].status.as_mut().unwrap().hold_ms_left = 12_345;
        let text = super::text(&quiet);
        assert!(text.contains("neither evicted nor removed for another 12.3 s, unless forced"), "{text}");
        assert!(!text.contains("nothing can be written"), "{text}");
        quiet.members[0].status.as_mut().unwrap().starts_held_ms_left = 300_000;
        assert!(super::text(&quiet).contains("nothing can be written for another 300 s"));
    }
}
