//! One round: all masters compute digests after the same record.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::progress::ProgressLine;
use crate::cli::admin::{AdminCallError, AdminOptions};
use crate::cli::status::Seen;
use crate::cluster::digests::{
    DigestRequest, DigestsAnswer, DigestsProgress, DigestsRefused, ItemRange, KindDigests, StateDigests,
};
use crate::cluster::role::Role;
use crate::master::admin_api::DigestAnswer;

/// Timeout of a request that is answered at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// Timeout of a request for digests, which a master answers within 20 s.
const DIGESTS_PATIENCE: Duration = Duration::from_secs(30);

/// The digests are computed from this log time on after the last known one, so that the request reaches all masters
/// before that record. A quiet primary writes a record each second, so the last known one may be a second old.
const LEAD: Duration = Duration::from_millis(2_000);

/// Pause before another attempt.
const PAUSE: Duration = Duration::from_secs(1);

/// Interval at which the progress is read, for a terminal.
const INTERVAL: Duration = Duration::from_millis(300);

const PATH: &str = "/api/v1/digest";

/// A member to ask.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) name: String,
    pub(super) role: Role,
    /// Address of its admin API, or why it is unknown.
    address: Result<String, String>,
}

impl Target {
    pub(super) fn new(seen: &Seen) -> Self {
        let address = Some(&seen.member.admin_address).filter(|address| !address.is_empty());
        let unknown =
            || seen.error.clone().unwrap_or_else(|| "it has not said where its admin API is".to_owned());
        let role = seen.status.as_ref().map_or(seen.member.role, |status| status.role);
        Self { name: seen.member.name.clone(), role, address: address.cloned().ok_or_else(unknown) }
    }
}

/// Why a member has no digests.
#[derive(Clone, Debug)]
pub(super) struct Missing {
    pub(super) why: String,
    /// Another attempt may succeed.
    passing: bool,
}

impl From<AdminCallError> for Missing {
    fn from(error: AdminCallError) -> Self {
        let passing =
            matches!(&error, AdminCallError::Refused { code, .. } if DigestsRefused::is_passing(code));
        Self { why: error.to_string(), passing }
    }
}

/// What the members answered, by their names.
#[derive(Clone, Debug, Default)]
pub(super) struct Answers {
    pub(super) digests: BTreeMap<String, StateDigests>,
    pub(super) missing: BTreeMap<String, Missing>,
}

impl Answers {
    /// Returns the record after which the digests were computed; `None` if it was not the same one on all masters.
    pub(super) fn position(&self) -> Option<(&str, u64)> {
        let mut positions = self.digests.values().map(|it| (it.log.as_str(), it.sequence_id));
        let first = positions.next()?;
        positions.all(|position| position == first).then_some(first)
    }

    /// Returns whether two masters or more can be compared.
    pub(super) fn is_comparable(&self) -> bool {
        self.digests.len() > 1 && self.position().is_some()
    }

    /// Returns what each member has of a kind.
    pub(super) fn views(&self, kind: &str) -> BTreeMap<&str, KindDigests> {
        let view = |digests: &StateDigests| digests.kinds.get(kind).cloned().unwrap_or_default();
        self.digests.iter().map(|(name, digests)| (name.as_str(), view(digests))).collect()
    }

    /// Returns whether another attempt may give more.
    fn is_passing(&self) -> bool {
        self.missing.values().any(|missing| missing.passing)
            || (!self.digests.is_empty() && self.position().is_none())
    }
}

/// Asks the members.
pub(super) struct Asker {
    access: AdminOptions,
    token: Option<String>,
    deadline: Instant,
    line: ProgressLine,
}

impl Asker {
    pub(super) fn new(access: AdminOptions, token: Option<String>, deadline: Instant) -> Self {
        Self { access, token, deadline, line: ProgressLine::new() }
    }

    /// Has all members compute digests after one record: of a range, or of everything. Tries again until the deadline
    /// if a member only cannot do it now.
    pub(super) async fn ask(&mut self, targets: &[Target], range: Option<ItemRange>) -> Answers {
        // A member that does not answer would make every attempt wait for it.
        let (mut targets, mut lost) = (targets.to_vec(), BTreeMap::new());
        loop {
            let mut answers = self.attempt(&targets, range.clone()).await;
            if !answers.is_passing() || Instant::now() + PAUSE + LEAD >= self.deadline {
                self.line.clear();
                answers.missing.append(&mut lost);
                return answers;
            }
            lost.extend(answers.missing.into_iter().filter(|(_, missing)| !missing.passing));
            targets.retain(|target| !lost.contains_key(&target.name));
            sleep(PAUSE).await;
        }
    }

