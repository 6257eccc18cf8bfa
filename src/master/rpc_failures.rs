//! Errors of calls as a whole, which take the place of an answer. Clients take one for a call that failed, and may
//! repeat it.

use crate::replication::admission::Refusal;
use crate::wire::frame;
use crate::wire::server::Failure;

/// Error for calls after the leader lease has run out, and for long work that was called off because this master hands
/// over. A client hardly ever receives it: the connection is closed first.
pub(super) const NOT_LEADING: Failure = Failure { code: 255, message: "this master no longer leads" };

/// Error for calls whose records etcd refuses. The writer goes on with the same bytes, so they may yet be written (R5).
pub(super) const UNKNOWN: Failure = Failure {
    code: frame::TIMED_OUT,
    message: "the log is full or refused by etcd (see the status), whether this was done is unknown",
};

/// The error of a call that could not be answered because of a bug.
pub(super) const FAILED: Failure = Failure { code: frame::HANDLER_FAILED, message: "the call failed" };

const QUEUE_FULL: Failure = Failure {
    code: frame::TIMED_OUT,
    message: "the master's queue of unwritten changes is full, nothing was changed",
};

const OUT_OF_SPACE: Failure = Failure {
    code: frame::TIMED_OUT,
    message: "the log is full or refused by etcd (see the status), nothing was changed",
};

/// Returns the error for a call that was not admitted.
pub(super) fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::NotLeading => NOT_LEADING,
        Refusal::OutOfSpace => OUT_OF_SPACE,
        Refusal::QueueFull => QUEUE_FULL,
    }
}
