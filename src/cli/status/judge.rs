//! Finds the problems of a cluster in its overview.

use std::collections::BTreeMap;

use super::{Overview, Seen};
use crate::cluster::etcd_health::{EtcdHealth, Verdict};
use crate::cluster::role::Role;
use crate::cluster::status::Status;

/// Fills in the problems, the worst first, and the last failover.
pub(super) fn judge(overview: &mut Overview) {
    let mut problems = Vec::new();
    let statuses = || overview.members.iter().filter_map(|seen| seen.status.as_ref());
    match (&overview.leader, &overview.client_address) {
        (None, _) => problems.push("there is no primary: clients are not served".to_owned()),
        (Some(leader), None) => problems.push(format!("{leader} was elected but does not serve yet")),
        (Some(_), Some(_)) => {}
    }
    let primaries: Vec<&str> =
        statuses().filter(|status| status.role == Role::Primary).map(|status| &*status.name).collect();
    if primaries.len() > 1 {
        problems.push(format!(
            "more than one master reports to be primary: {}; only the one with the election key can acknowledge changes, \
             and every other one stops answering when its lease ends",
            primaries.join(", ")
        ));
    }
    problems.extend(different_digests(statuses()));
    let standbys = statuses().filter(|status| status.role == Role::Standby && status.ready).count();
    if standbys == 0 && overview.leader.is_some() {
        problems.push("no standby is ready to take over".to_owned());
    }
    for Seen { member, status, error } in &overview.members {
        if let Some(why) = error {
            problems.push(format!("{} does not answer: {why}", member.name));
        }
        let Some(status) = status else { continue };
        if !status.ready {
            let why =
                status.why_not_ready.as_deref().or(status.waits_for.as_deref()).unwrap_or(&status.phase);
            problems.push(format!("{} is not ready: {why}", status.name));
        }
        if let Some(why) = status.snapshots.as_ref().and_then(|snapshots| snapshots.error.as_ref()) {
            problems.push(format!("{} could not take its last snapshot: {why}", status.name));
        }
        if let Some(why) = status.snapshots.as_ref().and_then(|snapshots| snapshots.store_error.as_ref()) {
            problems.push(format!("{} could not copy a snapshot to the shared storage: {why}", status.name));
        }
        if let Some(why) = status.snapshots.as_ref().and_then(|snapshots| snapshots.proof_error.as_ref()) {
            problems.push(format!("{} checks the shared storage: {why}", status.name));
        }
        for fault in &status.faults {
            let last = if fault.last.is_empty() { String::new() } else { format!(", {}", fault.last) };
            problems.push(format!("{}: {} ({} ×){last}", status.name, fault.what, fault.count));
        }
    }
    // A master that has not asked etcd yet, or gets no answer, knows nothing of it.
    let known = statuses().filter(|status| status.etcd.as_ref().is_some_and(EtcdHealth::is_known));
    let etcd = known.max_by_key(|status| status.role == Role::Primary);
    overview.etcd = etcd.and_then(|status| status.etcd.clone());
    problems.extend(overview.etcd.as_ref().and_then(etcd_problem));
    let last = statuses().filter_map(|status| status.promotion.as_ref()).max_by_key(|report| report.term);
    overview.last_failover = last.cloned();
    overview.problems.extend(problems);
}

/// Returns what is wrong with etcd's space, if anything is.
fn etcd_problem(health: &EtcdHealth) -> Option<String> {
    match health.judge(Verdict::default()) {
        Verdict::Fine => None,
        Verdict::SpaceLow => Some(format!(
            "etcd has little space left: {health}; compact and defragment it, or raise its quota"
        )),
        Verdict::NoSpace => Some(format!(
            "etcd is out of space (alarm NOSPACE): {health}; compact and defragment it or raise its quota, then disarm \
             the alarm"
        )),
        Verdict::Corrupt => Some(
            "etcd's members have different data (alarm CORRUPT): it refuses changes until the member whose data differs is \
             replaced and the alarm is disarmed"
                .to_owned(),
        ),
    }
}

