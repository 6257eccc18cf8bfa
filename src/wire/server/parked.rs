//! Replies that wait until what they depend on is durable.

use super::service::{BoxFuture, Service};
use std::task::{Context, Poll};

/// The parked replies of one connection: whole frames, back to back, in the order in which they were made.
#[derive(Default)]
pub(super) struct Parked {
    frames: Vec<u8>,
    /// What each frame depends on, and its length.
    entries: Vec<(u64, usize)>,
    /// The id that is waited for, always the lowest one.
    wait: Option<(u64, BoxFuture<()>)>,
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
    pub(super) fn push(&mut self, depends_on: u64, frame: &[u8]) {
        self.frames.extend_from_slice(frame);
        self.entries.push((depends_on, frame.len()));
    }

    /// Moves every frame whose dependency is durable to `out`; the order of those that stay is kept. While frames
    /// stay, the task is woken when the durable prefix moves.
    pub(super) fn release<S: Service>(&mut self, service: &S, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while let Some(lowest) = self.entries.iter().map(|entry| entry.0).min() {
            let durable = service.durable();
            if lowest <= durable {
                self.move_up_to(durable, out);
                continue;
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
        let mut kept = Self::default();
        let mut start = 0;
        for &(depends_on, length) in &self.entries {
            let frame = &self.frames[start..start + length];
            start += length;
            if depends_on <= durable {
                out.extend_from_slice(frame);
            } else {
                kept.push(depends_on, frame);
            }
        }
        *self = kept;
    }
}
