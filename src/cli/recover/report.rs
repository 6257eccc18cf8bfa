//! What a recovery found, what it would keep and lose, and what it has done: as text and as JSON.

use std::fmt::Write;

use k8s_openapi::jiff::Timestamp;
use serde::Serialize;

use super::plan::{Lost, Plan};
use super::survey::Survey;
use crate::cli::status::Output;
use crate::cluster::etcd_health::size;
use crate::cluster::log_end::Latest;
use crate::cluster::snapshot::HeldSnapshot;
use crate::engine::types::LogTime;
use crate::replication::recovery::Contents;

/// Everything that the command prints.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    cluster_id: String,
    /// The name of the master that leads.
    leader: Option<String>,
    log: Option<Log>,
    /// Why the end of the log cannot be read.
    log_error: Option<String>,
    members: Vec<Member>,
    snapshots: Vec<Snapshot>,
    choice: Option<Shown>,
    /// The log that was begun.
    new_log: Option<Log>,
}

#[derive(Debug, Serialize)]
struct Log {
    id: String,
    /// The first record that is left of it.
    first: Option<u64>,
    last: u64,
    term: u64,
}

#[derive(Debug, Serialize)]
struct Member {
    name: String,
    log: Option<String>,
    /// The last record that it knows to be durable.
    last: Option<u64>,
    trouble: Option<String>,
}

#[derive(Debug, Serialize)]
struct Snapshot {
    member: String,
    #[serde(flatten)]
    held: HeldSnapshot,
}

/// A choice.
#[derive(Debug, Serialize)]
struct Shown {
    kept: State,
    /// The snapshot that masters have to start from.
    from_snapshot: Option<Log>,
    /// The state at the end of the log, as far as it can be read.
    end: Option<State>,
    /// Records that are dropped, as far as they can be read.
    lost_records: Option<u64>,
    /// Objects at the end of the log that are not kept.
    lost_objects: u64,
    /// Objects of the kept state that are removed, because dropped records have changed them.
    removed_objects: usize,
    /// Why it is not known what dropped records have changed.
    unknown: Option<String>,
    supersedes: Vec<String>,
    /// No bytes are given to a writer before this log time.
    no_starts_before_ms: u64,
}

/// The contents of a state.
#[derive(Debug, Serialize)]
struct State {
    last: u64,
    term: u64,
    log_time_ms: u64,
    objects: u64,
    bytes: u64,
    writing: u64,
    digest: String,
}

impl From<&Contents> for State {
    fn from(it: &Contents) -> Self {
        Self {
            last: it.last.0,
            term: it.term.0,
            log_time_ms: it.log_time.0,
            objects: it.objects,
            bytes: it.bytes,
            writing: it.writing,
            digest: format!("{:016x}", it.digest.0),
        }
    }
}

impl Log {
    fn of(end: &Latest, first: Option<u64>) -> Self {
        Self { id: end.log.to_string(), first, last: end.last.0, term: end.term.0 }
    }
}

impl Report {
    pub(super) fn of(survey: &Survey) -> Self {
        let members = survey.view.members.iter().map(|(name, member)| {
            let value = member.value.as_ref();
            let known = value.and_then(|value| value.history);
            Member {
                name: name.clone(),
                log: known.map(|known| known.0.log.to_string()),
                last: known.map(|known| known.0.last.0),
                trouble: value.and_then(|value| value.trouble.clone()),
            }
        });
        let snapshots = survey.snapshots();
        let snapshots =
            snapshots.map(|(member, held)| Snapshot { member: member.to_owned(), held: held.clone() });
        Self {
            cluster_id: survey.cluster_id.clone(),
            leader: survey.view.leader.as_ref().map(|leader| leader.value.name.clone()),
            log: survey.end.map(|end| Log::of(&end, survey.first.map(|first| first.0))),
            log_error: survey.end_error.clone(),
            members: members.collect(),
            snapshots: snapshots.collect(),
            choice: None,
            new_log: None,
        }
    }

    /// Adds what the choice means.
    pub(super) fn show_plan(&mut self, plan: &Plan) {
        let Plan { kept, base, removed, lost, supersedes, no_starts_before } = plan;
        let Lost { end, objects, unknown } = lost;
        self.choice = Some(Shown {
            kept: kept.into(),
            from_snapshot: base.as_ref().map(|base| Log::of(base, None)),
            end: end.as_ref().map(State::from),
            lost_records: end.map(|end| end.last.0.saturating_sub(kept.last.0)),
            lost_objects: *objects,
            removed_objects: removed.len(),
            unknown: unknown.clone(),
            supersedes: supersedes.iter().map(ToString::to_string).collect(),
            no_starts_before_ms: no_starts_before.0,
        });
    }

    /// Adds that the new log was begun.
    pub(super) fn done(&mut self, end: &Latest) {
        self.new_log = Some(Log::of(end, None));
    }

