//! The health of etcd: size, quota and alarms as its members report them, how fast it fills up, and the verdict on
//! that. Pure: masters and operator ask etcd and pass the answers in.

mod trend;
mod verdict;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::coordination::types::{Failure, MemberStatus};

use trend::Trend;
pub use verdict::Verdict;
pub use words::size;

/// Interval at which the members are asked.
pub const INTERVAL: Duration = Duration::from_secs(10);

/// Timeout of a question. A member that takes longer counts as unknown until the next one.
pub const TIMEOUT: Duration = Duration::from_secs(2);

/// The health of etcd at the last look. What was not reported is `None`, never zero.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EtcdHealth {
    /// The member that is nearest to its quota, or the largest one if no quota is known.
    #[serde(flatten)]
    pub fullest: Usage,
    /// The alarms that are active; `None` if no member has answered.
    pub alarms: Option<Vec<Alarm>>,
    /// All members, in the order of the endpoints.
    pub members: Vec<EtcdMember>,
}

/// A member of etcd, by the endpoint at which it was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EtcdMember {
    pub endpoint: String,
    #[serde(flatten)]
    pub usage: Usage,
    /// Why nothing is known of it.
    pub error: Option<String>,
}

/// How much space the database of a member takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Size of its file, which etcd compares with the quota.
    pub db_bytes: Option<u64>,
    /// The part of the file that holds data. The rest is reused before the file grows.
    pub in_use_bytes: Option<u64>,
    /// The limit of the file's size; `None` if the member does not report it, as before etcd 3.6, or has none.
    pub quota_bytes: Option<u64>,
    /// By how much the part in use grows, or shrinks if negative; `None` until it was observed for a minute.
    pub growth_bytes_per_second: Option<i64>,
    /// When the part in use reaches the quota at this rate; `None` if it does not grow or one of the two is unknown.
    pub time_left_seconds: Option<u64>,
}

/// An alarm of etcd, which stays until it is disarmed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Alarm {
    /// A member is out of space: etcd accepts no writes and grants no leases.
    NoSpace,
    /// The data of a member differs from that of the others: etcd accepts no writes and grants no leases.
    Corrupt,
}

impl Alarm {
    /// All alarms that etcd has.
    pub const ALL: [Self; 2] = [Self::NoSpace, Self::Corrupt];

    /// Returns the name that etcd gives it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::NoSpace => "NOSPACE",
            Self::Corrupt => "CORRUPT",
        }
    }
}

impl Usage {
    /// Returns how much of the quota is in use; `None` if one of the two is unknown.
    fn share(&self) -> Option<f64> {
        Some(self.in_use_bytes? as f64 / self.quota_bytes? as f64)
    }
}

impl EtcdHealth {
    /// Returns whether a member has answered at the last look.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.alarms.is_some()
    }

    /// Returns the endpoints of which nothing is known.
    pub fn silent(&self) -> impl Iterator<Item = &str> {
        self.members.iter().filter(|member| member.error.is_some()).map(|member| &*member.endpoint)
    }
}

/// What the members have reported over time.
#[derive(Clone, Debug, Default)]
pub struct HealthRecord {
    trends: BTreeMap<String, Trend>,
}

impl HealthRecord {
    /// Takes the answers of all members, by endpoint, at a moment of a monotonic clock. Returns the health.
    pub fn take(
        &mut self,
        at: Duration,
        answers: Vec<(String, Result<MemberStatus, Failure>)>,
    ) -> EtcdHealth {
        let mut alarms: Option<Vec<Alarm>> = None;
        let mut members = Vec::with_capacity(answers.len());
        for (endpoint, answer) in answers {
            let member = match answer {
                Ok(status) => {
                    let raised = alarms.get_or_insert_default();
                    for (alarm, is_raised) in
                        [(Alarm::NoSpace, status.alarms.no_space), (Alarm::Corrupt, status.alarms.corrupt)]
                    {
                        if is_raised && !raised.contains(&alarm) {
                            raised.push(alarm);
                        }
                    }
                    let trend = self.trends.entry(endpoint.clone()).or_default();
                    trend.add(at, &status);
                    EtcdMember { endpoint, usage: usage(&status, trend.rate()), error: None }
                }
                Err(failure) => {
                    EtcdMember { endpoint, usage: Usage::default(), error: Some(failure.to_string()) }
                }
            };
            members.push(member);
        }
        let order = |usage: &Usage| (usage.share().unwrap_or(0.0), usage.in_use_bytes);
        let fullest = members
            .iter()
            .map(|member| member.usage)
            .reduce(|one, other| if order(&other) > order(&one) { other } else { one });
        EtcdHealth { fullest: fullest.unwrap_or_default(), alarms, members }
    }
}