/// Reports masters that have applied the same records and have different digests (INV-8).
fn different_digests<'a>(statuses: impl Iterator<Item = &'a Status>) -> Vec<String> {
    let mut at: BTreeMap<u64, &Status> = BTreeMap::new();
    let mut problems = Vec::new();
    for status in statuses.filter(|status| !status.digest.is_empty()) {
        match at.get(&status.applied) {
            Some(other) if other.digest != status.digest => problems.push(format!(
                "the states of {} and {} differ at record {} (digests {} and {}): the one that contradicts the log \
                 rebuilds itself",
                other.name, status.name, status.applied, other.digest, status.digest
            )),
            Some(_) => {}
            None => {
                at.insert(status.applied, status);
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd_health::{Alarm, EtcdMember, Usage};
    use crate::cluster::promotion::PromotionReport;
    use crate::cluster::snapshot::SnapshotStatus;
    use crate::cluster::status::{Fault, Member};

    fn seen(name: &str, role: Role) -> Seen {
        let status = Status {
            name: name.into(),
            role,
            ready: true,
            applied: 9,
            digest: "aa".into(),
            ..Status::default()
        };
        Seen { member: Member { name: name.into(), ..Member::default() }, status: Some(status), error: None }
    }

    fn healthy() -> Overview {
        Overview {
            leader: Some("a".into()),
            client_address: Some("h:1".into()),
            members: vec![seen("a", Role::Primary), seen("b", Role::Standby), seen("c", Role::Standby)],
            ..Overview::default()
        }
    }

    fn problems(change: impl Fn(&mut Overview)) -> String {
        let mut overview = healthy();
        change(&mut overview);
        judge(&mut overview);
        overview.problems.join("\n")
    }

    fn status(overview: &mut Overview, at: usize) -> &mut Status {
        overview.members[at].status.as_mut().unwrap()
    }

    #[test]
    fn every_problem_is_named_and_health_is_silent() {
        assert_eq!(problems(|_| {}), "");
        assert!(problems(|it| it.leader = None).contains("no primary"));
        assert!(problems(|it| it.client_address = None).contains("does not serve yet"));
        assert!(problems(|it| status(it, 1).role = Role::Primary).contains("more than one"));
        let differ = problems(|it| status(it, 1).digest = "bb".into());
        assert_eq!(
            differ,
            "the states of a and b differ at record 9 (digests aa and bb): the one that contradicts the log rebuilds itself"
        );
        // Digests at different records cannot be compared.
        assert_eq!(
            problems(|it| {
                status(it, 1).digest = "bb".into();
                status(it, 1).applied = 8;
            }),
            ""
        );
        let behind = problems(|it| {
            for at in [1, 2] {
                status(it, at).ready = false;
                status(it, at).why_not_ready = Some("5 records behind".into());
            }
        });
        assert!(behind.starts_with("no standby") && behind.contains("c is not ready: 5 records"), "{behind}");
        assert!(problems(|it| it.members[2].error = Some("refused".into())).contains("c does not answer"));
        let store_error = Some("stale file handle".into());
        let snapshots =
            SnapshotStatus { error: Some("disk full".into()), store_error, ..SnapshotStatus::default() };
        let failed = problems(|it| status(it, 2).snapshots = Some(snapshots.clone()));
        assert!(failed.contains("c could not take its last snapshot: disk full"), "{failed}");
        assert!(
            failed.contains("c could not copy a snapshot to the shared storage: stale file handle"),
            "{failed}"
        );
        let fault = Fault { what: "digest mismatch".into(), count: 2, last: "at 7".into() };
        assert!(
            problems(|it| status(it, 0).faults.push(fault.clone())).contains("digest mismatch (2 ×), at 7")
        );
    }

    #[test]
    fn the_primary_tells_of_etcd_and_another_master_if_it_does_not() {
        let health = |in_use_bytes, alarms: &[Alarm]| {
            let usage =
                Usage { in_use_bytes: Some(in_use_bytes), quota_bytes: Some(100 << 20), ..Usage::default() };
            let member = EtcdMember { usage, ..EtcdMember::default() };
            Some(EtcdHealth { fullest: usage, alarms: Some(alarms.to_vec()), members: vec![member] })
        };
        let silent = problems(|it| {
            status(it, 0).etcd = Some(EtcdHealth::default());
            status(it, 1).etcd = health(81 << 20, &[]);
        });
        assert!(silent.starts_with("etcd has little space left: 81.0 MiB of 100.0 MiB in use"), "{silent}");
        let both = |it: &mut Overview| {
            status(it, 0).etcd = health(80 << 20, &[]);
            status(it, 1).etcd = health(81 << 20, &[]);
        };
        assert_eq!(problems(both), "");
        let mut overview = healthy();
        both(&mut overview);
        judge(&mut overview);
        assert_eq!(overview.etcd, health(80 << 20, &[]));
        assert!(problems(|it| status(it, 0).etcd = health(9, &[Alarm::NoSpace])).contains("alarm NOSPACE"));
        assert!(problems(|it| status(it, 0).etcd = health(9, &[Alarm::Corrupt])).contains("alarm CORRUPT"));
    }

    #[test]
    fn the_last_failover_is_that_of_the_highest_term() {
        let mut overview = healthy();
        for (at, term) in [(0, 5), (1, 7), (2, 6)] {
            status(&mut overview, at).promotion =
                Some(PromotionReport { term, ..PromotionReport::default() });
        }
        judge(&mut overview);
        assert_eq!(overview.last_failover.map(|report| report.term), Some(7));
    }
}
