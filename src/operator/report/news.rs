//! Whether a status says something that the one before did not. Numbers that move all the time are no news by
//! themselves (INV-9): where the log ends, how far each member is, when it was last seen.

use crate::api::{MasterClusterStatus, MemberStatus};

/// Whether `after` has to be written over `before`.
#[must_use]
pub fn is_news(before: &MasterClusterStatus, after: &MasterClusterStatus) -> bool {
    still(before) != still(after) || lags(before, after)
}

/// The status without what moves all the time.
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
    if let Some(oplog) = &mut still.oplog {
        oplog.durable_prefix = oplog.durable_prefix.map(|_| 0);
    }
    still
}

/// Whether somebody is far further behind, or far less, than the status says.
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
}
