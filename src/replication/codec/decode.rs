//! Decodes bytes into records. Whatever the bytes are, the result is a record or an error, and the memory used is in
//! proportion to the bytes.

use super::{Context, Kind, start};
use crate::engine::format::Format;
use crate::engine::key::Key;
use crate::engine::record::{
    CopyOrMove, DynamicLease, EvictRule, LeaseBucket, ObjectRef, Place, Record, RemoveSource, SoftPin, Start,
};
use crate::engine::segment::SegmentSpec;
use crate::engine::types::Digest;
use crate::engine::types::ReplicaId;
use crate::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term, Uuid};
use crate::engine::varint::{Malformed, Reader};

/// Buffers for the lists of one record, reused for the next.
#[derive(Debug, Default)]
pub struct Scratch<'b> {
    places: Vec<Place>,
    objects: Vec<ObjectRef>,
    ids: Vec<ObjectId>,
    leases: Vec<(ObjectId, LogTime)>,
    tasks: Vec<Uuid>,
    names: Vec<&'b [u8]>,
}

/// An iterator over the records of a body.
#[derive(Debug)]
pub struct Records<'b> {
    from: Reader<'b>,
    context: Context,
    format: Format,
}

impl<'b> Records<'b> {
    /// Returns the records in these bytes, which were written in this format.
    #[must_use]
    pub fn new(format: Format, body: &'b [u8]) -> Self {
        Self { from: Reader::new(body), context: Context::default(), format }
    }

