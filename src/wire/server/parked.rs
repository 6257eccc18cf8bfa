//! Replies that wait until what they depend on is durable: keeps the frames, and wakes the connection.
//! [`ParkedAnswers`] decides which of them may be sent.

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
    /// The sequence id that the task waits for, always the lowest one.
    wait: Option<(SequenceId, BoxFuture<()>)>,
}

/// One parked reply; its bytes are in `Parked::frames`.
#[derive(Debug)]
struct Frame {
    /// Bytes of its frame.
    length: usize,
    sequence: u32,
}

impl Parked {
    /// Returns the bytes of all parked frames.
    pub(super) fn bytes(&self) -> usize {
        self.frames.len()
    }

    /// Returns whether no reply is parked.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// Keeps a frame until `depends_on` is durable.
    pub(super) fn push(&mut self, depends_on: SequenceId, sequence: u32, frame: &[u8]) {
        self.frames.extend_from_slice(frame);
        self.answers.park(depends_on, Frame { length: frame.len(), sequence });
    }

    /// Moves every frame whose dependency is durable to `out`; the order of those that stay is kept. While frames stay,
    /// the task is woken when the durable prefix moves. If the log takes no writes, they are given up after a while
    /// with an error, because the outcome of the call is unknown (R5).
    pub(super) fn release<S: Service>(&mut self, service: &S, cx: &mut Context<'_>, out: &mut Vec<u8>) {
        while !self.answers.is_empty() {
            if self.move_released(service.durable(), service.gives_up(), out) {
                continue;
            }
            let Some(lowest) = self.answers.lowest() else { return };
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

    /// Moves the frames that may be sent to `out`, and an error for those that are given up; returns false if there is
    /// neither.
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
