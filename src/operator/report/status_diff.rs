//! Whether a status differs from the one before in a way that is worth a write. Numbers that change all the time do not
//! count (INV-9): the end of the log, the size of etcd, the progress of each member, when it was last seen. They are
//! written together with other changes, and otherwise every five minutes.

use std::time::Duration;

use super::condition::ETCD_HEALTHY;
use super::etcd;
use crate::api::{MasterClusterStatus, MemberStatus};

/// Age at which numbers are written again. A settled cluster has a pass every 300 s, so they are at most about that
/// old.
const STALE: Duration = Duration::from_secs(240);

/// Returns whether `after` has to replace `before`.
#[must_use]
pub fn is_news(before: &MasterClusterStatus, after: &MasterClusterStatus) -> bool {
    still(before) != still(after) || lags(before, after)
}

/// Returns whether the numbers of `before` are too old to keep. Never before this process has led for that long itself:
/// a restart writes nothing (INV-9).
#[must_use]
pub fn is_stale(before: &MasterClusterStatus, after: &MasterClusterStatus, leading_for: Duration) -> bool {
    let seen = |status: &MasterClusterStatus, name: &str| {
        let member = status.members.iter().find(|member| member.name == name)?;
        member.last_seen.as_ref().map(|at| at.0)
    };
    let old = |member: &MemberStatus| {
        let (was, is) = (seen(before, &member.name), seen(after, &member.name));
        was.zip(is).is_some_and(|(was, is)| is.duration_since(was).unsigned_abs() >= STALE)
    };
    leading_for >= STALE && after.members.iter().any(old)
}

/// Returns the status without the numbers that change all the time.
fn still(status: &MasterClusterStatus) -> MasterClusterStatus {
    let member = |member: &MemberStatus| MemberStatus {
        applied: member.applied.map(|_| 0),
        lag: None,
        last_seen: member
            .last_seen
            .as_ref()
            .map(|_| k8s_openapi::jiff::Timestamp::UNIX_EPOCH)
            .map(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time),
        ..member.clone()
    };
    let mut still = status.clone();
    still.members = status.members.iter().map(member).collect();
    still.lag = None;
    still.etcd = status.etcd.as_ref().map(etcd::still);
    for condition in &mut still.conditions {
        if condition.type_ == ETCD_HEALTHY && etcd::has_sizes(&condition.reason) {
            condition.message.clear();
        }
    }
    if let Some(oplog) = &mut still.oplog {
        oplog.durable_prefix = oplog.durable_prefix.map(|_| 0);
    }
    still
}

/// Returns whether a lag has more than doubled or halved, became known or unknown, or changed from or to 0.
fn lags(before: &MasterClusterStatus, after: &MasterClusterStatus) -> bool {
    let pairs = before.members.iter().zip(&after.members).map(|(one, other)| (one.lag, other.lag));
    pairs.chain([(before.lag, after.lag)]).any(|pair| match pair {
        (Some(0), Some(0)) | (None, None) => false,
        (Some(one), Some(other)) if one > 0 && other > 0 => {
            one > other.saturating_mul(2) || other > one.saturating_mul(2)
        }
        _ => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::OplogStatus;

    fn status(applied: i64, lag: Option<i64>) -> MasterClusterStatus {
        MasterClusterStatus {
            oplog: Some(OplogStatus { durable_prefix: Some(applied), log_id: None }),
            members: vec![MemberStatus {
                name: "a".into(),
                applied: Some(applied),
                lag,
                ..MemberStatus::default()
            }],
            lag,
            ..MasterClusterStatus::default()
        }
    }

    #[test]
    fn only_what_matters_is_news() {
        assert!(!is_news(&status(1, Some(0)), &status(9000, Some(0))));
        assert!(is_news(&status(1, Some(0)), &status(1, Some(1))));
        assert!(is_news(&status(1, None), &status(1, Some(0))));
        assert!(!is_news(&status(1, Some(100)), &status(1, Some(60))));
        assert!(is_news(&status(1, Some(100)), &status(1, Some(40))));
        assert!(is_news(&status(1, Some(100)), &status(1, Some(0))));
        let other = MasterClusterStatus { term: Some(4), ..status(1, Some(0)) };
        assert!(is_news(&status(1, Some(0)), &other));
    }

    #[test]
    fn numbers_are_written_again_when_they_are_old() {
        let at = |second: i64| {
            let mut status = status(second, Some(0));
            let time = k8s_openapi::jiff::Timestamp::from_second(second).unwrap();
            status.members[0].last_seen = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(time));
            status
        };
        let long = Duration::from_secs(3600);
        assert!(!is_stale(&at(0), &at(239), long));
        assert!(is_stale(&at(0), &at(240), long));
        // An operator that has just started has written nothing yet, and still does not.
        assert!(!is_stale(&at(0), &at(9000), Duration::from_secs(10)));
        // Of a member that is not seen there is nothing new to write.
        let unseen = |second: i64| status(second, None);
        assert!(!is_stale(&unseen(0), &unseen(9000), long));
        assert!(!is_news(&at(0), &at(9000)));
    }
}
