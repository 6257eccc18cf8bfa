//! The numbers and names of the state machine, each a type of its own so that they cannot be mixed up.

use std::fmt;

/// The position of a record in the log: global, gap-free, ordered. Zero means "before the first record".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(pub u64);

/// An object's name in records: the sequence id of its Start record, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectId(pub u64);

/// Log time in milliseconds. Zero stands for "never".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogTime(pub u64);

impl LogTime {
    /// This moment, `ms` milliseconds later.
    #[must_use]
    pub fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }
}

/// Which mount a replica lies on: counts mounts, so that a segment mounted again is another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentNumber(pub u32);

/// The pair of words that Mooncake uses to name clients, segments and tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid {
    /// The first word.
    pub first: u64,
    /// The second word.
    pub second: u64,
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.second)
    }
}

/// An answer that is not a success, with the number that clients know it by.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

macro_rules! error_codes {
    ($($name:ident = $value:literal, $doc:literal;)*) => {
        impl ErrorCode {
            $(#[doc = $doc] pub const $name: ErrorCode = ErrorCode($value);)*

            /// The name that the protocol gives this number.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "UNKNOWN" }
            }
        }
    };
}

error_codes! {
    OK = 0, "Success.";
    INTERNAL_ERROR = -1, "Something that should not happen.";
    SEGMENT_NOT_FOUND = -101, "No such segment.";
    SEGMENT_ALREADY_EXISTS = -102, "The segment is there already.";
    CLIENT_NOT_FOUND = -103, "No such client.";
    NO_AVAILABLE_HANDLE = -200, "No memory to give out.";
    INVALID_VERSION = -300, "A version or epoch that does not fit.";
    INVALID_KEY = -400, "A key that cannot be stored.";
    INVALID_PARAMS = -600, "Arguments that make no sense.";
    ILLEGAL_CLIENT = -601, "Another client owns this.";
    INVALID_WRITE = -700, "A write that was not begun.";
    INVALID_REPLICA = -702, "A replica that cannot be used so.";
    REPLICA_IS_NOT_READY = -703, "The object is still being written.";
    OBJECT_NOT_FOUND = -704, "No such object.";
    OBJECT_ALREADY_EXISTS = -705, "The object is there already.";
    OBJECT_HAS_LEASE = -706, "A reader's lease protects the object.";
    OBJECT_HAS_REPLICATION_TASK = -708, "A copy or move of the object is under way.";
    OBJECT_NO_REPLICATION_TASK = -709, "No copy or move of the object is under way.";
    REPLICA_NOT_FOUND = -710, "No replica there.";
    REPLICA_ALREADY_EXISTS = -711, "A replica is there already.";
    REPLICA_IS_GONE = -712, "The replica went away meanwhile.";
    OBJECT_REPLICA_BUSY = -714, "A replica is in use by a copy or move.";
    UNAVAILABLE_IN_CURRENT_STATUS = -1010, "Not possible in the present state.";
    UNAVAILABLE_IN_CURRENT_MODE = -1011, "Not possible in this mode.";
    UNABLE_OFFLOAD = -1300, "Offloading is off.";
    TASK_NOT_FOUND = -1400, "No such task.";
    TASK_PENDING_LIMIT_EXCEEDED = -1401, "Too many tasks wait.";
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.0)
    }
}

/// What an operation found, and the last record that it rests on: the answer may be sent when that record is durable.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Answer<T> {
    /// The value or the refusal.
    pub result: Result<T, ErrorCode>,
    /// The highest sequence id that the result depends on.
    pub depends_on: SequenceId,
}

impl<T> Answer<T> {
    /// A success that rests on `depends_on`.
    pub fn ok(value: T, depends_on: SequenceId) -> Self {
        Self { result: Ok(value), depends_on }
    }

    /// A refusal that rests on `depends_on`.
    pub fn refuse(code: ErrorCode, depends_on: SequenceId) -> Self {
        Self { result: Err(code), depends_on }
    }

    /// A refusal for the arguments alone, whatever the state.
    pub fn invalid(code: ErrorCode) -> Self {
        Self::refuse(code, SequenceId(0))
    }

    /// The same answer with its value changed.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Answer<U> {
        Answer { result: self.result.map(f), depends_on: self.depends_on }
    }
}
