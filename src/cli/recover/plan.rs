//! What a choice keeps and loses, found by replaying what is left of the log.

use std::collections::HashMap;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::RecoverError;
use super::survey::Survey;
use crate::cli::oplog::pages::{Pages, PagesError};
use crate::cluster::log_end::{Latest, LogId};
use crate::cluster::recovered::superseded;
use crate::coordination::etcd::Etcd;
use crate::engine::record::ObjectRef;
use crate::engine::types::{LogTime, ObjectId, SequenceId};
use crate::replication::recovery::{Contents, Replay};

/// What is kept, on the command line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Choice<'a> {
    /// The file of a snapshot.
    pub snapshot: Option<&'a Path>,
    /// The last record of the log that is kept; the snapshot's if it is not given.
    pub last: Option<SequenceId>,
}

/// A recovery that can be carried out.
#[derive(Debug)]
pub(super) struct Plan {
    pub kept: Contents,
    /// The snapshot's batch, which the new log follows; `None` if it begins at record 1.
    pub base: Option<Latest>,
    /// Objects of this state that are removed, because records that are dropped have changed them.
    pub removed: Vec<ObjectRef>,
    pub lost: Lost,
    pub supersedes: Vec<LogId>,
    pub no_starts_before: LogTime,
}

/// What is dropped.
#[derive(Debug, Default)]
pub(super) struct Lost {
    /// The state at the end of the log, if it could be read so far.
    pub end: Option<Contents>,
    /// Objects in that state that are not kept.
    pub objects: u64,
    /// Why it is not known what dropped records have changed.
    pub unknown: Option<String>,
}

/// A replay, and what was found where the kept part ends.
struct Reading {
    replay: Replay,
    keep: SequenceId,
    kept: Option<(Contents, HashMap<ObjectId, SequenceId>)>,
}

impl Reading {
    /// Notes the state once the kept part is complete.
    fn note(&mut self) {
        if self.kept.is_none() && self.replay.contents().last == self.keep {
            self.kept = Some((self.replay.contents(), self.replay.objects()));
        }
    }

    /// Reads one more batch. The error is why it cannot be read.
    fn batch(&mut self, bytes: &[u8]) -> Result<(), String> {
        let batch = self.replay.open(bytes).map_err(|error| error.to_string())?;
        if self.kept.is_none() && batch.header.last >= self.keep {
            self.replay.apply(&batch, self.keep);
            self.kept = Some((self.replay.contents(), self.replay.objects()));
        }
        self.replay.apply(&batch, SequenceId(u64::MAX));
        Ok(())
    }
}

impl Plan {
    pub(super) async fn make(
        etcd: &Etcd,
        survey: &Survey,
        choice: Choice<'_>,
        also_superseded: &[LogId],
        release_timeout: Duration,
    ) -> Result<Self, RecoverError> {
        let (base, replay) = match choice.snapshot {
            Some(path) => {
                let (header, replay) = Replay::from_snapshot(path)?;
                (Some(header.at), replay)
            }
            None => (None, Replay::default()),
        };
        let keep = choice.last.unwrap_or(replay.last());
        if keep < replay.last() {
            return Err(RecoverError::BeforeSnapshot { keep: keep.0, last: replay.last().0 });
        }
        let mut reading = Reading { replay, keep, kept: None };
        reading.note();
        let unknown = read_log(etcd, survey, base.as_ref(), &mut reading).await?;
        let Reading { replay, kept, .. } = reading;
        let Some((kept, objects)) = kept else {
            let end = replay.last().0;
            let why = unknown.unwrap_or_else(|| "the log ends there".to_owned());
            return Err(RecoverError::CannotReach { keep: keep.0, end, why });
        };
        let before = objects.len() as u64;
        let removed = replay.changed_since(objects);
        let end = replay.contents();
        let still_there = before.saturating_sub(removed.len() as u64);
        let lost = Lost {
            objects: (end.objects + end.writing).saturating_sub(still_there),
            end: survey.end.is_some().then_some(end),
            unknown: unknown.or_else(|| known_beyond(survey, base.as_ref(), end.last)),
        };
        let logs = survey.end.map(|end| end.log).into_iter().chain(base.map(|base| base.log));
        let logs = logs.chain(survey.histories().map(|(_, known)| known.log));
        let logs = logs.chain(also_superseded.iter().copied());
        let logs = logs.chain(survey.before.iter().map(|before| before.log));
        // Log time goes on from the last record that is kept, and an empty log begins with the wall clock.
        let from = if kept.log_time == LogTime(0) { wall_clock() } else { kept.log_time };
        let timeout = u64::try_from(release_timeout.as_millis()).unwrap_or(u64::MAX);
        Ok(Self {
            kept: Contents { log_time: from, ..kept },
            base,
            removed,
            lost,
            supersedes: superseded(logs, survey.before.as_ref()),
            no_starts_before: from.plus(timeout),
        })
    }
}

/// Replays the log after the state that was begun with. Returns why not all of it could be.
async fn read_log(
    etcd: &Etcd,
    survey: &Survey,
    base: Option<&Latest>,
    reading: &mut Reading,
) -> Result<Option<String>, RecoverError> {
    let from = reading.replay.last();
    let (Some(end), Some(first)) = (survey.end, survey.first) else {
        return Ok(Some("there is no log in etcd that can be read".to_owned()));
    };
    if let Some(base) = base.filter(|base| base.log != end.log) {
        return Ok(Some(format!("etcd has log {}, and the snapshot is of log {}", end.log, base.log)));
    }
    if first.0 > from.0.saturating_add(1) {
        return Ok(Some(format!("the log in etcd begins at record {}", first.0)));
    }
    if end.last < from {
        return Ok(Some(format!("the log in etcd ends at record {}, before the snapshot", end.last.0)));
    }
    let opened = Pages::open(etcd, &survey.keys, SequenceId(from.0.saturating_add(1))).await;
    let opened = opened.map_err(|error| match error {
        PagesError::Etcd(failure) => RecoverError::Etcd(failure),
        PagesError::End(error) => RecoverError::Changed(error.to_string()),
    })?;
    let Some(mut pages) = opened.filter(|pages| pages.end() == end) else {
        return Err(RecoverError::Changed("the end of the log is another one".to_owned()));
    };
    while let Some(page) = pages.next().await? {
        for entry in &page {
            if let Err(why) = reading.batch(&entry.value) {
                let last = reading.replay.last().0;
                return Ok(Some(format!("the log cannot be read beyond record {last}: {why}")));
            }
        }
    }
    let last = reading.replay.last();
    let short = || format!("the log should end at record {}, but its batches end at {}", end.last.0, last.0);
    Ok((last != end.last).then(short))
}

/// Returns which member knows records beyond the end of what could be read.
fn known_beyond(survey: &Survey, base: Option<&Latest>, last: SequenceId) -> Option<String> {
    let log = base.map(|base| base.log).or(survey.end.map(|end| end.log))?;
    let mut beyond = survey.histories().filter(|(_, known)| known.log == log && known.last > last);
    let (name, known) = beyond.next()?;
    Some(format!("{name} knows records up to {} of this log, which are not in etcd", known.last.0))
}

fn wall_clock() -> LogTime {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    LogTime(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
