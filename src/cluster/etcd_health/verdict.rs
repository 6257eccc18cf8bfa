//! The verdict on etcd's space and alarms.

use super::{Alarm, EtcdHealth, Usage};

/// Above this percentage of the quota in use, space counts as low.
const IN_USE_PERCENT: u64 = 80;

/// The same for the size of the file, which is what etcd compares with the quota. Not all free pages are reused before
/// the file grows: with a quota of 16 MiB it was reached with 82 to 93 % of it in use.
const FILE_PERCENT: u64 = 95;

/// By so many percent both have to fall before space counts as enough again, so that the verdict does not flap.
const HYSTERESIS_PERCENT: u64 = 5;

/// What etcd's alarms and sizes mean for a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verdict {
    /// No alarm, and as far as is known enough space.
    #[default]
    Fine,
    /// The quota is nearly used up.
    SpaceLow,
    /// The alarm NOSPACE is active.
    NoSpace,
    /// The alarm CORRUPT is active.
    Corrupt,
}

impl EtcdHealth {
    /// Returns the verdict, given the one before, which stays while no member answers.
    #[must_use]
    pub fn judge(&self, before: Verdict) -> Verdict {
        let Some(alarms) = &self.alarms else { return before };
        let was_low = matches!(before, Verdict::SpaceLow | Verdict::NoSpace);
        if alarms.contains(&Alarm::Corrupt) {
            Verdict::Corrupt
        } else if alarms.contains(&Alarm::NoSpace) {
            Verdict::NoSpace
        } else if self.members.iter().any(|member| member.usage.is_low(was_low)) {
            Verdict::SpaceLow
        } else {
            Verdict::Fine
        }
    }
}

impl Usage {
    /// Returns whether the quota is nearly used up; false if it is unknown.
    fn is_low(&self, was_low: bool) -> bool {
        let margin = if was_low { HYSTERESIS_PERCENT } else { 0 };
        let above = |bytes: Option<u64>, percent: u64| {
            let limit = self.quota_bytes.map(|quota| u128::from(quota) * u128::from(percent - margin));
            bytes.zip(limit).is_some_and(|(bytes, limit)| u128::from(bytes) * 100 > limit)
        };
        above(self.in_use_bytes, IN_USE_PERCENT) || above(self.db_bytes, FILE_PERCENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::etcd_health::EtcdMember;

    fn health(alarms: Option<Vec<Alarm>>, usages: &[(u64, u64, Option<u64>)]) -> EtcdHealth {
        let member = |&(in_use, db, quota_bytes): &(u64, u64, Option<u64>)| EtcdMember {
            usage: Usage { in_use_bytes: Some(in_use), db_bytes: Some(db), quota_bytes, ..Usage::default() },
            ..EtcdMember::default()
        };
        EtcdHealth { alarms, members: usages.iter().map(member).collect(), ..EtcdHealth::default() }
    }

    #[test]
    fn alarms_come_first_and_then_the_shares_of_the_quota() {
        use Verdict::{Corrupt, Fine, NoSpace, SpaceLow};
        let none = || Some(Vec::new());
        let table = [
            (health(none(), &[(80, 80, Some(100))]), Fine, Fine),
            (health(none(), &[(81, 81, Some(100))]), Fine, SpaceLow),
            (health(none(), &[(10, 95, Some(100))]), Fine, Fine),
            (health(none(), &[(10, 96, Some(100))]), Fine, SpaceLow),
            // One of several is enough.
            (health(none(), &[(10, 20, Some(100)), (85, 90, Some(100))]), Fine, SpaceLow),
            (health(none(), &[(900, 900, Some(2000)), (85, 90, Some(100))]), Fine, SpaceLow),
            // Until it has fallen by five percent, after an alarm as well.
            (health(none(), &[(76, 76, Some(100))]), Fine, Fine),
            (health(none(), &[(76, 76, Some(100))]), SpaceLow, SpaceLow),
            (health(none(), &[(76, 76, Some(100))]), NoSpace, SpaceLow),
            (health(none(), &[(75, 75, Some(100))]), SpaceLow, Fine),
            (health(none(), &[(10, 91, Some(100))]), SpaceLow, SpaceLow),
            (health(none(), &[(10, 90, Some(100))]), SpaceLow, Fine),
            // An unknown quota is no default.
            (health(none(), &[(u64::MAX, u64::MAX, None)]), Fine, Fine),
            (health(none(), &[(u64::MAX, u64::MAX, None)]), NoSpace, Fine),
            (health(none(), &[(u64::MAX, u64::MAX, Some(u64::MAX))]), Fine, SpaceLow),
            (health(Some(vec![Alarm::NoSpace]), &[(10, 10, Some(100))]), Fine, NoSpace),
            (health(Some(vec![Alarm::NoSpace]), &[(10, 10, None)]), Fine, NoSpace),
            (health(Some(vec![Alarm::NoSpace, Alarm::Corrupt]), &[(10, 10, None)]), NoSpace, Corrupt),
            // Silence changes nothing.
            (health(None, &[]), Fine, Fine),
            (health(None, &[]), SpaceLow, SpaceLow),
            (health(None, &[]), NoSpace, NoSpace),
            (health(None, &[]), Corrupt, Corrupt),
        ];
        for (health, before, expected) in table {
            assert_eq!(health.judge(before), expected, "{before:?} {health:?}");
        }
    }
}
