//! Mounting and unmounting memory, and the clients that offer it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::engine::chunks::Chunks;
use crate::engine::record::Record;
use crate::engine::segment::{Segment, SegmentSpec, SegmentStatus};
use crate::engine::state::{Engine, Sequencer};
use crate::engine::types::{Answer, ErrorCode, LogTime, SegmentNumber, SequenceId, Uuid};

/// Most segments that a client may report in one call. Transports register memory in pieces of at least a gibibyte, so
/// this allows 4 TiB.
pub const MAX_TOLD: usize = 4096;

/// Segments that are mounted or unmounted before the sequencer is released to other clients: about half a millisecond.
pub(super) const STEP: usize = 64;

/// Most attempts of a remount, which starts over if another record interferes.
const ROUNDS: usize = 3;

/// Most segments that all clients together may mount: each takes a kilobyte or two here and on every standby.
pub const MAX_MOUNTED: usize = 65_536;

impl Sequencer<'_> {
    /// Adds a client's memory to the pool. Mounting a segment id that is mounted already changes nothing.
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

    /// Unmounts segments that share memory with a new one, because no byte may be allocated twice (INV-5). If they
    /// belong to another client, that client is gone: its endpoint now belongs to the process of this one. If one
    /// belongs to the same client, the mount is refused as a mistake, unless it is of an earlier term and the client
    /// has not reported to this primary yet which of its segments are left.
    fn make_way(&mut self, spec: &SegmentSpec<'_>, client: Uuid) -> Result<(), (ErrorCode, SequenceId)> {
        if spec.te_endpoint.is_empty() {
            return Ok(());
        }
        let owner = |number| Some((number, self.core.segments.get(&number)?.segment.client));
        let overlaps: Vec<(SegmentNumber, Uuid)> =
            self.core.segment_ranges.under(spec).filter_map(owner).collect();
        if overlaps.is_empty() {
            return Ok(());
        }
        let inherited = self.engine.client(client).is_some_and(|known| known.inherited);
        let current = |number: SegmentNumber| !inherited || number >= self.core.term_state.first_segment;
        if overlaps.iter().any(|(number, owner)| *owner == client && current(*number)) {
            return Err((ErrorCode::INVALID_PARAMS, self.core.last));
        }
        for (number, _) in overlaps {
            self.commit(&Record::UnmountSegment { number });
        }
        Ok(())
    }

    /// Returns what to mount and unmount for a client that reports all its segments, or the answer if there is nothing
    /// to do.
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

    /// Does the same for an inherited client. Segments that are reported unchanged stay, with all objects in them; one
    /// that is being drained goes on being drained. A segment that the client mounted in this term stays even if it is
    /// not reported: the client may have made its list before that mount.
    fn plan_inherited<'a>(&self, specs: &[SegmentSpec<'a>], client: Uuid) -> Result<Remount<'a>, Answer<()>> {
        let first = self.core.term_state.first_segment;
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

    /// Returns the mounted segment with that id.
    fn mounted_as(&self, id: Uuid) -> Option<&Arc<Segment>> {
        let number = self.core.segment_ids.get(&id)?;
        self.core.segments.get(number).map(|mounted| &mounted.segment)
    }

    /// Commits `ClientJoined` if all these segments are mounted by the client; returns `None` if not.
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

    /// Removes memory from the pool, and with it every replica there. An unknown segment counts as unmounted.
    pub fn unmount(&mut self, id: Uuid) -> Answer<()> {
        match self.core.segment_ids.get(&id).copied() {
            None => Answer::ok((), self.core.last),
            Some(number) => Answer::ok((), self.commit(&Record::UnmountSegment { number })),
        }
    }

    /// Drains a segment: nothing new is placed there, and it is unmounted after `grace_ms`.
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
        // A repeated call does not postpone the unmount.
        if mounted.and_then(|mounted| mounted.drain_until).is_some_and(|already| already <= until) {
            return Answer::ok((), last);
        }
        Answer::ok((), self.commit(&Record::DrainSegment { number, until }))
    }

    /// Unmounts some segments of a client that has timed out. If few are left, or in the `last` step however many the
    /// client has mounted meanwhile, removes the client with all of them and returns the record that did so.
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

/// What to change for a client that reports all its segments.
struct Remount<'a> {
    /// Segments that the client no longer has.
    gone: Vec<SegmentNumber>,
    /// Segments that are not mounted yet.
    new: Vec<SegmentSpec<'a>>,
}

impl Engine {
    /// Handles a client's report of all its segments: mounts missing ones and joins the client. For an inherited client
    /// it also unmounts segments of earlier terms that are no longer reported. Releases the sequencer after every few
    /// segments; the client is joined only when all are mounted.
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
        let rests_on = if self.is_sealed() { SequenceId::NEVER } else { self.last_visible() };
        Answer::refuse(ErrorCode::INTERNAL_ERROR, rests_on)
    }

    /// Removes a client that has timed out, and its segments. Releases the sequencer after every few segments.
    pub fn expire_client(&self, client: Uuid, now: LogTime) -> SequenceId {
        self.expire_client_while(client, now, &mut || true).unwrap_or(SequenceId(0))
    }

    /// Like [`Self::expire_client`], but asks before each chunk. Returns `None` if that stopped it: the client is still
    /// there.
    pub fn expire_client_while(
        &self,
        client: Uuid,
        now: LogTime,
        chunks: &mut dyn Chunks,
    ) -> Option<SequenceId> {
        let segments = self.clients.read().get(&client).map_or(0, |known| known.segments.len());
        for step in 0..=segments / STEP {
            if !chunks.next_chunk() {
                return None;
            }
            let last = step == segments / STEP;
            let expire = |sequencer: &mut Sequencer<'_>| sequencer.expire_some(client, last);
            if let Some(done) = self.run_chunk(now, chunks, expire) {
                return Some(done);
            }
        }
        None
    }

    /// Returns the last record whose effects can have been seen. An answer made by reading segments, clients or all
    /// objects depends on it, because that record may be why something was missing (INV-3). [`Engine::applied`] may be
    /// behind it by one record. Does not wait for the sequencer.
    #[must_use]
    pub fn last_visible(&self) -> SequenceId {
        planted!(RegexNoWait => return SequenceId(0));
        SequenceId(self.begun.load(Ordering::Acquire))
    }

    /// Returns the status of the segment of that name. Of several it is the one that was mounted last: the reference
    /// takes the first in its hash table, and new ones come first there.
    pub fn segment_status(&self, name: &[u8]) -> Answer<SegmentStatus> {
        self.status_of(|segment| *segment.name == *name)
    }

    /// Returns the status of the segment with that id.
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
        // A segment that was mounted later and is gone would have been the answer, so this depends on its unmount
        // (INV-3).
        let rests_on = self.last_visible();
        match status {
            Some(status) => Answer::ok(status, rests_on),
            None => Answer::refuse(ErrorCode::SEGMENT_NOT_FOUND, rests_on),
        }
    }
}
