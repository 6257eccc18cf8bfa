//! Bugs on purpose, for the test that shows that the simulator finds bugs. Compiled only with the feature `planted`,
//! which no release build can have; even then none is there unless a test asks for it, for its own thread.

use std::cell::Cell;

#[cfg(not(debug_assertions))]
compile_error!("the feature `planted` puts bugs into the program: it is for tests in the dev profile alone");

/// A bug on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bug {
    /// Records are dropped when the queue is full.
    DropWhenFull,
    /// A writer is told its bytes before the reservation is durable.
    AnswerStartEarly,
    /// A read is answered that rests on a record that is not durable.
    AnswerReadEarly,
    /// A batch is written whoever leads.
    SkipFence,
    /// Promotion gives free what is reserved.
    ForgetReservations,
    /// A batch is applied twice.
    ApplyTwice,
    /// A new primary starts log time from its wall clock.
    WallClock,
    /// A deposed primary keeps what it applied.
    KeepTail,
    /// The watch starts one revision late.
    WatchLate,
    /// The lease is counted from when the answer came.
    LeaseFromArrival,
    /// A batch without an answer is packed anew with what has come since.
    Repack,
    /// Clients are served before the first record of the term is durable.
    ServeEarly,
    /// A new primary does not wait for the promises of the old one.
    SkipHold,
    /// A new primary does not wait for the lease of the old one.
    HoldWithoutLease,
    /// A node stands for election although it is behind.
    StandBehind,
    /// A comparison that failed is taken for success.
    FailedIsCommitted,
    /// A batch without an answer is taken for failed.
    UnknownIsFailed,
    /// A deposed primary goes on answering until its port is closed.
    KeepGateOpen,
    /// The wait for the old primary counts from when an earlier one was seen gone.
    StaleAbsence,
    /// An answer to a write of an earlier reign is taken for one of this.
    AnyWriteAnswer,
    /// A read does not wait for the unmount of a replica that it leaves out.
    IgnoreUnmount,
    /// Memory that is mounted again is all free, whoever may still be writing there.
    ForgetStrays,
}

impl Bug {
    /// All of them.
    pub const ALL: [Bug; 22] = [
        Bug::DropWhenFull,
        Bug::AnswerStartEarly,
        Bug::AnswerReadEarly,
        Bug::SkipFence,
        Bug::ForgetReservations,
        Bug::ApplyTwice,
        Bug::WallClock,
        Bug::KeepTail,
        Bug::WatchLate,
        Bug::LeaseFromArrival,
        Bug::Repack,
        Bug::ServeEarly,
        Bug::SkipHold,
        Bug::HoldWithoutLease,
        Bug::StandBehind,
        Bug::FailedIsCommitted,
        Bug::UnknownIsFailed,
        Bug::KeepGateOpen,
        Bug::StaleAbsence,
        Bug::AnyWriteAnswer,
        Bug::IgnoreUnmount,
        Bug::ForgetStrays,
    ];
}

thread_local! {
    static ACTIVE: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Puts a bug into what this thread runs, or takes it out.
pub fn plant(bug: Option<Bug>) {
    ACTIVE.set(bug);
}

/// Whether this thread has that bug.
#[must_use]
pub fn active(bug: Bug) -> bool {
    ACTIVE.get() == Some(bug)
}
