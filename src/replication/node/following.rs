//! Following the log: read to its end, then watch it grow. Whatever fails with the watch, the log is read again from
//! where this node is.

use std::time::Duration;

use bytes::Bytes;

use super::end_of_log::LogEnd;
use super::heard::{Heard, PrimaryWord};
use super::trust::Trust;
use super::{CallId, Node, Purpose, WatchId};
use crate::cluster::log_end::{History, Latest};
use crate::cluster::log_floor::LogFloor;
use crate::cluster::member::BootId;
use crate::cluster::recovered::Recovered;
use crate::cluster::view::Leader;
use crate::coordination::types::{Change, Failure, Get, Request, Response, WatchEvent, WatchRequest};
use crate::engine::types::SequenceId;
use crate::replication::batch::{self, Batch};
use crate::replication::formats::{self, LogFormat};
use crate::replication::log_position::{Offered, Position};
use crate::replication::time::Monotonic;

/// Batches in the first page: 4 MiB at most.
const PAGE: u64 = 16;

/// Upper bound of batches in a page: an idle primary's batches have some hundred bytes each, and there are 86,400 of
/// them a day. With the largest batches such a page just fits into the largest answer that is accepted from etcd.
const MAX_PAGE: u64 = 240;

/// Pages with fewer bytes grow.
const SMALL_PAGE_BYTES: usize = 256 << 10;

/// Pages with more bytes shrink to [`PAGE`].
const LARGE_PAGE_BYTES: usize = 4 << 20;

/// A primary writes every second. A watch that is silent for longer than this is not trusted.
const SILENCE: Duration = Duration::from_secs(3);

/// Delay before a read that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How long a standby waits until etcd has its need before it reads the log all the same: a store that takes no writes
/// can still be read.
const TOLD_WITHIN: Duration = Duration::from_secs(1);

/// A watch that breaks sooner after its start is not restarted at once.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// The position of this node in the log, and how it follows.
#[derive(Debug, Default)]
pub(super) struct Following {
    pub position: Position,
    stage: Stage,
    /// Why it cannot continue, for people.
    pub trouble: Option<String>,
    /// Whether the state can be trusted to be what the log says.
    pub trust: Trust,
    /// The newest end of the log that this node has heard of.
    pub heard: Heard,
    /// How often the state was discarded because it could not be vouched for.
    pub rebuilds: u32,
    /// When batches last arrived, by the watch or in a page.
    pub batch_at: Option<Monotonic>,
    /// The value of the format key, as it was last read.
    pub format: Option<Bytes>,
    /// The recovery that has begun the log, as it was last read.
    pub recovered: Option<Recovered>,
    /// The floor of the log, as it was last read.
    pub floor: Option<LogFloor>,
    /// The first record that the log still has, if this node has not everything before it.
    pub begins_at: Option<SequenceId>,
    page: Page,
    /// The read of the log's end while the node is live, and when it was sent.
    end_call: Option<(CallId, Monotonic)>,
}

/// How many batches the next page has.
#[derive(Debug)]
struct Page(u64);

impl Default for Page {
    fn default() -> Self {
        Self(PAGE)
    }
}

impl Page {
    /// Adapts the size to a page of so many bytes: a batch may have a few hundred bytes or all that fits.
    fn adapt(&mut self, bytes: usize) {
        if bytes > LARGE_PAGE_BYTES {
            self.0 = PAGE;
        } else if bytes < SMALL_PAGE_BYTES {
            self.0 = (self.0 * 2).min(MAX_PAGE);
        }
    }
}

#[derive(Debug, Default)]
enum Stage {
    /// No read or watch is under way.
    #[default]
    Idle,
    /// Earliest time of the next attempt.
    Waiting(Monotonic),
    /// The log is read as soon as etcd has what this node needs of it; since when that has been so.
    Telling(Option<Monotonic>),
    /// The end of the log is being read.
    End(CallId),
    /// Pages are being read, all as of one revision. `is_last` says that this one goes to the end of the log.
    Pages { call: CallId, revision: u64, end: Option<Latest>, is_last: bool },
    /// A snapshot is being read, to continue from.
    Restoring,
    /// The end was reached, and a watch delivers new batches.
    Live { watch: WatchId, since: Monotonic, heard: Monotonic },
}

impl Following {
    /// Returns the position of a node that starts from a snapshot.
    pub(super) fn from_snapshot(at: &Latest) -> Self {
        let trust = Trust::from_snapshot(at.last);
        Self { position: Position::after(at), trust, ..Self::default() }
    }

