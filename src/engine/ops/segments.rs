//! Mounting and unmounting memory, and the clients that offer it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::record::Record;
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{Answer, ErrorCode, LogTime, SegmentNumber, SequenceId, Uuid};
#[cfg(feature = "planted")]
use crate::planted::{self, Bug};

/// A client may tell so many segments in one call. With the smallest pieces that transports register memory in, a gibibyte,
/// that is 4 TiB.
pub const MAX_TOLD: usize = 4096;

/// So many segments are mounted or unmounted before other clients get their turn: half a millisecond or so.
pub(super) const STEP: usize = 64;

/// A remount begins anew if another record gets in its way, but not more often than this.
const ROUNDS: usize = 3;

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

    /// What there is to do for a client that tells all its segments.
    fn plan_remount<'a>(&self, specs: &[SegmentSpec<'a>], client: Uuid) -> Result<Remount<'a>, Answer<()>> {
        let known = self.engine.clients.read().get(&client).map(|known| (known.inherited, known.joined));
        if let Some((true, _)) = known {
            return self.plan_inherited(specs, client);
        }
        let contradicts = |spec: &SegmentSpec<'_>| {
            self.mounted_as(spec.id).is_some_and(|segment| segment.client != client || !segment.matches(spec))
        };
        if specs.iter().any(contradicts) {
            return Err(Answer::refuse(ErrorCode::INVALID_PARAMS, self.core.last));
        }
        if let Some((_, true)) = known {
            let depends_on = self.engine.client(client).map_or(self.core.last, |known| known.last_record);
            return Err(Answer::ok((), depends_on));
        }
        self.checked(Remount { gone: Vec::new(), new: specs.to_vec() })
    }

    /// Of a client that the primary before knew. Segments that are told as they were stay as they are, with all that lies
    /// in them; one that is being drained goes on being drained. What the client mounted since this primary began is not
    /// looked for: the client may have made its list before.
    fn plan_inherited<'a>(&self, specs: &[SegmentSpec<'a>], client: Uuid) -> Result<Remount<'a>, Answer<()>> {
        let first = self.core.reign.first_segment;
        let contradicts = |spec: &SegmentSpec<'_>| {
            self.mounted_as(spec.id).is_some_and(|segment| {
                segment.client != client || segment.number >= first && !segment.matches(spec)
            })
        };
        if specs.iter().any(contradicts) {
            return Err(Answer::refuse(ErrorCode::INVALID_PARAMS, self.core.last));
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
        let new = specs.iter().filter(|spec| !kept.contains(&spec.id)).copied().collect();
        self.checked(Remount { gone, new })
    }

    fn checked<'a>(&self, plan: Remount<'a>) -> Result<Remount<'a>, Answer<()>> {
        if plan.new.iter().any(|spec| spec.base == 0 || spec.size == 0) {
            return Err(Answer::refuse(ErrorCode::INTERNAL_ERROR, self.core.last));
        }
        Ok(plan)
    }

    /// The mounted segment with that id.
    fn mounted_as(&self, id: Uuid) -> Option<&Arc<Segment>> {
        let number = self.core.segment_ids.get(&id)?;
        self.core.segments.get(number).map(|mounted| &mounted.segment)
    }

    /// Counts the client as alive, if all its segments are mounted.
    fn join(&mut self, specs: &[SegmentSpec<'_>], client: Uuid) -> Option<SequenceId> {
        let owns =
            |spec: &SegmentSpec<'_>| self.mounted_as(spec.id).is_some_and(|segment| segment.client == client);
        specs.iter().all(owns).then(|| self.commit(&Record::ClientJoined { client }))
    }

    /// Unmounts those of the segments that the client still has.
    fn unmount_of(&mut self, client: Uuid, numbers: &[SegmentNumber]) {
        for number in numbers {
            if self.core.segments.get(number).is_some_and(|mounted| mounted.segment.client == client) {
                self.commit(&Record::UnmountSegment { number: *number });
            }
        }
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

    /// Unmounts some segments of a client that was not heard from in time, or with the last of them ends the client:
    /// then the record that did so is returned. A client that goes on mounting is ended all the same when it is the `last`
    /// step.
    fn expire_some(&mut self, client: Uuid, last: bool) -> Option<SequenceId> {
        let segments: Option<Vec<SegmentNumber>> = {
            let clients = self.engine.clients.read();
            clients.get(&client).map(|known| known.segments.iter().take(STEP + 1).copied().collect())
        };
        match segments {
            None => Some(self.core.last),
            Some(_) if self.engine.is_sealed() => Some(SequenceId::NEVER),
            Some(segments) if segments.len() > STEP && !last => {
                self.unmount_of(client, &segments[..STEP]);
                None
            }
            Some(_) => Some(self.commit(&Record::ClientExpired { client })),
        }
    }
}

/// What a client that tells its segments makes necessary.
struct Remount<'a> {
    /// Segments that the client no longer has.
    gone: Vec<SegmentNumber>,
    /// Segments to mount.
    new: Vec<SegmentSpec<'a>>,
}

