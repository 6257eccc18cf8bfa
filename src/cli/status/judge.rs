//! What is wrong with a cluster, from what was seen of it.

use std::collections::BTreeMap;

use super::{Overview, Seen};
use crate::master::admin_api::Status;
use crate::master::peer::Role;

/// Says what is wrong, the worst first, and which failover was the last.
pub(super) fn judge(overview: &mut Overview) {
    let mut problems = Vec::new();
    let statuses = || overview.members.iter().filter_map(|seen| seen.status.as_ref());
    match (&overview.leader, &overview.client_address) {
        (None, _) => problems.push("there is no primary: clients are not served".to_owned()),
        (Some(leader), None) => problems.push(format!("{leader} has been elected and does not serve yet")),
        (Some(_), Some(_)) => {}
    }
    let primaries: Vec<&str> =
        statuses().filter(|status| status.role == Role::Primary).map(|status| &*status.name).collect();
    if primaries.len() > 1 {
        problems.push(format!("more than one says to be primary: {}", primaries.join(", ")));
    }
    problems.extend(different_digests(statuses()));
    let standbys = statuses().filter(|status| status.role == Role::Standby && status.ready).count();
    if standbys == 0 && overview.leader.is_some() {
        problems.push("no standby could take over".to_owned());
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
        for fault in &status.faults {
            problems.push(format!("{}: {} ({} times) {}", status.name, fault.what, fault.count, fault.last));
        }
    }
    let last = statuses().filter_map(|status| status.promotion.as_ref()).max_by_key(|report| report.term);
    overview.last_failover = last.cloned();
    overview.problems.extend(problems);
}

/// Masters that have applied the same records and are not the same (INV-8).
fn different_digests<'a>(statuses: impl Iterator<Item = &'a Status>) -> Vec<String> {
    let mut at: BTreeMap<u64, &Status> = BTreeMap::new();
    let mut problems = Vec::new();
    for status in statuses.filter(|status| !status.digest.is_empty()) {
        match at.get(&status.applied) {
            Some(other) if other.digest != status.digest => problems.push(format!(
                "{} and {} differ at record {}: {} and {}",
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
    use crate::master::admin_api::{Fault, Member, PromotionReport};

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
        assert_eq!(differ, "a and b differ at record 9: aa and bb");
        // At different records nothing can be said.
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
        let fault = Fault { what: "digest mismatch".into(), count: 2, last: "at 7".into() };
        assert!(
            problems(|it| status(it, 0).faults.push(fault.clone())).contains("digest mismatch (2 times)")
        );
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
