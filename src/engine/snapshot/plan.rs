//! What a capture is of, and the plan of one that begins by itself at a later record.

use std::ops::Range;
use std::sync::Arc;

use super::chunks::Chunks;
use super::encode::Base;
use super::hook::Changed;
use crate::engine::key::SHARDS;
use crate::engine::types::{Digest, LogTime, SequenceId};

/// An entry of the metadata server: its key, its value, and the record that stored it.
pub(super) type Entry = (Box<[u8]>, Arc<[u8]>, SequenceId);

/// The part of a state that a capture has. What is small (everything but the objects) is always in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Whole,
    /// No objects.
    WithoutObjects,
}

impl Part {
    pub(super) fn shards(self) -> Range<usize> {
        match self {
            Self::Whole => 0..SHARDS,
            Self::WithoutObjects => 0..0,
        }
    }
}

/// Why a capture cannot begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BeginError {
    /// There is one capture at a time.
    #[error("another snapshot is being taken")]
    UnderWay,
    /// The state is not the one that was named.
    #[error("the state is at record {found}, not at {said}", found = .found.0, said = .said.0)]
    Elsewhere {
        /// The last record that was applied.
        found: SequenceId,
        /// The record that was named.
        said: SequenceId,
    },
}

/// What is kept of a state at the moment at which its capture begins. Hooks keep what changes from then on.
#[derive(Debug)]
pub(in crate::engine) struct Beginning {
    pub(super) at: SequenceId,
    pub(super) digest: Digest,
    pub(super) objects: u64,
    pub(super) shards: Range<usize>,
    pub(super) head: Chunks,
    pub(super) metadata: Vec<Entry>,
    pub(super) changed: Arc<Changed>,
    pub(super) base: Arc<Base>,
}

/// The plan of a capture that begins by itself.
#[derive(Debug, Default)]
pub(in crate::engine) enum Plan {
    #[default]
    None,
    /// It begins right after the first `Digest` record with this timestamp or a later one.
    Waiting { from: LogTime, part: Part },
    /// It has begun, or could not.
    Begun(Result<Box<Beginning>, BeginError>),
}
