//! Replies that wait until what they depend on is durable.

use super::service::{BoxFuture, GiveUp, Service};
use crate::wire::frame;
use std::task::{Context, Poll};
use std::time::Instant;

/// The parked replies of one connection: whole frames, back to back, in the order in which they were made.
#[derive(Default)]
pub(super) struct Parked {
    frames: Vec<u8>,
    entries: Vec<Entry>,
    /// The id that is waited for, always the lowest one.
    wait: Option<(u64, BoxFuture<()>)>,
    /// Whether the log was seen to take no writes since the last reply was parked.
    refused: bool,
}

/// One of them.
#[derive(Clone, Copy)]
struct Entry {
    depends_on: u64,
    /// Bytes of its frame.
    length: usize,
    /// The call that it answers.
    sequence: u32,
    /// Since when it waits for a log that takes no writes.
    refused_since: Option<Instant>,
}

impl Parked {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Keeps a frame until `depends_on` is durable.
    pub(super) fn push(&mut self, depends_on: u64, sequence: u32, frame: &[u8]) {
        self.keep(Entry { depends_on, length: frame.len(), sequence, refused_since: None }, frame);
    }

    fn keep(&mut self, entry: Entry, frame: &[u8]) {
        self.frames.extend_from_slice(frame);
        self.entries.push(entry);
    }

    /// Moves every frame whose dependency is durable to `out`; the order of those that stay is kept. While frames
    /// stay, the task is woken when the durable prefix moves. Of a log that takes no writes they are given up after a
    /// while: what became of the call is unknown (R5).
    pub(super) fn release<S: Service>(&mut self, service: &S, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while let Some(lowest) = self.entries.iter().map(|entry| entry.depends_on).min() {
            let durable = service.durable();
            if lowest <= durable {
                self.move_up_to(durable, out);
                continue;
            }
            match service.gives_up() {
                Some(give_up) if self.give_up(give_up, Instant::now(), out) => continue,
                None if self.refused => self.take_heart(),
                _ => {}
            }
            if self.wait.as_ref().is_some_and(|wait| wait.0 != lowest) {
                self.wait = None;
            }
            let (_, wait) = self.wait.get_or_insert_with(|| (lowest, service.wait_durable(lowest)));
            match wait.as_mut().poll(cx) {
                Poll::Pending => return,
                Poll::Ready(()) => self.wait = None,
            }
        }
    }

    fn move_up_to(&mut self, durable: u64, out: &mut Vec<u8>) {
        self.sift(|entry, frame| {
            let ready = entry.depends_on <= durable;
            if ready {
                out.extend_from_slice(frame);
            }
            ready
        });
    }

    /// Answers those with an error that have waited long enough; false if there are none.
    fn give_up(&mut self, give_up: GiveUp, now: Instant, out: &mut Vec<u8>) -> bool {
        let before = self.entries.len();
        self.refused = true;
        self.entries.iter_mut().for_each(|entry| _ = entry.refused_since.get_or_insert(now));
        let is_over = |since: Instant| now.duration_since(since) >= give_up.after;
        if self.entries.iter().any(|entry| entry.refused_since.is_some_and(is_over)) {
            self.sift(|entry, _| {
                let over = entry.refused_since.is_some_and(is_over);
                if over {
                    frame::append_error(out, entry.sequence, give_up.failure.code, give_up.failure.message);
                }
                over
            });
        }
        self.entries.len() < before
    }

    /// The log takes writes again.
    fn take_heart(&mut self) {
        self.refused = false;
        self.entries.iter_mut().for_each(|entry| entry.refused_since = None);
    }

    /// Keeps the frames that `take` does not take.
    fn sift(&mut self, mut take: impl FnMut(&Entry, &[u8]) -> bool) {
        let mut kept = Self { refused: self.refused, ..Self::default() };
        let mut start = 0;
        for entry in &self.entries {
            let frame = &self.frames[start..start + entry.length];
            start += entry.length;
            if !take(entry, frame) {
                kept.keep(*entry, frame);
            }
        }
        *self = kept;
    }
}
