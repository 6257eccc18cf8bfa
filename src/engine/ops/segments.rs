//! Mounting and unmounting memory, and the clients that offer it.

use std::collections::{HashMap, HashSet};

use crate::engine::record::Record;
use crate::engine::segment::{SegmentSpec, SegmentStatus};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{Answer, ErrorCode, LogTime, SegmentNumber, SequenceId, Uuid};

/// A client may tell so many segments in one call: all are mounted under one hold of the sequencer, in some ten
/// milliseconds. With the smallest pieces that transports register memory in, a gibibyte, that is 4 TiB.
pub const MAX_TOLD: usize = 4096;

/// So many segments may be mounted, whoever asks: each takes a kilobyte or two here and on every standby.
pub const MAX_MOUNTED: usize = 65_536;

impl Sequencer<'_> {
    /// Takes a client's memory into the pool.
    pub fn mount(&mut self, spec: &SegmentSpec<'_>, client: Uuid) -> Answer<()> {
        if spec.base == 0 || spec.size == 0 {
            return Answer::invalid(ErrorCode::INVALID_PARAMS);
        }
        match self.mount_one(spec, client) {
            Ok(id) => Answer::ok((), id),
            Err((code, depends_on)) => Answer::refuse(code, depends_on),
        }
    }

    fn mount_one(
        &mut self,
        spec: &SegmentSpec<'_>,
        client: Uuid,
    ) -> Result<SequenceId, (ErrorCode, SequenceId)> {
        if let Some(mounted) =
            self.core.segment_ids.get(&spec.id).and_then(|number| self.core.segments.get(number))
        {
            let depends_on = mounted.segment.last_record();
            return match mounted.segment.status() {
                SegmentStatus::Ok => Ok(depends_on),
                SegmentStatus::GracefullyUnmounting => {
                    Err((ErrorCode::UNAVAILABLE_IN_CURRENT_STATUS, depends_on))
                }
            };
        }
        if spec.base.checked_add(spec.size).is_none() {
            return Err((ErrorCode::INVALID_PARAMS, SequenceId(0)));
        }
        if self.core.segments.len() >= MAX_MOUNTED {
            return Err((ErrorCode::INVALID_PARAMS, self.core.last));
        }
        self.make_way(spec, client)?;
        let number = SegmentNumber(self.core.next_segment);
        Ok(self.commit(&Record::MountSegment { segment: *spec, number, client }))
    }

    /// No byte may be given out twice (INV-5), so no two segments may share one. If the memory at that endpoint belongs
    /// to another client, that client is gone: its process had the port that is now somebody else's. If it belongs to
    /// the same client, the client is confused, unless it has not told this primary yet which of its segments are left.
    fn make_way(&mut self, spec: &SegmentSpec<'_>, client: Uuid) -> Result<(), (ErrorCode, SequenceId)> {
        if spec.te_endpoint.is_empty() {
            return Ok(());
        }
        let owner = |number| Some((number, self.core.segments.get(&number)?.segment.client));
        let overlaps: Vec<(SegmentNumber, Uuid)> = self.core.atlas.under(spec).filter_map(owner).collect();
        if overlaps.is_empty() {
            return Ok(());
        }
        let inherited = self.engine.client(client).is_some_and(|known| known.inherited);
        let current = |number: SegmentNumber| !inherited || number >= self.core.reign.first_segment;
        if overlaps.iter().any(|(number, owner)| *owner == client && current(*number)) {
            return Err((ErrorCode::INVALID_PARAMS, self.core.last));
        }
        for (number, _) in overlaps {
            self.commit(&Record::UnmountSegment { number });
        }
        Ok(())
    }

    /// A client tells all its segments: what is missing is mounted, and the client counts as alive. Of a client that the
    /// primary before knew, those that it had then and does not tell any more are gone.
    pub fn remount(&mut self, specs: &[SegmentSpec<'_>], client: Uuid) -> Answer<()> {
        if specs.len() > MAX_TOLD {
            return Answer::invalid(ErrorCode::INVALID_PARAMS);
        }
        if self.engine.client(client).is_some_and(|known| known.inherited) {
            return self.remount_inherited(specs, client);
        }
        let contradicts = |spec: &SegmentSpec<'_>| {
            let number = self.core.segment_ids.get(&spec.id);
            number
                .and_then(|number| self.core.segments.get(number))
                .is_some_and(|mounted| mounted.segment.client != client || !mounted.segment.matches(spec))
        };
        if specs.iter().any(contradicts) {
            return Answer::refuse(ErrorCode::INVALID_PARAMS, self.core.last);
        }
        if let Some(known) = self.engine.client(client).filter(|known| known.joined) {
            return Answer::ok((), known.last_record);
        }
        self.mount_all(specs, client)
    }

    fn mount_all(&mut self, specs: &[SegmentSpec<'_>], client: Uuid) -> Answer<()> {
        if specs.iter().any(|spec| spec.base == 0 || spec.size == 0) {
            return Answer::refuse(ErrorCode::INTERNAL_ERROR, self.core.last);
        }
        for spec in specs {
            if let Err((code, depends_on)) = self.mount_one(spec, client) {
                return Answer::refuse(code, depends_on);
            }
        }
        Answer::ok((), self.commit(&Record::ClientJoined { client }))
    }

    /// Segments that are told as they were stay as they are, with all that lies in them; one that is being drained goes
    /// on being drained. What the client mounted since this primary began is not looked for: the client may have made
    /// its list before.
    fn remount_inherited(&mut self, specs: &[SegmentSpec<'_>], client: Uuid) -> Answer<()> {
        let first = self.core.reign.first_segment;
        let contradicts = |spec: &SegmentSpec<'_>| {
            let mounted =
                self.core.segment_ids.get(&spec.id).and_then(|number| self.core.segments.get(number));
            mounted.map(|mounted| &mounted.segment).is_some_and(|segment| {
                segment.client != client || segment.number >= first && !segment.matches(spec)
            })
        };
        if specs.iter().any(contradicts) {
            return Answer::refuse(ErrorCode::INVALID_PARAMS, self.core.last);
        }
        let told: HashMap<Uuid, &SegmentSpec<'_>> = specs.iter().map(|spec| (spec.id, spec)).collect();
        let (mut kept, mut gone) = (HashSet::new(), Vec::new());
        for number in self.engine.client(client).unwrap_or_default().segments {
            let Some(segment) = self.core.segments.get(&number).map(|mounted| &mounted.segment) else {
                continue;
            };
            if told.get(&segment.id).is_some_and(|spec| segment.matches(spec)) {
                kept.insert(segment.id);
            } else if number < first {
                gone.push(number);
            }
        }
        let new: Vec<SegmentSpec<'_>> =
            specs.iter().filter(|spec| !kept.contains(&spec.id)).copied().collect();
        if new.iter().any(|spec| spec.base == 0 || spec.size == 0) {
            return Answer::refuse(ErrorCode::INTERNAL_ERROR, self.core.last);
        }
        for number in gone {
            self.commit(&Record::UnmountSegment { number });
        }
        self.mount_all(&new, client)
    }

    /// Takes memory out of the pool; every replica in it is gone. Unknown segments are gone already.
    pub fn unmount(&mut self, id: Uuid) -> Answer<()> {
        match self.core.segment_ids.get(&id).copied() {
            None => Answer::ok((), self.core.last),
            Some(number) => Answer::ok((), self.commit(&Record::UnmountSegment { number })),
        }
    }

    /// Takes memory out of the pool after a while in which nothing new is placed there.
    pub fn graceful_unmount(&mut self, id: Uuid, client: Uuid, grace_ms: u64) -> Answer<()> {
        let last = self.core.last;
        let known = self.engine.client(client).filter(|known| !known.segments.is_empty());
        let Some(known) = known else { return Answer::refuse(ErrorCode::SEGMENT_NOT_FOUND, last) };
        let number = self.core.segment_ids.get(&id).copied().filter(|number| known.segments.contains(number));
        let Some(number) = number else { return Answer::refuse(ErrorCode::INVALID_PARAMS, last) };
        if grace_ms == 0 {
            return Answer::ok((), self.commit(&Record::UnmountSegment { number }));
        }
        let until = self.now.plus(grace_ms);
        let mounted = self.core.segments.get(&number);
        // Asked again, the earlier end holds.
        if mounted.and_then(|mounted| mounted.drain_until).is_some_and(|already| already <= until) {
            return Answer::ok((), last);
        }
        Answer::ok((), self.commit(&Record::DrainSegment { number, until }))
    }

    /// A client was not heard from in time.
    pub fn expire_client(&mut self, client: Uuid) -> SequenceId {
        if self.engine.client(client).is_none() {
            return self.core.last;
        }
        self.commit(&Record::ClientExpired { client })
    }
}

