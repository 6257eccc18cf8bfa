//! What `moonkeeper verify` has found, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::compare::{Difference, Finding, sums};
use super::round::{Answers, Target};
use crate::cluster::digests::{ItemRange, RangeDigest};
use crate::cluster::role::Role;
use crate::engine::snapshot::ItemKind;

/// Result of a comparison.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    cluster_id: String,
    /// Whether all masters that were compared have the same state, and each the digest that it keeps.
    equal: bool,
    /// The record after which the masters were compared; missing if none was, or not all at the same one.
    at: Option<Position>,
    members: Vec<MemberReport>,
    kinds: Vec<KindReport>,
    /// The first item that differs.
    difference: Option<FoundDifference>,
    /// Findings in words.
    notes: Vec<String>,
}

/// A record of a log.
#[derive(Debug, Serialize)]
struct Position {
    log: String,
    term: u64,
    sequence_id: u64,
}

/// A member of the cluster.
#[derive(Debug, Serialize)]
struct MemberReport {
    name: String,
    role: Role,
    compared: bool,
    /// Why it was not compared.
    error: Option<String>,
    /// The digest that it keeps up to date.
    kept: Option<String>,
    /// The digest of what is in its memory.
    computed: Option<String>,
}

/// The items of one kind.
#[derive(Debug, Serialize)]
struct KindReport {
    kind: String,
    equal: bool,
    members: BTreeMap<String, RangeDigest>,
}

/// The first item that differs, and where that was seen.
#[derive(Debug, Serialize)]
struct FoundDifference {
    /// The record at which it differed.
    sequence_id: u64,
    #[serde(flatten)]
    item: Difference,
}

impl Report {
    /// Reports the first round, in which everything was read.
    pub(super) fn new(cluster_id: String, targets: &[Target], answers: &Answers) -> Self {
        let member = |target: &Target| {
            let digests = answers.digests.get(&target.name);
            MemberReport {
                name: target.name.clone(),
                role: target.role,
                compared: digests.is_some(),
                error: answers.missing.get(&target.name).map(|missing| missing.why.clone()),
                kept: digests.map(|digests| digests.kept.clone()),
                computed: digests.and_then(|digests| digests.computed.clone()),
            }
        };
        let mut report =
            Self { cluster_id, members: targets.iter().map(member).collect(), ..Self::default() };
        let Some((log, sequence_id)) = answers.position() else {
            if !answers.digests.is_empty() {
                report.notes.push(apart(answers));
            }
            return report;
        };
        let term = answers.digests.values().map(|digests| digests.term).max().unwrap_or(0);
        report.at = Some(Position { log: log.to_owned(), term, sequence_id });
        for kind in ItemKind::ALL {
            let members = sums(&answers.views(kind.as_str()));
            let mut found = members.values();
            let first = found.next();
            let equal = found.all(|sum| Some(sum) == first);
            report.kinds.push(KindReport { kind: kind.as_str().to_owned(), equal, members });
        }
        for member in &report.members {
            if let (Some(kept), Some(computed)) = (&member.kept, &member.computed)
                && kept != computed
            {
                report.notes.push(format!(
                    "{} keeps the digest {kept}, but that of its state is {computed}: its memory changed without a \
                     record",
                    member.name
                ));
            }
        }
        report.equal = report.notes.is_empty() && report.first_difference().is_none();
        report
    }

    /// Returns the first kind of items that differ.
    pub(super) fn first_difference(&self) -> Option<&str> {
        self.kinds.iter().find(|kind| !kind.equal).map(|kind| kind.kind.as_str())
    }

    /// Returns whether all masters were compared and are equal.
    pub(super) fn is_good(&self) -> bool {
        self.equal && self.members.iter().all(|member| member.compared)
    }

    /// Adds the result of the search, and the range that it ended in.
    pub(super) fn found(&mut self, range: Option<&ItemRange>, found: Finding, answers: &Answers) {
        let at = answers.position().map_or(0, |(_, at)| at);
        match found {
            Finding::Item(item) => {
                self.difference = Some(FoundDifference { sequence_id: at, item });
            }
            Finding::Equal => self.notes.push(format!(
                "at record {at} the masters did not differ any more in {}: a master that notices a difference builds \
                 its state anew (see its faults in `moonkeeper status`)",
                place(range)
            )),
            Finding::Narrower(_) | Finding::Unclear => {
                self.notes.push(format!("no item explains the difference in {}", place(range)));
            }
        }
    }

    /// Notes that the search could not go on.
    pub(super) fn search_failed(&mut self, range: Option<&ItemRange>, answers: &Answers) {
        let missing = answers.missing.iter().map(|(name, missing)| format!("{name}: {}", missing.why));
        let mut whys: Vec<String> = missing.collect();
        if answers.position().is_none() && !answers.digests.is_empty() {
            whys.push(apart(answers));
        }
        self.notes.push(format!("the difference in {} was not found: {}", place(range), whys.join("; ")));
    }
}