fn usage(status: &MemberStatus, rate: Option<f64>) -> Usage {
    let left = status.quota_bytes.map(|quota| quota.saturating_sub(status.in_use_bytes));
    let growing = rate.filter(|rate| *rate > 0.0);
    Usage {
        db_bytes: Some(status.db_bytes),
        in_use_bytes: Some(status.in_use_bytes),
        quota_bytes: status.quota_bytes,
        // Conversions from floats saturate.
        growth_bytes_per_second: rate.map(|rate| rate.round() as i64),
        time_left_seconds: left.zip(growing).map(|(left, rate)| (left as f64 / rate) as u64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::types::Alarms;

    fn status(in_use_bytes: u64, quota_bytes: Option<u64>) -> MemberStatus {
        MemberStatus {
            member: 1,
            db_bytes: 2 * in_use_bytes,
            in_use_bytes,
            quota_bytes,
            ..Default::default()
        }
    }

    fn look(answers: &[Result<MemberStatus, Failure>]) -> EtcdHealth {
        let named = answers.iter().enumerate().map(|(at, answer)| (format!("e{at}"), answer.clone()));
        HealthRecord::default().take(Duration::ZERO, named.collect())
    }

    fn away() -> Result<MemberStatus, Failure> {
        Err(Failure::Unknown("nothing within 2s".into()))
    }

    #[test]
    fn the_member_nearest_to_its_quota_counts() {
        /// Answers of the members; bytes in use and quota that count.
        type Case<'a> = (&'a [Result<MemberStatus, Failure>], Option<u64>, Option<u64>);
        let table: [Case; 5] = [
            (&[], None, None),
            (&[away()], None, None),
            (&[Ok(status(5, Some(100))), Ok(status(7, Some(100))), away()], Some(7), Some(100)),
            // The smaller one has the smaller quota.
            (&[Ok(status(50, Some(1000))), Ok(status(30, Some(100)))], Some(30), Some(100)),
            // Without a quota, which is not made up from the other's.
            (&[Ok(status(5, None)), Ok(status(7, None))], Some(7), None),
        ];
        for (answers, in_use, quota) in table {
            let Usage { in_use_bytes, quota_bytes, db_bytes, .. } = look(answers).fullest;
            assert_eq!((in_use_bytes, quota_bytes), (in_use, quota), "{answers:?}");
            assert_eq!(db_bytes, in_use.map(|bytes| 2 * bytes));
        }
    }

    #[test]
    fn silence_is_unknown_and_named() {
        let health = look(&[away(), Ok(status(5, Some(100)))]);
        assert_eq!((health.is_known(), health.silent().collect::<Vec<_>>()), (true, vec!["e0"]));
        assert_eq!(health.alarms, Some(Vec::new()));
        assert_eq!(health.members[0].usage, Usage::default());
        let health = look(&[away(), away()]);
        assert_eq!((health.is_known(), health.alarms.clone(), health.silent().count()), (false, None, 2));
    }

    #[test]
    fn alarms_are_those_that_any_member_knows() {
        let full = MemberStatus { alarms: Alarms { no_space: true, corrupt: false }, ..status(5, None) };
        let health = look(&[Ok(status(5, None)), Ok(full), Ok(full)]);
        assert_eq!(health.alarms, Some(vec![Alarm::NoSpace]));
        let json = serde_json::to_value(&health).unwrap();
        assert_eq!(json["alarms"], serde_json::json!(["NOSPACE"]));
        assert_eq!(
            (json["in_use_bytes"].as_u64(), json["members"][1]["db_bytes"].as_u64()),
            (Some(5), Some(10))
        );
        assert_eq!(serde_json::from_value::<EtcdHealth>(json).unwrap(), health);
    }

    #[test]
    fn the_time_left_follows_from_the_rate() {
        let left = |in_use, quota, rate| usage(&status(in_use, quota), rate).time_left_seconds;
        assert_eq!(left(40, Some(100), Some(0.5)), Some(120));
        assert_eq!(left(140, Some(100), Some(0.5)), Some(0));
        for (quota, rate) in
            [(None, Some(0.5)), (Some(100), None), (Some(100), Some(0.0)), (Some(100), Some(-3.0))]
        {
            assert_eq!(left(40, quota, rate), None, "{quota:?} {rate:?}");
        }
        // Two looks, a minute apart.
        let mut record = HealthRecord::default();
        let mut at = |seconds, in_use| {
            let answers = vec![("e".to_owned(), Ok(status(in_use, Some(1000))))];
            let usage = record.take(Duration::from_secs(seconds), answers).fullest;
            (usage.growth_bytes_per_second, usage.time_left_seconds)
        };
        assert_eq!(at(0, 100), (None, None));
        assert_eq!(at(60, 400), (Some(5), Some(120)));
    }
}