impl Engine {
    /// A client tells all its segments: what is missing is mounted, and the client counts as alive. Of a client that the
    /// primary before knew, those that it had then and does not tell any more are gone. Other clients get their turn
    /// between a few segments; the client is joined when all are there.
    pub fn remount(&self, specs: &[SegmentSpec<'_>], client: Uuid, now: LogTime) -> Answer<()> {
        if specs.len() > MAX_TOLD {
            return Answer::invalid(ErrorCode::INVALID_PARAMS);
        }
        for _ in 0..ROUNDS {
            let plan = match self.sequencer(now).plan_remount(specs, client) {
                Ok(plan) => plan,
                Err(answer) => return answer,
            };
            for gone in plan.gone.chunks(STEP) {
                self.sequencer(now).unmount_of(client, gone);
            }
            for new in plan.new.chunks(STEP) {
                let mut sequencer = self.sequencer(now);
                for spec in new {
                    if let Err((code, depends_on)) = sequencer.mount_one(spec, client) {
                        return Answer::refuse(code, depends_on);
                    }
                }
            }
            // The client may have expired meanwhile, or another client may have taken its address.
            if let Some(joined) = self.sequencer(now).join(specs, client) {
                return Answer::ok((), joined);
            }
        }
        let rests_on = if self.is_sealed() { SequenceId::NEVER } else { self.settled() };
        Answer::refuse(ErrorCode::INTERNAL_ERROR, rests_on)
    }

    /// A client was not heard from in time: it and its segments are gone. Other clients get their turn between a few
    /// segments.
    pub fn expire_client(&self, client: Uuid, now: LogTime) -> SequenceId {
        self.expire_client_while(client, now, &mut || true).unwrap_or(SequenceId(0))
    }

    /// [`Self::expire_client`], asking before each chunk whether to go on. `None` if it did not come to the end: the client
    /// is still there.
    pub fn expire_client_while(
        &self,
        client: Uuid,
        now: LogTime,
        go_on: &mut impl FnMut() -> bool,
    ) -> Option<SequenceId> {
        let segments = self.clients.read().get(&client).map_or(0, |known| known.segments.len());
        for step in 0..=segments / STEP {
            if !go_on() {
                return None;
            }
            let last = step == segments / STEP;
            if let Some(done) = self.sequencer(now).expire_some(client, last) {
                return Some(done);
            }
        }
        None
    }

    /// The last record of which anything can have been seen: what an answer rests on that was made by looking at segments,
    /// clients or all objects, and may have missed something (INV-3). [`Engine::applied`] may be behind it by one record.
    /// It does not wait for the sequencer.
    #[must_use]
    pub fn settled(&self) -> SequenceId {
        #[cfg(feature = "planted")]
        if planted::active(Bug::RegexNoWait) {
            return SequenceId(0);
        }
        SequenceId(self.begun.load(Ordering::Acquire))
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

    fn status_of(&self, wanted: impl Fn(&Segment) -> bool) -> Answer<SegmentStatus> {
        let mut status = None;
        self.each_segment(|segment| {
            if wanted(segment) {
                status = Some(segment.status());
            }
        });
        // One that was mounted later and is gone would have been the answer, so this rests on what took it away (INV-3).
        let rests_on = self.settled();
        match status {
            Some(status) => Answer::ok(status, rests_on),
            None => Answer::refuse(ErrorCode::SEGMENT_NOT_FOUND, rests_on),
        }
    }
}