    pub(super) fn print(&self, output: Output) {
        match output {
            Output::Json => crate::cli::print_json(self),
            Output::Text => crate::cli::print(&self.text()),
        }
    }

    /// Returns what was done, for people.
    pub(super) fn outcome(&self) -> String {
        let Some(new) = &self.new_log else { return String::new() };
        let file = self.choice.as_ref().and_then(|shown| shown.from_snapshot.as_ref()).map(|base| {
            format!(
                "Masters start from the snapshot up to record {} of log {}: see that each finds a copy of it.\n",
                base.last, base.id
            )
        });
        format!(
            "\nThe cluster has a new log, {}. Masters that run follow it by themselves.\n{}",
            new.id,
            file.unwrap_or_default()
        )
    }

    fn text(&self) -> String {
        let mut out = format!("cluster {}\n", self.cluster_id);
        let mut line = |text: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{text}");
        };
        match &self.leader {
            Some(name) => line(format_args!("  {name} leads")),
            None => line(format_args!("  no master leads")),
        }
        match (&self.log, &self.log_error) {
            (Some(Log { id, first: Some(first), last, term }), _) => {
                line(format_args!("  log {id} has records {first} to {last}, the last one of term {term}"));
            }
            (Some(Log { id, last, .. }), _) => {
                line(format_args!("  log {id} should end at record {last}, but has no batches"));
            }
            (None, Some(why)) => line(format_args!("  {why}")),
            (None, None) => line(format_args!("  there is no log in etcd")),
        }
        for Member { name, log, last, trouble } in &self.members {
            match (log, last) {
                (Some(log), Some(last)) => {
                    line(format_args!("  {name} knows records up to {last} of log {log}"));
                }
                _ => line(format_args!("  {name} knows no log")),
            }
            if let Some(why) = trouble {
                line(format_args!("    {why}"));
            }
        }
        for Snapshot { member, held } in &self.snapshots {
            let objects = held.objects.map_or_else(String::new, |objects| format!(", {objects} objects"));
            let (record, term, log, stored) = (held.sequence_id, held.term, &held.log, held.durability());
            line(format_args!(
                "  {member} holds a snapshot up to record {record} of term {term} of log {log}{objects}, {stored}"
            ));
        }
        if let Some(shown) = &self.choice {
            out.push_str(&shown.text());
        }
        out
    }
}

impl Shown {
    fn text(&self) -> String {
        let kept = &self.kept;
        let mut out = String::from("\nkept\n");
        if kept.last == 0 {
            out.push_str("  nothing: clients offer their memory again, and every object is gone\n");
        } else {
            let from = self.from_snapshot.as_ref().map_or("", |_| ", from the snapshot");
            out.push_str(&format!(
                "  records up to {} of term {}, {}{from}\n  {} objects of {}, and {} that are being written\n",
                kept.last, kept.term, time(kept.log_time_ms), kept.objects, size(kept.bytes), kept.writing
            ));
        }
        out.push_str("lost\n");
        match (&self.end, self.lost_records) {
            (Some(end), Some(0)) if self.unknown.is_none() => {
                out.push_str(&format!("  nothing: the log ends at record {}\n", end.last));
            }
            (Some(end), Some(records)) if records > 0 => out.push_str(&format!(
                "  {records} records, up to {} of term {}, {}\n  {} objects that are there at record {}\n",
                end.last,
                end.term,
                time(end.log_time_ms),
                self.lost_objects,
                end.last
            )),
            _ => out.push_str("  all records after it\n"),
        }
        if self.removed_objects > 0 {
            out.push_str(&format!(
                "  {} objects of the kept state: later records have changed or removed them, and their memory may hold \
                 other objects by now\n",
                self.removed_objects
            ));
        }
        if let Some(why) = self.unknown.as_ref().filter(|_| kept.last > 0) {
            out.push_str(&format!(
                "  not known: {why}.\n  An object that was removed or evicted after record {} comes back; if its memory \
                 was given to another object since, its readers get the wrong bytes. Only --empty rules that out\n",
                kept.last
            ));
        }
        out.push_str("afterwards\n");
        let held = self.no_starts_before_ms.saturating_sub(kept.log_time_ms).div_ceil(1000);
        out.push_str(&format!(
            "  no object can be written for {held} s after a master leads; what is kept can be read\n"
        ));
        match self.supersedes.as_slice() {
            [] => out.push_str("  no log is superseded\n"),
            logs => out.push_str(&format!("  superseded: {}\n", logs.join(", "))),
        }
        out
    }
}

/// Returns a log time for people. It began with the wall clock of the first primary.
fn time(log_time: u64) -> String {
    let LogTime(ms) = LogTime(log_time);
    let stamp = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(|| format!("log time {ms}"), |stamp| format!("written about {stamp:.0}"))
}
