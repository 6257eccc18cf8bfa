//! Replies that wait until what they depend on is durable: the frames, and waking the connection. Which of them may leave
//! is decided by [`ParkedAnswers`].

use super::service::{BoxFuture, GiveUp, Service};
use crate::engine::types::SequenceId;
use crate::replication::parked_answers::{Fate, LogState, ParkedAnswers};
use crate::wire::frame;
use std::task::{Context, Poll};

/// The parked replies of one connection: whole frames, back to back, in the order in which they were made.
#[derive(Default)]
pub(super) struct Parked {
    frames: Vec<u8>,
    answers: ParkedAnswers<Frame>,
    /// The id that is waited for, always the lowest one.
    wait: Option<(u64, BoxFuture<()>)>,
}

/// One of them.
#[derive(Debug)]
struct Frame {
    /// Bytes of its frame.
    length: usize,
    /// The call that it answers.
    sequence: u32,
}

impl Parked {
    /// Bytes that wait.
    pub(super) fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Whether nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Keeps a frame until `depends_on` is durable.
    pub(super) fn push(&mut self, depends_on: u64, sequence: u32, frame: &[u8]) {
        self.frames.extend_from_slice(frame);
        self.answers.park(SequenceId(depends_on), Frame { length: frame.len(), sequence });
    }

    /// Moves every frame whose dependency is durable to `out`; the order of those that stay is kept. While frames
    /// stay, the task is woken when the durable prefix moves. Of a log that takes no writes they are given up after a
    /// while: what became of the call is unknown (R5).
    pub(super) fn release<S: Service>(&mut self, service: &S, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while !self.answers.is_empty() {
            if self.move_released(SequenceId(service.durable()), service.gives_up(), out) {
                continue;
            }
            let Some(SequenceId(lowest)) = self.answers.lowest() else { return };
            if self.wait.as_ref().is_some_and(|wait| wait.0 != lowest) {
                self.wait = None;
            }
            let (_, wait) = self.wait.get_or_insert_with(|| (lowest, service.wait_durable(lowest)));
            match wait.as_mut().poll(cx) {
                Poll::Pending => return,
                Poll::Ready(()) => self.wait = None,
            }
        }
        self.wait = None;
    }

    /// Moves what may leave to `out`, and an error for what is given up; false if there is neither.
    fn move_released(&mut self, durable: SequenceId, give_up: Option<GiveUp>, out: &mut Vec<u8>) -> bool {
        let log = LogState { durable, refusing: give_up.map(|give_up| give_up.refusing) };
        let (mut kept, mut start) = (Vec::new(), 0);
        let mut next = |length: usize| {
            let frame = &self.frames[start..start + length];
            start += length;
            frame
        };
        let released = self.answers.release(log, |fate| match fate {
            Fate::Leaves(Frame { length, .. }) => out.extend_from_slice(next(length)),
            Fate::Unknown(Frame { length, sequence }) => {
                next(length);
                if let Some(GiveUp { failure, .. }) = give_up {
                    frame::append_error(out, sequence, failure.code, failure.message);
                }
            }
            Fate::Waits(Frame { length, .. }) => kept.extend_from_slice(next(*length)),
        });
        if released {
            self.frames = kept;
        }
        released
    }
}