    /// Returns the next record and its time, or `None` after the last. The record borrows from the body and from
    /// `scratch`.
    pub fn next<'s>(
        &mut self,
        scratch: &'s mut Scratch<'b>,
    ) -> Result<Option<(LogTime, Record<'s>)>, Malformed> {
        if self.from.is_empty() {
            return Ok(None);
        }
        let byte = self.from.byte()?;
        let kind =
            Kind::of(byte).ok_or(Malformed::Unknown { what: "a record's kind", value: byte.into() })?;
        self.context.time = LogTime(self.from.difference(self.context.time.0)?);
        let record = self.record(kind, scratch)?;
        Ok(Some((self.context.time, record)))
    }

    fn record<'s>(&mut self, kind: Kind, scratch: &'s mut Scratch<'b>) -> Result<Record<'s>, Malformed> {
        Ok(match kind {
            Kind::PutStart => Record::PutStart(self.start(&mut scratch.places)?),
            Kind::UpsertStart => Record::UpsertStart {
                start: self.start(&mut scratch.places)?,
                release_at: self.time()?,
                replaces: if self.from.flag("an object that is replaced")? {
                    Some(self.object()?)
                } else {
                    None
                },
            },
            Kind::End => Record::End {
                object: self.object()?,
                checksum: if self.from.flag("a checksum")? { Some(self.from.word()?) } else { None },
            },
            Kind::Revoke => Record::Revoke { object: self.object()? },
            Kind::Discard => Record::Discard { object: self.object()?, release_at: self.time()? },
            Kind::Release => Record::Release { reservation: SequenceId(self.id()?.0) },
            Kind::Remove => {
                let source = self.remove_source()?;
                Record::Remove { objects: self.list(&mut scratch.objects, 2, Self::object)?, source }
            }
            Kind::ClearReplicas => {
                Record::ClearReplicas { object: self.object()?, segment_name: self.from.bytes()? }
            }
            Kind::Sweep => Record::Sweep { objects: self.list(&mut scratch.ids, 1, Self::id)? },
            Kind::RemoveAll => {
                let (from, up_to) = (self.id()?, self.id()?);
                let force = self.from.flag("force")?;
                Record::RemoveAll { from, up_to, force, reserved_since: self.reserved_since()? }
            }
            Kind::Evict => {
                let up_to = (LeaseBucket(self.from.number()?), self.id()?);
                let soft_pinned = self.from.flag("the soft pin of a rule")?;
                let reserved_since = self.reserved_since()?;
                let from = match self.format {
                    Format::One => (LeaseBucket(0), ObjectId(0)),
                    Format::Two => (LeaseBucket(self.from.number()?), ObjectId(self.from.number()?)),
                };
                Record::Evict(EvictRule { from, up_to, soft_pinned, reserved_since })
            }
            Kind::ReplicationStart => Record::ReplicationStart {
                object: self.object()?,
                kind: self.replication_kind()?,
                client: self.from.uuid()?,
                source: ReplicaId(self.from.number()?),
                places: self.list(&mut scratch.places, 2, Self::place)?,
                dynamic: self.dynamic()?,
            },
            Kind::ReplicationEnd => {
                Record::ReplicationEnd { object: self.object()?, release_at: self.time()? }
            }
            Kind::ReplicationRevoke => Record::ReplicationRevoke { object: self.object()? },
            Kind::MountSegment => Record::MountSegment {
                number: self.segment_number()?,
                client: self.from.uuid()?,
                segment: self.segment()?,
            },
            Kind::ClientJoined => Record::ClientJoined { client: self.from.uuid()? },
            Kind::DrainSegment => {
                Record::DrainSegment { number: self.segment_number()?, until: self.time()? }
            }
            Kind::UnmountSegment => Record::UnmountSegment { number: self.segment_number()? },
            Kind::ClientExpired => Record::ClientExpired { client: self.from.uuid()? },
            Kind::TaskCreated => Record::TaskCreated {
                id: self.from.uuid()?,
                kind: self.replication_kind()?,
                client: self.from.uuid()?,
                key: self.from.bytes()?,
                tenant: self.from.bytes()?,
                source: self.from.bytes()?,
                targets: self.list(&mut scratch.names, 1, |records| records.from.bytes())?,
            },
            Kind::TaskAssigned => Record::TaskAssigned {
                ids: self.list(&mut scratch.tasks, 16, |records| records.from.uuid())?,
            },
            Kind::TaskDone => Record::TaskDone {
                id: self.from.uuid()?,
                success: self.from.flag("the success of a task")?,
                message: self.from.bytes()?,
            },
            Kind::MetadataPut => Record::MetadataPut { key: self.from.bytes()?, value: self.from.bytes()? },
            Kind::MetadataDelete => Record::MetadataDelete { key: self.from.bytes()? },
            Kind::RenewLeases => {
                let mut before = self.context.time;
                let leases = self.list(&mut scratch.leases, 2, |records| {
                    let id = records.id()?;
                    before = LogTime(records.from.difference(before.0)?);
                    Ok((id, before))
                })?;
                Record::RenewLeases { leases }
            }
            Kind::NewTerm => Record::NewTerm {
                term: Term(self.from.number()?),
                primary: self.from.bytes()?,
                boot_id: self.from.word()?,
                hold_until: self.time()?,
                lease_ttl: self.from.number()?,
                leader_ttl: self.from.number()?,
                kept_tasks: self.from.narrow()?,
            },
            Kind::Resign => {
                Record::Resign { term: Term(self.from.number()?), hold_until: LogTime(self.from.number()?) }
            }
            Kind::Digest => Record::Digest { digest: Digest(self.from.word()?) },
        })
    }

    fn time(&mut self) -> Result<LogTime, Malformed> {
        self.from.difference(self.context.time.0).map(LogTime)
    }

    fn id(&mut self) -> Result<ObjectId, Malformed> {
        self.context.object = ObjectId(self.from.difference(self.context.object.0)?);
        Ok(self.context.object)
    }

    fn object(&mut self) -> Result<ObjectRef, Malformed> {
        let id = self.id()?;
        Ok(ObjectRef { id, after: SequenceId(self.from.difference(id.0)?) })
    }

    fn segment_number(&mut self) -> Result<SegmentNumber, Malformed> {
        self.from.narrow().map(SegmentNumber)
    }

    fn place(&mut self) -> Result<Place, Malformed> {
        Ok(Place { segment: self.segment_number()?, offset: self.from.number()? })
    }

    /// Reads a list whose items have at least `each` bytes. Memory grows as items are read, not by the claimed count.
    fn list<'s, T>(
        &mut self,
        room: &'s mut Vec<T>,
        each: usize,
        mut item: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<&'s [T], Malformed> {
        room.clear();
        for _ in 0..self.from.count(each)? {
            room.push(item(self)?);
        }
        Ok(room)
    }

    fn start<'s>(&mut self, room: &'s mut Vec<Place>) -> Result<Start<'s>, Malformed>
    where
        'b: 's,
    {
        let flags = self.from.byte()?;
        let has = |flag| flags & flag != 0;
        if has(!start::ALL) || has(start::SOFT_PIN_ON) && has(start::SOFT_PIN_OFF) {
            return Err(Malformed::Unknown { what: "the flags of a reservation", value: flags.into() });
        }
        let key = Key::new(self.from.bytes()?);
        if !has(start::SAME_CLIENT) {
            self.context.client = self.from.uuid()?;
        }
        Ok(Start {
            key,
            client: self.context.client,
            size: self.from.number()?,
            places: self.list(room, 2, Self::place)?,
            hard_pin: has(start::HARD_PIN),
            soft_pin: if has(start::SOFT_PIN_ON) {
                SoftPin::Enable(self.from.number()?)
            } else if has(start::SOFT_PIN_OFF) {
                SoftPin::Disable
            } else {
                SoftPin::Preserve
            },
            group: if has(start::GROUP) { Some(self.from.bytes()?) } else { None },
            data_type: if has(start::DATA_TYPE) { self.from.byte()? } else { 0 },
        })
    }

    fn dynamic(&mut self) -> Result<DynamicLease, Malformed> {
        if self.from.flag("the lease of a copy")? {
            Ok(DynamicLease { id: self.from.uuid()?, epoch: self.from.number()? })
        } else {
            Ok(DynamicLease::default())
        }
    }

    fn segment(&mut self) -> Result<SegmentSpec<'b>, Malformed> {
        Ok(SegmentSpec {
            id: self.from.uuid()?,
            name: self.from.bytes()?,
            base: self.from.number()?,
            size: self.from.number()?,
            te_endpoint: self.from.bytes()?,
            protocol: self.from.bytes()?,
            host_id: self.from.bytes()?,
        })
    }

    fn remove_source(&mut self) -> Result<RemoveSource, Malformed> {
        match self.from.byte()? {
            0 => Ok(RemoveSource::Explicit),
            1 => Ok(RemoveSource::Regex),
            2 => Ok(RemoveSource::ReplicaClear),
            3 => Ok(RemoveSource::Unmount),
            value => Err(Malformed::Unknown { what: "the source of a removal", value: value.into() }),
        }
    }

    /// Reads the record since which an object must have been reserved for a rule to apply. Rules of the first format
    /// apply to all.
    fn reserved_since(&mut self) -> Result<SequenceId, Malformed> {
        match self.format {
            Format::One => Ok(SequenceId(0)),
            Format::Two => self.from.number().map(SequenceId),
        }
    }

    fn replication_kind(&mut self) -> Result<CopyOrMove, Malformed> {
        match self.from.byte()? {
            0 => Ok(CopyOrMove::Copy),
            1 => Ok(CopyOrMove::Move),
            value => Err(Malformed::Unknown { what: "the kind of a replication", value: value.into() }),
        }
    }
}