    /// Continues from the state of a snapshot that was taken after this batch.
    pub(super) fn continue_from(&mut self, at: &Latest) {
        self.reset(Position::after(at));
        self.trust.begin_from_snapshot(at.last);
    }

    /// Returns whether a snapshot is being read.
    pub(super) fn is_restoring(&self) -> bool {
        matches!(self.stage, Stage::Restoring)
    }

    /// Continues from another position, and forgets what was heard of the log's end.
    pub(super) fn reset(&mut self, position: Position) {
        self.position = position;
        self.stage = Stage::Idle;
        self.trouble = None;
        self.begins_at = None;
        self.heard.forget();
    }

    /// Returns whether the end of the log was reached and a watch delivers new batches.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live { .. })
    }

    /// Returns whether this node may stand for election. The election's own transaction checks that it has the whole
    /// log, so no report from a primary is needed.
    pub(super) fn is_candidate(&self) -> bool {
        self.is_live() && self.trust.doubt().is_none() && !self.trust.is_unconfirmed()
    }

    /// Returns whether this node has applied an end of the log that it heard lately, and could take over at once.
    pub(super) fn is_caught_up(&self, now: Monotonic) -> bool {
        self.is_candidate() && self.heard.is_caught_up(now)
    }

    pub(super) fn watch(&self) -> Option<WatchId> {
        match self.stage {
            Stage::Live { watch, .. } => Some(watch),
            _ => None,
        }
    }
}

impl Node {
    pub(super) fn follow(&mut self, now: Monotonic) {
        match self.following.stage {
            Stage::Idle => self.read_log(),
            Stage::Telling(since) => self.read_when_told(now, since),
            Stage::Waiting(until) if now >= until => self.read_log(),
            // Without a primary the watch is silent, too, but reading again costs little.
            Stage::Live { heard, .. } if now.since(heard) > SILENCE => self.read_log(),
            Stage::Live { .. } => self.listen(now),
            Stage::Restoring => self.restore_overdue(now),
            Stage::Waiting(_) | Stage::End(_) | Stage::Pages { .. } => {}
        }
        self.rebuild(now);
    }

    /// Reads the end of the log if the primary has not reported it lately.
    fn listen(&mut self, now: Monotonic) {
        self.following.heard.applied(self.following.position.applied);
        if self.following.end_call.is_none() && self.following.heard.is_due(now) {
            let request = self.end_request();
            self.following.end_call = Some((self.call(Purpose::HeardEnd, request), now));
        }
    }

    pub(super) fn heard_end_read(&mut self, call: CallId, result: Result<Response, Failure>) {
        let Some((_, asked_at)) = self.following.end_call.take_if(|(asked, _)| *asked == call) else {
            return;
        };
        let Ok(Response::Txn { results, .. }) = result else { return };
        let Ok(LogEnd { end, floor, .. }) = LogEnd::of(&results) else { return self.read_log() };
        self.following.floor = floor;
        // An end that does not fit the history is examined by a full read.
        if self.misfit(end.as_ref()).is_some() {
            return self.read_log();
        }
        // It is as old as the request: the answer may have been delayed.
        self.following.heard.read(asked_at, end.as_ref());
    }

    /// Handles the durable prefix that the primary reported over the peer connection.
    pub(super) fn primary_told(&mut self, now: Monotonic, boot_id: BootId, word: PrimaryWord) {
        let leads = |leader: &Leader| leader.value.boot_id == boot_id && leader.term == word.term;
        if self.seen_keys.leader().is_some_and(leads) {
            self.following.heard.told(now, &word);
        }
    }

    /// Stops following the log, and ends the watch.
    pub(super) fn unfollow(&mut self) {
        let watch = self.following.watch();
        self.unwatch(watch);
        self.following.stage = Stage::Idle;
    }

    /// Reads the log from the position of this node, once etcd has what this node needs of it: a primary that deletes
    /// batches writes the floor first and reads the needs then, so it has seen this need, or this node sees that floor.
    pub(super) fn read_log(&mut self) {
        self.unfollow();
        if self.need_is_told() {
            self.read_end();
        } else {
            self.following.stage = Stage::Telling(None);
        }
    }

    fn read_when_told(&mut self, now: Monotonic, since: Option<Monotonic>) {
        let since = since.unwrap_or(now);
        if self.need_is_told() || now.since(since) >= TOLD_WITHIN {
            self.read_end();
        } else {
            self.following.stage = Stage::Telling(Some(since));
        }
    }

    fn read_end(&mut self) {
        let request = self.end_request();
        self.following.stage = Stage::End(self.call(Purpose::LogEnd, request));
    }

