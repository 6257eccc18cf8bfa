//! Following the log: read to its end, then watch it grow. Whatever goes wrong with the watch, the log is read again
//! from where this node is.

use std::time::Duration;

use super::{CallId, Node, Purpose, WatchId};
use crate::coordination::types::{
    Change, Failure, Get, KeyRange, Request, Response, WatchEvent, WatchRequest,
};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};
use crate::replication::batch::Latest;
use crate::replication::follower::{Offered, Position};
use crate::replication::time::Monotonic;

/// Batches in one page: four MiB at most.
const PAGE: u64 = 16;

/// A primary writes every second. A watch that is silent for longer is not to be trusted.
const SILENCE: Duration = Duration::from_secs(3);

/// How soon a read that failed is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// Where this node is in the log, and how it gets on.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// Where it is.
    pub position: Position,
    stage: Stage,
    /// Why it cannot get on, for people.
    pub trouble: Option<String>,
    /// Why this node must not lead although it follows, for people: its state is not what the primary says, and comes
    /// out the same when it is built anew.
    pub doubt: Option<String>,
    /// The state was thrown away because it could not be vouched for: so often.
    pub rebuilds: u32,
    /// It was thrown away because of a doubt before.
    doubted: bool,
    /// When a batch was last told of, or read where there had been none before.
    pub batch_at: Option<Monotonic>,
}

#[derive(Debug, Default)]
enum Stage {
    /// Nothing is under way.
    #[default]
    Idle,
    /// Not before then.
    Waiting(Monotonic),
    /// The end of the log is being read.
    End(CallId),
    /// Pages are being read, all as of one revision.
    Pages { call: CallId, revision: u64, end: Option<Latest> },
    /// The end was reached; what is written is told.
    Live { watch: WatchId, heard: Monotonic },
}

impl Following {
    /// Goes on from another position.
    pub(super) fn reset(&mut self, position: Position) {
        self.position = position;
        self.stage = Stage::Idle;
        self.trouble = None;
    }

    /// Whether the end of the log was reached and its growth is told.
    pub(super) fn is_live(&self) -> bool {
        matches!(self.stage, Stage::Live { .. })
    }