fn apart(answers: &Answers) -> String {
    let at =
        answers.digests.iter().map(|(name, it)| format!("{name} at {} of log {}", it.sequence_id, it.log));
    let at: Vec<String> = at.collect();
    format!("the masters did not stop at the same record: {}", at.join(", "))
}

/// Names a range of items.
fn place(range: Option<&ItemRange>) -> String {
    let Some(ItemRange { kind, prefix, bits }) = range else { return "the state".to_owned() };
    let digits = usize::from(bits / 4).min(prefix.len());
    format!("the {} whose position begins with {}", plural(kind), &prefix[..digits])
}

fn plural(kind: &str) -> &'static str {
    match ItemKind::named(kind) {
        Some(ItemKind::Object) => "objects",
        Some(ItemKind::Segment) => "segments",
        Some(ItemKind::Client) => "clients",
        Some(ItemKind::Write) => "writes under way",
        Some(ItemKind::Discarded) => "discarded reservations",
        Some(ItemKind::Task) => "tasks",
        Some(ItemKind::Metadata) => "metadata entries",
        Some(ItemKind::State) | None => "numbers of the state as a whole",
    }
}

/// Renders the report for people.
pub(super) fn text(report: &Report) -> String {
    let mut text = String::new();
    let compared: Vec<String> = report.members.iter().filter(|member| member.compared).map(named).collect();
    let (count, cluster) = (compared.len(), &report.cluster_id);
    let _ = match &report.at {
        Some(Position { log, term, sequence_id }) => writeln!(
            text,
            "cluster {cluster}: compared {count} masters at record {sequence_id} of log {log}, term {term}: {}",
            compared.join(", ")
        ),
        None => writeln!(text, "cluster {cluster}: no masters were compared"),
    };
    for kind in &report.kinds {
        kind_line(&mut text, kind);
    }
    if let Some(found) = &report.difference {
        difference(&mut text, found);
    }
    for note in &report.notes {
        let _ = writeln!(text, "{note}");
    }
    for member in &report.members {
        if let Some(why) = &member.error {
            let _ = writeln!(text, "{} was not compared: {why}", named(member));
        }
    }
    if report.is_good() {
        let digest = report.members.iter().find_map(|member| member.computed.as_deref()).unwrap_or_default();
        let _ = match count {
            1 => {
                writeln!(text, "it is the only master, and its state has the digest that it keeps, {digest}")
            }
            _ => writeln!(text, "all masters have the same state, digest {digest}"),
        };
    } else if report.equal && count > 1 {
        let _ = writeln!(text, "the masters that were compared have the same state");
    }
    text
}

fn named(member: &MemberReport) -> String {
    match member.role {
        Role::Primary => format!("{} (primary)", member.name),
        Role::Standby | Role::Unknown => member.name.clone(),
    }
}

fn kind_line(text: &mut String, kind: &KindReport) {
    let words = plural(&kind.kind);
    if kind.equal {
        let count = kind.members.values().next().map_or(0, |sum| sum.count);
        let _ = writeln!(text, "  {words}: {count}, equal");
        return;
    }
    let _ = writeln!(text, "  {words}: DIFFERENT");
    for (sum, members) in grouped(&kind.members) {
        let _ = writeln!(text, "    {}: {}, digest {}", members.join(", "), sum.count, sum.digest);
    }
}

fn difference(text: &mut String, found: &FoundDifference) {
    let FoundDifference { sequence_id, item } = found;
    let _ = writeln!(text, "the first difference, at record {sequence_id}: {} {:?}", item.kind, item.name);
    for (fields, members) in grouped(&item.members) {
        let members = members.join(", ");
        let _ = match fields {
            None => writeln!(text, "  {members}: not there"),
            Some(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name} {value}"));
                writeln!(text, "  {members}: {}", fields.collect::<Vec<_>>().join(", "))
            }
        };
    }
    let has_it = item.members.values().flatten().count();
    if !item.fields.is_empty() {
        let _ = writeln!(text, "  they differ in: {}", item.fields.join(", "));
    } else if has_it == item.members.len() {
        let _ = writeln!(text, "  they differ in a part that is not shown");
    }
}

/// Returns each value once, with the members that have it.
fn grouped<T: PartialEq>(members: &BTreeMap<String, T>) -> Vec<(&T, Vec<&str>)> {
    let mut groups: Vec<(&T, Vec<&str>)> = Vec::new();
    for (member, value) in members {
        match groups.iter_mut().find(|(known, _)| *known == value) {
            Some((_, names)) => names.push(member),
            None => groups.push((value, vec![member])),
        }
    }
    groups
}