    fn read_page(&mut self, revision: u64, end: Option<Latest>) {
        let from = SequenceId(self.following.position.applied.0 + 1);
        let (range, next) = match end {
            Some(end) => self.settings.keys.page_of_batches(end.log, from, end.last),
            None => (self.settings.keys.batches(), None),
        };
        let get = Get { range, revision, limit: self.following.page.0, keys_only: false };
        let call = self.call(Purpose::LogPage, Request::Get(get));
        self.following.stage = Stage::Pages { call, revision, end, is_last: next.is_none() };
    }

    /// Reads the first batch that the log still has after the position of this node. A page of its own, because etcd
    /// counts all keys of the range.
    fn read_first_left(&mut self, revision: u64, end: Option<Latest>) {
        let from = SequenceId(self.following.position.applied.0 + 1);
        let range = match end {
            Some(end) => self.settings.keys.page_of_batches(end.log, from, from).0,
            None => self.settings.keys.batches(),
        };
        let get = Get { range, revision, limit: 1, keys_only: false };
        let call = self.call(Purpose::LogPage, Request::Get(get));
        self.following.stage = Stage::Pages { call, revision, end, is_last: true };
    }

    /// Returns why a log with this end is not the one that this master knows; `None` if it fits.
    pub(super) fn misfit(&self, end: Option<&Latest>) -> Option<String> {
        self.history.and_then(|history| history.misfit(end))
    }

    pub(super) fn log_end_read(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        if !matches!(self.following.stage, Stage::End(asked) if asked == call) {
            return;
        }
        let Ok(Response::Txn { revision, results, .. }) = result else {
            self.following.stage = Stage::Waiting(now.plus(RETRY));
            return;
        };
        let LogEnd { end, format, floor, recovered } = match LogEnd::of(&results) {
            Ok(read) => read,
            Err(reason) => return self.stuck(now, reason),
        };
        let following = &mut self.following;
        (following.format, following.floor, following.recovered) = (format, floor, recovered);
        if self.leave_superseded_log(end.as_ref()) {
            // What it needs of the new log is not told yet.
            return self.read_log();
        }
        if let Some(reason) = self.misfit(end.as_ref()) {
            return self.stuck(now, reason);
        }
        self.following.heard.read(now, end.as_ref());
        if let Some(end) = end
            && self.search_snapshot_first(now, end.log)
        {
            self.following.stage = Stage::Restoring;
            return;
        }
        self.read_page(revision, end);
    }

    pub(super) fn log_page_read(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let Stage::Pages { call: asked, revision, end, is_last } = self.following.stage else { return };
        if asked != call {
            return;
        }
        let page = match result {
            Ok(Response::Got { page, .. }) => page,
            // The revision of these pages was compacted: start again at a newer one.
            Err(Failure::Compacted { .. }) => return self.read_log(),
            Ok(_) | Err(_) => {
                // The page may have been too large to arrive before the timeout.
                self.following.page = Page::default();
                self.following.stage = Stage::Waiting(now.plus(RETRY));
                return;
            }
        };
        if !page.entries.is_empty() {
            self.following.batch_at = Some(now);
        }
        self.following.page.adapt(page.entries.iter().map(|entry| entry.value.len()).sum());
        for entry in &page.entries {
            if end.is_none() {
                return self.stuck(now, "there are batches, but no key says where the log ends".to_owned());
            }
            if !self.offer(now, &entry.value) {
                return;
            }
        }
        if page.entries.is_empty() && !is_last {
            // A batch begins where the one before it ends, so the first one of this page is missing.
            return self.read_first_left(revision, end);
        }
        if page.more || !is_last {
            return self.read_page(revision, end);
        }
        let last = end.map_or(0, |end| end.last.0);
        if self.following.position.applied.0 != last {
            let applied = self.following.position.applied.0;
            return self.stuck(now, format!("the log ends at {last}, but its batches at {applied}"));
        }
        self.following.trouble = None;
        self.following.trust.reached_end(now, self.following.position.term);
        if self.following.trust.is_unconfirmed() {
            self.distrust("no digest in the log confirms the snapshot that it comes from".to_owned());
        }
        let revision = revision + u64::from(planted!(WatchLate));
        let request = WatchRequest {
            range: self.settings.keys.batches(),
            from_revision: revision + 1,
            deletions: false,
        };
        let watch = self.watch(request);
        self.following.stage = Stage::Live { watch, since: now, heard: now };
        self.listen(now);
    }