    /// Whether this node could lead.
    pub(super) fn is_caught_up(&self) -> bool {
        self.is_live() && self.doubt.is_none()
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
            Stage::Waiting(until) if now >= until => self.read_log(),
            // Without a primary nobody writes, and looking again costs little.
            Stage::Live { heard, .. } if now.since(heard) > SILENCE => self.read_log(),
            Stage::Waiting(_) | Stage::Live { .. } | Stage::End(_) | Stage::Pages { .. } => {}
        }
    }

    /// Stops following.
    pub(super) fn unfollow(&mut self) {
        let watch = self.following.watch();
        self.unwatch(watch);
        self.following.stage = Stage::Idle;
    }

    /// Reads the log from where this node is.
    pub(super) fn read_log(&mut self) {
        self.unfollow();
        let request = Request::Get(Get::all(KeyRange::key(self.settings.keys.latest())));
        self.following.stage = Stage::End(self.call(Purpose::LogEnd, request));
    }

    fn read_page(&mut self, revision: u64, end: Option<Latest>) {
        let from = crate::engine::types::SequenceId(self.following.position.applied.0 + 1);
        let get =
            Get { range: self.settings.keys.batches_from(from), revision, limit: PAGE, keys_only: false };
        let call = self.call(Purpose::LogPage, Request::Get(get));
        self.following.stage = Stage::Pages { call, revision, end };
    }

    pub(super) fn log_end_read(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        if !matches!(self.following.stage, Stage::End(asked) if asked == call) {
            return;
        }
        let Ok(Response::Got { revision, page }) = result else {
            self.following.stage = Stage::Waiting(now.plus(RETRY));
            return;
        };
        let end = match page.entries.first().map(|entry| Latest::from_bytes(&entry.value)) {
            None => None,
            Some(Ok(end)) => Some(end),
            Some(Err(error)) => {
                self.stuck(now, format!("cannot read where the log ends: {error}"));
                return;
            }
        };
        let applied = self.following.position.applied;
        if end.as_ref().map_or(0, |end| end.last.0) < applied.0 {
            let last = end.map_or(0, |end| end.last.0);
            self.stuck(
                now,
                format!("the log ends at {last}, but {} was applied: another history", applied.0),
            );
            return;
        }
        self.read_page(revision, end);
    }

    pub(super) fn log_page_read(&mut self, now: Monotonic, call: CallId, result: Result<Response, Failure>) {
        let Stage::Pages { call: asked, revision, end } = &self.following.stage else { return };
        if *asked != call {
            return;
        }
        let (revision, end) = (*revision, *end);
        let page = match result {
            Ok(Response::Got { page, .. }) => page,
            // The revision that the pages were pinned to is gone: from the start, at a newer one.
            Err(Failure::Compacted { .. }) => return self.read_log(),
            Ok(_) | Err(_) => {
                self.following.stage = Stage::Waiting(now.plus(RETRY));
                return;
            }
        };
        if !page.entries.is_empty() {
            self.following.batch_at = Some(now);
        }
        for entry in &page.entries {
            match self.following.position.offer(&entry.value, &self.replica) {
                Offered::Applied | Offered::Known => {}
                Offered::Gap => {
                    let applied = self.following.position.applied.0;
                    return self.stuck(now, format!("the log has a gap after {applied}"));
                }
                Offered::Damaged(reason) | Offered::Foreign(reason) => return self.stuck(now, reason),
            }
        }
        if self.doubts() {
            return;
        }
        if page.more {
            return self.read_page(revision, end);
        }
        let last = end.map_or(0, |end| end.last.0);
        if self.following.position.applied.0 != last {
            let applied = self.following.position.applied.0;
            return self.stuck(now, format!("the log ends at {last}, but its batches at {applied}"));
        }
        self.following.trouble = None;
        #[cfg(feature = "planted")]
        let revision = revision + u64::from(planted::active(Bug::WatchLate));
        let request = WatchRequest {
            range: self.settings.keys.batches(),
            from_revision: revision + 1,
            deletions: false,
        };
        let watch = self.watch(request);
        self.following.stage = Stage::Live { watch, heard: now };
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
                    match self.following.position.offer(&entry.value, &self.replica) {
                        Offered::Applied | Offered::Known => {}
                        Offered::Gap => return self.read_log(),
                        Offered::Damaged(reason) | Offered::Foreign(reason) => {
                            return self.stuck(now, reason);
                        }
                    }
                }
            }
            WatchEvent::Progress { .. } => {
                if let Stage::Live { heard, .. } = &mut self.following.stage {
                    *heard = now;
                }
            }
            WatchEvent::Compacted { .. } | WatchEvent::Broken(_) => self.read_log(),
        }
    }

    /// Whether the state was found not to be what the log says, and is being built anew. The log is the truth, so it is
    /// built anew once; if it comes out the same, the primary is wrong, and this node must not hide that by leading.
    fn doubts(&mut self) -> bool {
        let doubts = self.replica.engine.doubts();
        let reason = match (doubts.digest_mismatch, doubts.broken_chain) {
            (Some(id), _) => format!("the digest of record {} does not match", id.0),
            (None, Some(broken)) => format!("record {} does not follow the last one", broken.record.0),
            (None, None) => return false,
        };
        if self.following.doubted {
            if self.following.doubt.is_none() {
                tracing::error!(%reason, "the state differs from the primary's although it was built anew");
                self.following.doubt = Some(reason);
            }
            return false;
        }
        tracing::error!(%reason, "the state is not what the log says, building it anew");
        self.start_over();
        self.following.doubted = true;
        self.read_log();
        true
    }

    /// This node can neither follow nor stand. What it cannot read it does not skip; it looks again now and then.
    fn stuck(&mut self, now: Monotonic, reason: String) {
        if self.following.trouble.as_ref() != Some(&reason) {
            tracing::error!(%reason, "cannot follow the log");
        }
        self.unfollow();
        self.following.trouble = Some(reason);
        self.following.stage = Stage::Waiting(now.plus(Duration::from_secs(1)));
    }
}
