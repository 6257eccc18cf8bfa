//! A capture: the state at one moment, as items, while later records are applied.

use std::sync::Arc;

use crate::engine::state::Engine;
use crate::engine::types::{Digest, LogTime, SequenceId};

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

/// Why a capture did not reach its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CaptureError {
    #[error("it was cancelled")]
    Cancelled,
    /// Objects changed faster than they could be written.
    #[error("objects changed faster than they could be written: {0} bytes were waiting")]
    TooManyChanges(u64),
}

/// The state at one moment. Dropping it ends the capture.
#[derive(Debug)]
pub struct Capture {
    digest: Digest,
    objects: u64,
    chunks: std::vec::IntoIter<Vec<u8>>,
}

impl Capture {
    /// Begins a capture of the state after the record `at`, which has to be the last one.
    pub fn begin(engine: &Arc<Engine>, at: SequenceId) -> Result<Self, BeginError> {
        let sequencer = engine.sequencer(LogTime(0));
        let reading = sequencer.reading();
        if reading.sequence_id != at {
            return Err(BeginError::Elsewhere { found: reading.sequence_id, said: at });
        }
        let mut chunks = Vec::new();
        let keep = |chunk: &[u8]| -> Result<(), std::convert::Infallible> {
            chunks.push(chunk.to_vec());
            Ok(())
        };
        let Ok(()) = sequencer.snapshot(keep);
        Ok(Self { digest: reading.digest, objects: engine.len(), chunks: chunks.into_iter() })
    }

    /// Returns the digest of the state.
    #[must_use]
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns how many objects the state has.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.objects
    }

    /// Returns how many of them were passed on.
    #[must_use]
    pub fn written(&self) -> u64 {
        if self.chunks.len() == 0 { self.objects } else { 0 }
    }

    /// Replaces `chunk` by the next one, which has whole items. Returns false at the end.
    pub fn next(&mut self, chunk: &mut Vec<u8>) -> Result<bool, CaptureError> {
        let next = self.chunks.next();
        let more = next.is_some();
        *chunk = next.unwrap_or_default();
        Ok(more)
    }
}
