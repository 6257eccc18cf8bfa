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
    /// A batch is written although another master leads.
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
    /// Memory that is mounted again is all free, although writers may still be at work there.
    ForgetStrays,
    /// A hand-over takes "the lease does not exist" for no answer.
    SuccessorExpired,
    /// A standby does not look at signs that its state is not what the log says.
    IgnoreDoubt,
    /// A hand-over chooses a standby that has not reported for long.
    StaleTarget,
    /// A primary that goes back after its `Resign` answers before another record is durable.
    AbortWithoutRecord,
    /// A rebuild forgets which log this master knows.
    StartOverForgets,
    /// A reader is promised an object that is about to be removed.
    PromiseDoomed,
    /// A state is taken for quiet although a call is still changing it, and is not sealed.
    QuietLie,
    /// The deadlines of clients that joined in this term are forgotten when the port opens again.
    ForgetJoined,
    /// A hand-over does not write promises of objects in groups down.
    FlushSkipsGroups,
    /// A search does not wait for the unmount of what it leaves out.
    RegexNoWait,
    /// A new term drops an object that has no lease, on every replica alike.
    ForgetUnleased,
    /// A batch is applied whatever it follows.
    SkipChain,
}

impl Bug {
    /// Those that only threads can show: the simulator has one.
    pub const OF_THREADS: [Bug; 1] = [Bug::PromiseDoomed];

    /// Those that one schedule shows, which the random ones of the simulator hardly ever come by
    /// (tests/replication_node.rs).
    pub const OF_ONE_SCHEDULE: [Bug; 2] = [Bug::StartOverForgets, Bug::ForgetJoined];

    /// Those that the simulator finds.
    pub const ALL: [Bug; 31] = [
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
        Bug::SuccessorExpired,
        Bug::IgnoreDoubt,
        Bug::StaleTarget,
        Bug::AbortWithoutRecord,
        Bug::QuietLie,
        Bug::FlushSkipsGroups,
        Bug::RegexNoWait,
        Bug::ForgetUnleased,
        Bug::SkipChain,
    ];

    /// The checks of the simulator that are meant to find it.
    #[must_use]
    pub fn checks(self) -> &'static [&'static str] {
        match self {
            Bug::UnknownIsFailed => &["INV-1"],
            Bug::DropWhenFull => &["INV-1", "INV-8"],
            Bug::AnswerStartEarly => &["INV-3", "R3"],
            Bug::AnswerReadEarly | Bug::FailedIsCommitted | Bug::AnyWriteAnswer | Bug::IgnoreUnmount => {
                &["INV-3"]
            }
            Bug::SkipFence => &["R1"],
            Bug::ForgetReservations | Bug::ForgetStrays => &["R4", "INV-5"],
            Bug::ApplyTwice => &["INV-8"],
            Bug::KeepTail => &["INV-3", "INV-8"],
            Bug::WallClock => &["log time"],
            Bug::WatchLate => &["watch"],
            Bug::LeaseFromArrival | Bug::KeepGateOpen => &["lease"],
            Bug::Repack => &["R5"],
            Bug::ServeEarly | Bug::StandBehind => &["INV-4"],
            Bug::SkipHold | Bug::HoldWithoutLease | Bug::StaleAbsence => &["R6", "INV-7"],
            // Found with real threads.
            Bug::PromiseDoomed => &[],
            // Found in one schedule.
            Bug::StartOverForgets | Bug::ForgetJoined => &[],
            Bug::ForgetUnleased => &["model"],
            Bug::SkipChain => &["history", "INV-3", "INV-8"],
            Bug::QuietLie => &["INV-3", "INV-8"],
            Bug::FlushSkipsGroups => &["INV-7"],
            Bug::RegexNoWait => &["INV-3"],
            Bug::SuccessorExpired => &["no primary", "INV-10"],
            Bug::IgnoreDoubt => &["doubt"],
            Bug::StaleTarget => &["target"],
            Bug::AbortWithoutRecord => &["resign"],
        }
    }
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