impl Engine {
    /// The last record, when it is applied in whole: what whoever has looked at segments or clients and missed something
    /// rests on (INV-3). [`Engine::applied`] may be behind what can be seen by one record.
    #[must_use]
    pub fn settled(&self) -> SequenceId {
        self.sequencer(LogTime(0)).core.last
    }

    /// The status of the segment of that name. Of several it is the one that was mounted last: the reference takes
    /// the first that its hash table shows, and new ones come first there.
    pub fn segment_status(&self, name: &[u8]) -> Answer<SegmentStatus> {
        self.status_of(|segment| *segment.name == *name)
    }

    /// The status of the segment with that id.
    pub fn segment_status_by_id(&self, id: Uuid) -> Answer<SegmentStatus> {
        self.status_of(|segment| segment.id == id)
    }

    fn status_of(&self, wanted: impl Fn(&crate::engine::segment::Segment) -> bool) -> Answer<SegmentStatus> {
        let status = {
            let segments = self.segments.read();
            let found = segments.values().filter(|segment| wanted(segment));
            found.max_by_key(|segment| segment.number).map(|segment| segment.status())
        };
        // One that was mounted later and is gone would have been the answer, so this rests on what took it away (INV-3).
        let rests_on = self.settled();
        match status {
            Some(status) => Answer::ok(status, rests_on),
            None => Answer::refuse(ErrorCode::SEGMENT_NOT_FOUND, rests_on),
        }
    }
}