    async fn attempt(&mut self, targets: &[Target], range: Option<ItemRange>) -> Answers {
        let mut answers = Answers::default();
        let mut members = BTreeMap::new();
        for target in targets {
            match &target.address {
                Ok(address) => _ = members.insert(target.name.clone(), address.clone()),
                Err(why) => {
                    let missing = Missing { why: why.clone(), passing: false };
                    answers.missing.insert(target.name.clone(), missing);
                }
            }
        }
        let asked = Instant::now();
        let latest = self.latest_log_time(&mut members, &mut answers).await;
        // One member may have answered at once and another one after seconds; log time runs on meanwhile.
        let ahead = u64::try_from((asked.elapsed() + LEAD).as_millis()).unwrap_or(u64::MAX);
        let request = DigestRequest { from_ms: latest.saturating_add(ahead), range };
        self.compute(&members, &request, &mut answers).await;
        answers
    }

    /// Returns the latest log time of all members, and drops those that do not answer.
    async fn latest_log_time(&self, members: &mut BTreeMap<String, String>, answers: &mut Answers) -> u64 {
        let mut latest = 0;
        for (name, answer) in self.digests_of(members).await {
            match answer {
                Ok(answer) => latest = latest.max(answer.log_time_ms),
                Err(error) => {
                    members.remove(&name);
                    answers.missing.insert(name, error.into());
                }
            }
        }
        latest
    }

    /// Reads the digest that each member keeps, and how far it is with those that were requested.
    async fn digests_of(
        &self,
        members: &BTreeMap<String, String>,
    ) -> Vec<(String, Result<DigestAnswer, AdminCallError>)> {
        let mut asking = JoinSet::new();
        for (name, address) in members.clone() {
            let access = self.access.clone();
            asking.spawn(async move { (name, access.get(&address, PATH, PATIENCE).await) });
        }
        asking.join_all().await
    }

    async fn compute(
        &mut self,
        members: &BTreeMap<String, String>,
        request: &DigestRequest,
        answers: &mut Answers,
    ) {
        let body = serde_json::to_string(request).unwrap_or_default();
        let mut asking = JoinSet::new();
        for (name, address) in members.clone() {
            let asked =
                compute(self.access.clone(), address, self.token.clone(), body.clone(), self.deadline);
            asking.spawn(async move { (name, asked.await) });
        }
        loop {
            tokio::select! {
                answered = asking.join_next() => match answered {
                    Some(Ok((name, Ok(digests)))) => _ = answers.digests.insert(name, digests),
                    Some(Ok((name, Err(missing)))) => _ = answers.missing.insert(name, missing),
                    Some(Err(_)) => {}
                    None => return,
                },
                () = sleep(INTERVAL), if self.line.is_shown() => {
                    let running = |(name, answer): (String, Result<DigestAnswer, _>)| {
                        Some((name, answer.ok()?.computing?))
                    };
                    let all: Vec<(String, DigestsProgress)> =
                        self.digests_of(members).await.into_iter().filter_map(running).collect();
                    self.line.show(&all, members.len());
                }
            }
        }
    }
}

/// Has one member compute digests, and waits for them.
async fn compute(
    access: AdminOptions,
    address: String,
    token: Option<String>,
    body: String,
    deadline: Instant,
) -> Result<StateDigests, Missing> {
    loop {
        let answer: DigestsAnswer =
            access.post(&address, PATH, token.as_deref(), body.clone(), DIGESTS_PATIENCE).await?;
        if let Some(digests) = answer.digests {
            return Ok(digests);
        }
        if Instant::now() >= deadline {
            let why = match answer.progress.unwrap_or_default() {
                DigestsProgress { begun: true, objects, of, .. } => {
                    format!("it had read {objects} of {of} objects when the time was up")
                }
                _ => "it was still waiting for a digest of the primary when the time was up".to_owned(),
            };
            return Err(Missing { why, passing: false });
        }
        // A master answers after 20 s; one that answers at once must not be asked without pause.
        sleep(INTERVAL).await;
    }
}