    /// Applies a batch from a page or a watch. Returns false if following cannot continue from here.
    fn offer(&mut self, now: Monotonic, bytes: &[u8]) -> bool {
        let before = self.following.position.applied;
        match self.following.position.offer(bytes, &self.incarnation) {
            Offered::Known => return true,
            Offered::Applied => {}
            // A batch of another log: a recovery is writing it, or the log was replaced. The end of the log shows which.
            Offered::Gap | Offered::OtherLog(_) if self.following.is_live() => {
                self.read_log();
                return false;
            }
            Offered::Gap => {
                self.log_begins_later(now, bytes);
                return false;
            }
            Offered::Damaged(reason) | Offered::Foreign(reason) | Offered::OtherLog(reason) => {
                self.stuck(now, reason);
                return false;
            }
            Offered::Diverged(reason) => {
                self.distrust(reason);
                return false;
            }
        }
        self.following.begins_at = None;
        let position = self.following.position;
        if let Some(history) = self.history.filter(|history| history.is_missed(before, &position)) {
            let last = history.0.last.0;
            // What was applied is not what this master has seen before: it must not be continued.
            self.start_over();
            self.stuck(
                now,
                format!(
                    "the log has another batch at record {last} than the one that this master applied before: the log \
                     was deleted, replaced or restored"
                ),
            );
            return false;
        }
        self.history = History::newer(self.history, History::at(&position));
        self.note_format(bytes);
        self.check_trust();
        let matched = self.incarnation.engine.digest_matched();
        if matched > before {
            self.digest_of_another_matched(matched);
        }
        true
    }

    /// Continues from a snapshot, because batches before this one are missing: they were deleted, or the log has a gap.
    /// A snapshot has been confirmed by a digest after it, so it does not matter which.
    fn log_begins_later(&mut self, now: Monotonic, batch: &[u8]) {
        let Ok(batch) = Batch::open(batch) else { return self.read_log() };
        let (log, first) = (batch.header.log, batch.header.first);
        self.following.begins_at = Some(first);
        if self.restore(now, log, first) {
            self.following.stage = Stage::Restoring;
        } else {
            self.stuck_without_snapshot(now, first);
        }
    }

    /// Records that the log was raised to the format of this batch, whose transaction has written the key, too. An
    /// election that compares with the old value would fail.
    fn note_format(&mut self, batch: &[u8]) {
        let key = LogFormat::of_key(self.following.format.as_deref());
        if let (Ok(LogFormat::Older(known)), Some(format)) = (key, batch::format_of(batch))
            && format > known
        {
            self.following.format = Some(formats::key_value(format));
        }
    }

    pub(super) fn log_changed(&mut self, now: Monotonic, event: WatchEvent) {
        match event {
            WatchEvent::Changes { changes, .. } => {
                self.following.batch_at = Some(now);
                if let Stage::Live { heard, .. } = &mut self.following.stage {
                    *heard = now;
                }
                for change in changes {
                    let Change::Put(entry) = change else { continue };
                    if !self.offer(now, &entry.value) {
                        return;
                    }
                }
                self.following.heard.applied(self.following.position.applied);
            }
            WatchEvent::Progress { .. } => {
                if let Stage::Live { heard, .. } = &mut self.following.stage {
                    *heard = now;
                }
            }
            WatchEvent::Compacted { .. } | WatchEvent::Broken(_) => {
                let short = matches!(self.following.stage, Stage::Live { since, .. } if now.since(since) < SHORT_WATCH);
                if short {
                    // A watch that etcd refuses must not cause a loop of reads.
                    self.unfollow();
                    self.following.stage = Stage::Waiting(now.plus(RETRY));
                } else {
                    self.read_log();
                }
            }
        }
    }

    /// Records that this node can neither follow nor stand. It does not skip what it cannot read, and tries again each
    /// second.
    pub(super) fn stuck(&mut self, now: Monotonic, reason: String) {
        if self.following.trouble.as_ref() != Some(&reason) {
            tracing::error!(%reason, "cannot follow the log");
        }
        self.unfollow();
        self.following.trouble = Some(reason);
        self.following.stage = Stage::Waiting(now.plus(Duration::from_secs(1)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_grow_while_batches_are_small_and_shrink_at_once() {
        let mut page = Page::default();
        for _ in 0..10 {
            page.adapt(1000);
        }
        assert_eq!(page.0, MAX_PAGE);
        page.adapt(LARGE_PAGE_BYTES);
        assert_eq!(page.0, MAX_PAGE);
        page.adapt(LARGE_PAGE_BYTES + 1);
        assert_eq!(page.0, PAGE);
    }
}
