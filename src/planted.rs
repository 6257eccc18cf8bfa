//! Bugs on purpose, for the test that shows that the simulator finds bugs. Compiled only with the feature `planted`,
//! which no release build can have; even then a bug is active only in the thread of a test that plants it.

use std::cell::Cell;

#[cfg(not(debug_assertions))]
compile_error!("the feature `planted` puts bugs into the program: it is for tests in the dev profile alone");

/// Declares the bugs that the simulator finds, each with the checks that are meant to find it, and the others.
macro_rules! bugs {
    (
        simulator: { $($(#[$doc:meta])* $name:ident => [$($check:literal),+],)* }
        schedule: { $($(#[$of_one_schedule_doc:meta])* $of_one_schedule:ident,)* }
        threads: { $($(#[$of_threads_doc:meta])* $of_threads:ident,)* }
    ) => {
        /// A bug on purpose, to check that the tests find it.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $name,)*
            $($(#[$of_one_schedule_doc])* $of_one_schedule,)*
            $($(#[$of_threads_doc])* $of_threads,)*
        }

        impl Bug {
            /// Those that the simulator finds.
            pub const ALL: &[Bug] = &[$(Bug::$name),*];

            /// Those that need one particular schedule, which the simulator's random ones hardly ever contain
            /// (tests/engine/capture.rs, tests/replication/node/restoring.rs and recovering.rs).
            pub const OF_ONE_SCHEDULE: &[Bug] = &[$(Bug::$of_one_schedule),*];

            /// Those that need several threads: the simulator has one.
            pub const OF_THREADS: &[Bug] = &[$(Bug::$of_threads),*];

            /// Returns the checks of the simulator that are meant to find it.
            #[must_use]
            pub fn checks(self) -> &'static [&'static str] {
                match self {
                    $(Bug::$name => &[$($check),+],)*
                    $(Bug::$of_one_schedule => &[],)*
                    $(Bug::$of_threads => &[],)*
                }
            }
        }
    };
}

bugs! { simulator: {
    /// A primary goes on as if its clocks had not jumped.
    IgnoreJump => ["lease"],
    /// Records are dropped when the queue is full.
    DropWhenFull => ["INV-1", "INV-8"],
    /// A Start is answered before its reservation is durable.
    AnswerStartEarly => ["INV-3", "R3"],
    /// A read that depends on a record is answered before that record is durable.
    AnswerReadEarly => ["INV-3"],
    /// A batch is written although another master leads.
    SkipFence => ["R1"],
    /// A new term frees bytes that are reserved.
    ForgetReservations => ["R4", "INV-5"],
    /// A batch is applied twice.
    ApplyTwice => ["INV-8"],
    /// A new primary starts log time from its wall clock.
    WallClock => ["log time"],
    /// A deposed primary keeps what it applied.
    KeepTail => ["INV-3", "INV-8"],
    /// Records that wait when a term ends are written in the next one.
    KeepQueue => ["INV-3", "INV-4", "INV-8"],
    /// The watch starts one revision late.
    WatchLate => ["watch"],
    /// The leader lease is counted from when the answer arrived, not from when the keep-alive was sent.
    LeaseFromArrival => ["lease"],
    /// A batch without an answer is packed anew with what has come since.
    Repack => ["R5"],
    /// Clients are served before the first record of the term is durable.
    ServeEarly => ["INV-4"],
    /// A new primary does not wait for the read leases that the old one granted.
    SkipHold => ["R6", "INV-7"],
    /// A new primary does not wait for the leader lease of the old one.
    HoldWithoutLease => ["R6", "INV-7"],
    /// A node stands for election although it is behind.
    StandBehind => ["INV-4"],
    /// A comparison that failed is taken for success.
    FailedIsCommitted => ["INV-3"],
    /// A batch without an answer is taken for failed.
    UnknownIsFailed => ["INV-1"],
    /// A deposed primary goes on answering until its port is closed.
    KeepGateOpen => ["lease"],
    /// The wait for the old primary counts from when an earlier one was seen gone.
    StaleAbsence => ["R6", "INV-7"],
    /// An answer to a write of an earlier term is taken for one of the current term.
    AnyWriteAnswer => ["INV-3"],
    /// A read does not wait for the unmount of a replica that it leaves out.
    IgnoreUnmount => ["INV-3"],
    /// Memory that is mounted again is all free, although clients may still be writing there.
    ForgetStrays => ["R4", "INV-5"],
    /// A hand-over takes "the lease does not exist" for no answer.
    SuccessorExpired => ["no primary", "INV-10"],
    /// A standby ignores signs that its state diverges from the log.
    IgnoreDoubt => ["doubt"],
    /// A hand-over chooses a standby that has not reported for long.
    StaleTarget => ["target"],
    /// A primary that goes back after its `Resign` answers before another record is durable.
    AbortWithoutRecord => ["resign"],
    /// A state is taken for quiet although a call is still changing it, and is not sealed.
    QuietLie => ["INV-3", "INV-8"],
    /// The deadlines of clients that joined in this term are forgotten when the port opens again.
    ForgetJoined => ["silent client"],
    /// A hand-over does not write the leases of objects in groups to the log.
    FlushSkipsGroups => ["INV-7"],
    /// A search does not wait for the unmount of what it leaves out.
    RegexNoWait => ["INV-3"],
    /// A new term drops an object that has no lease, on every replica alike.
    ForgetUnleased => ["model"],
    /// Puts that wait for memory after a takeover wait until a segment opens, however long that takes.
    ParkForever => ["parked put"],
    /// A batch is applied whatever it follows.
    SkipChain => ["history", "INV-3", "INV-8"],
    /// A witness reports the end of a process that has merely lost its lease.
    EarlyWitness => ["R6", "INV-7"],
    /// A report about the end of any process is taken for one about the last primary's.
    WitnessOfAnother => ["R6", "INV-7"],
    /// What is exempt from the hold of a new primary is decided by the object's id, not by its replicas.
    ExemptByObject => ["INV-7"],
    /// A rebuild forgets which log this master knows.
    StartOverForgets => ["watch"],
    /// A snapshot is announced before a later digest has matched.
    AnnounceUnconfirmed => ["snapshot"],
    /// A standby that becomes primary goes on with its snapshot, and confirms it by its own digests.
    AnnounceAsPrimary => ["snapshot"],
    /// The floor is at the newest snapshot, not at the older of two.
    FloorAtNewest => ["INV-6"],
    /// Batches are deleted although a member still has to read them.
    FloorIgnoresNeed => ["INV-6"],
    /// Batches are deleted before the floor is written.
    DeleteBeforeFloor => ["INV-6"],
    /// The floor rests on snapshots that no digest has confirmed yet.
    FloorBeforeVerified => ["INV-6"],
    /// The floor rests on snapshots that one member holds.
    FloorHeldOnce => ["INV-6"],
    /// The floor rests on snapshots in directories that are lost with their machines.
    FloorOverEphemeral => ["INV-6"],
    /// The floor rests on copies in the shared storage that no second member has read back.
    FloorOverUnproven => ["INV-6"],
    /// Batches of every log are deleted, not of the one that has the floor.
    DeleteAnyLog => ["INV-6"],
    /// A primary announces its snapshot before the digest that confirms it is durable.
    AnnounceUndurable => ["snapshot"],
    /// The state of a snapshot is taken for what the log says before a digest has matched.
    TrustSnapshot => ["doubt"],
    /// A master starts from a snapshot of another log than the one that it knows.
    AnySnapshotLog => ["snapshot"],
}
schedule: {
    /// An object that changes while a snapshot is taken is not kept as it was.
    SkipPreImage,
    /// A write that ends while a snapshot is taken is not kept.
    SkipEndedWrite,
    /// A segment that is unmounted while a snapshot is taken is not taken for mounted.
    SnapshotSegmentAsNow,
    /// A master goes on with a snapshot that ends before the log begins.
    RestoreTooOld,
    /// A primary gives bytes away right after a recovery.
    StartAfterRecovery,
    /// A master follows a log that is shorter than the one it knows, or another one, although no recovery has superseded
    /// what it knows.
    FollowUnasked,
}
threads: {
    /// A reader is granted a lease on an object that is about to be removed.
    PromiseDoomed,
} }

thread_local! {
    static ACTIVE: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Activates a bug in this thread, or none.
pub fn plant(bug: Option<Bug>) {
    ACTIVE.set(bug);
}

/// Returns whether that bug is active in this thread.
#[must_use]
pub fn active(bug: Bug) -> bool {
    ACTIVE.get() == Some(bug)
}
