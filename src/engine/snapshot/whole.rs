//! The first item: numbers of the state as a whole.

use super::Tag;
use crate::engine::term_state::{TermReport, TermState};
use crate::engine::types::{Digest, LogTime, SegmentNumber, SequenceId, Term};
use crate::engine::varint::{Malformed, Reader, put_number, put_word};

/// Numbers of the state as a whole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Whole {
    pub last: SequenceId,
    pub log_time: LogTime,
    pub term_state: TermState,
    /// For status, for as long as the term lasts.
    pub report: TermReport,
    pub next_segment: u32,
    pub faults: u64,
    pub digest: Digest,
}

impl Whole {
    pub fn encode(self, out: &mut Vec<u8>) {
        let Self { last, log_time, term_state, report, next_segment, faults, digest } = self;
        let TermState {
            term,
            began,
            since,
            hold_until,
            lease_ttl,
            leader_ttl,
            boot_id,
            first_segment,
            kept_tasks,
            resigned,
        } = term_state;
        out.push(Tag::Core as u8);
        put_number(out, last.0);
        put_number(out, log_time.0);
        for number in [term.0, began.0, since.0, hold_until.0, lease_ttl, leader_ttl, resigned.0] {
            put_number(out, number);
        }
        put_word(out, boot_id);
        for number in [first_segment.0, kept_tasks, next_segment] {
            put_number(out, number.into());
        }
        put_number(out, faults);
        let TermReport {
            term,
            began,
            clients,
            segments,
            objects,
            bytes,
            reservations,
            hold_ms,
            objects_removed,
            bytes_removed,
        } = report;
        for number in [term.0, began.0, objects, bytes, hold_ms, objects_removed, bytes_removed] {
            put_number(out, number);
        }
        for number in [clients, segments, reservations] {
            put_number(out, number as u64);
        }
        put_word(out, digest.0);
    }

    /// Decodes what follows the tag.
    pub fn decode(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        // In the order in which the expressions stand here, which is that of the bytes.
        Ok(Self {
            last: SequenceId(from.number()?),
            log_time: LogTime(from.number()?),
            term_state: TermState {
                term: Term(from.number()?),
                began: SequenceId(from.number()?),
                since: LogTime(from.number()?),
                hold_until: LogTime(from.number()?),
                lease_ttl: from.number()?,
                leader_ttl: from.number()?,
                resigned: SequenceId(from.number()?),
                boot_id: from.word()?,
                first_segment: SegmentNumber(from.narrow()?),
                kept_tasks: from.narrow()?,
            },
            next_segment: from.narrow()?,
            faults: from.number()?,
            report: TermReport {
                term: Term(from.number()?),
                began: SequenceId(from.number()?),
                objects: from.number()?,
                bytes: from.number()?,
                hold_ms: from.number()?,
                objects_removed: from.number()?,
                bytes_removed: from.number()?,
                clients: from.narrow()?,
                segments: from.narrow()?,
                reservations: from.narrow()?,
            },
            digest: Digest(from.word()?),
        })
    }
}
