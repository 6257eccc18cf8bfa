//! The floor of the log: up to which record its batches may be deleted (INV-6).
//!
//! A pure function of who holds which snapshot, and of what members still have to read. Two snapshots have to be kept
//! well before the log is cut off, and the floor is not above the older one: if the newer one turns out to be useless, a
//! master can still start from the other and read the log from there.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::log_end::LogId;
use crate::engine::types::SequenceId;

/// Where a copy of a snapshot is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The data directory of a member.
    Member {
        name: String,
        /// It outlives the machine of the member; an ephemeral directory does not.
        durable: bool,
    },
    /// Storage that all members share.
    Shared {
        /// Another member than the one that wrote it has read it back from there.
        proven: bool,
    },
}

/// An announced snapshot in one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SnapshotCopy {
    pub log: LogId,
    /// The last record in it.
    pub last: SequenceId,
    pub place: Place,
}

/// A member that still has to read the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Need {
    pub member: String,
    pub log: LogId,
    /// It has everything up to this record, and reads what follows.
    pub after: SequenceId,
}

/// What the floor depends on.
#[derive(Clone, Copy, Debug)]
pub struct Holdings<'a> {
    /// The log that is to be truncated. Copies and needs of another one mean nothing for it.
    pub log: LogId,
    /// The floor that is written; zero if there is none.
    pub floor: SequenceId,
    pub copies: &'a [SnapshotCopy],
    pub needs: &'a [Need],
    /// The live members. Each has to find a snapshot when it starts again: one of two of its own, or one in shared
    /// storage.
    pub members: &'a [String],
    /// How many members have to hold a snapshot, unless it is in shared storage: two, or one in a cluster of one member.
    pub wanted: usize,
}

/// Why the floor cannot move up.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FloorHeld {
    /// Fewer than two snapshots are held by enough members, or in proven shared storage.
    #[error(
        "{kept} of two snapshots are kept by {wanted} members in durable directories, or in shared storage"
    )]
    TooFewSnapshots {
        /// How many are: none or one.
        kept: usize,
        wanted: usize,
    },
    /// It could, if ephemeral directories counted.
    #[error("enough members hold two snapshots, but in directories that are lost with their machines")]
    Ephemeral,
    /// A member has to read the log first.
    #[error("{member} still has to read the log after record {}", .after.0)]
    Needed { member: String, after: SequenceId },
    /// A member would find no snapshot from which it could read the log when it starts again.
    #[error(
        "{member} holds no two snapshots after record {} in a durable directory, and there is none in shared storage \
         that a second member has read: it might not be able to start again",
        .older.0
    )]
    CannotStart {
        member: String,
        /// The last record of the older of its two newest snapshots; zero if it holds fewer.
        older: SequenceId,
    },
    /// It is as high as the older of two kept snapshots. The next snapshot moves it.
    #[error("it is at the older of two kept snapshots")]
    AtSnapshot,
}

/// Returns the highest record up to which batches may be deleted, which is above the floor that is written, or why there
/// is none.
pub fn floor(holdings: &Holdings<'_>) -> Result<SequenceId, FloorHeld> {
    let kept = Kept::of(holdings, counts);
    let Some(older) = kept.older() else {
        let any = |copy: &&SnapshotCopy| !matches!(copy.place, Place::Shared { proven: false });
        if Kept::of(holdings, any).older().is_some() {
            return Err(FloorHeld::Ephemeral);
        }
        let kept = usize::from(kept.newer().is_some());
        return Err(FloorHeld::TooFewSnapshots { kept, wanted: holdings.wanted.max(1) });
    };
    let (last_start, starter) = last_start(holdings);
    if let Some(member) = starter.filter(|_| last_start < older && last_start <= holdings.floor) {
        return Err(FloorHeld::CannotStart { member: member.clone(), older: last_start });
    }
    let older = older.min(last_start);
    let needs = holdings.needs.iter().filter(|need| need.log == holdings.log);
    let first = needs.min_by_key(|need| need.after);
    let first = if planted!(FloorIgnoresNeed) { None } else { first };
    if let Some(Need { member, after, .. }) = first.filter(|need| need.after < older)
        && *after <= holdings.floor
    {
        return Err(FloorHeld::Needed { member: member.clone(), after: *after });
    }
    let highest = first.map_or(older, |need| need.after.min(older));
    if highest > holdings.floor { Ok(highest) } else { Err(FloorHeld::AtSnapshot) }
}

/// Returns the highest record from which every live member could read the log when it starts again, even if its newest
/// snapshot turns out to be damaged, and the member that could not from a later one.
fn last_start<'a>(holdings: &Holdings<'a>) -> (SequenceId, Option<&'a String>) {
    let copies = || holdings.copies.iter().filter(|copy| copy.log == holdings.log).filter(counts);
    let shared =
        copies().filter(|copy| matches!(copy.place, Place::Shared { .. })).map(|copy| copy.last).max();
    let start = |member: &'a String| {
        let own = |copy: &&SnapshotCopy| matches!(&copy.place, Place::Member { name, .. } if name == member);
        let own: BTreeSet<SequenceId> = copies().filter(own).map(|copy| copy.last).collect();
        let older = own.iter().rev().nth(1).copied();
        (older.max(shared).unwrap_or_default(), Some(member))
    };
    holdings.members.iter().map(start).min().unwrap_or((SequenceId(u64::MAX), None))
}

fn counts(copy: &&SnapshotCopy) -> bool {
    match &copy.place {
        Place::Member { durable, .. } => *durable || planted!(FloorOverEphemeral),
        Place::Shared { proven } => *proven,
    }
}

/// Returns whether the written floor is covered: a master that has nothing can start from a snapshot that is kept well
/// enough, and finds everything after it in the log.
#[must_use]
pub fn covers(holdings: &Holdings<'_>) -> bool {
    Kept::of(holdings, counts).newer().is_some_and(|newer| newer >= holdings.floor)
}

/// The copies that count, by the last record of their snapshot.
struct Kept<'a> {
    by_record: BTreeMap<SequenceId, Vec<&'a Place>>,
    wanted: usize,
}

impl<'a> Kept<'a> {
    fn of(holdings: &Holdings<'a>, counts: impl Fn(&&SnapshotCopy) -> bool) -> Self {
        let mut by_record: BTreeMap<SequenceId, Vec<&Place>> = BTreeMap::new();
        for copy in holdings.copies.iter().filter(|copy| copy.log == holdings.log).filter(counts) {
            by_record.entry(copy.last).or_default().push(&copy.place);
        }
        let wanted = if planted!(FloorHeldOnce) { 1 } else { holdings.wanted.max(1) };
        Self { by_record, wanted }
    }

    /// Returns the highest record from which on a snapshot is kept well enough.
    fn newer(&self) -> Option<SequenceId> {
        self.covered_before(SequenceId(u64::MAX))
    }

    /// Returns the same for the snapshots before that one: those that are left if it turns out to be useless.
    fn older(&self) -> Option<SequenceId> {
        let newer = self.newer()?;
        planted!(FloorAtNewest => return Some(newer));
        self.covered_before(newer)
    }

    /// Returns the highest record at or above which, and below `end`, as many members as wanted hold a snapshot, or
    /// shared storage does.
    fn covered_before(&self, end: SequenceId) -> Option<SequenceId> {
        let mut members = BTreeSet::new();
        for (last, places) in self.by_record.range(..end).rev() {
            for place in places {
                match place {
                    Place::Shared { .. } => return Some(*last),
                    Place::Member { name, .. } => _ = members.insert(name.as_str()),
                }
            }
            if members.len() >= self.wanted {
                return Some(*last);
            }
        }
        None
    }
}
