//! Finds the records that are about one key. Only the Start names the key; later records name the object by its id,
//! alone or in a list, or have a rule that may match it.

use std::collections::BTreeMap;

use crate::engine::record::{LeaseBucket, ObjectRef, Record};
use crate::engine::types::{LogTime, ObjectId, SequenceId};
use crate::replication::codec::json;

/// Most objects of one key that are followed at once. Unless records are missing, all but the last are gone, and only
/// the release of their bytes is still to come.
const MOST: usize = 1024;

/// The objects that one key has had.
#[derive(Debug)]
pub(super) struct KeyFilter {
    key: Vec<u8>,
    objects: BTreeMap<u64, Seen>,
}

/// What the log has shown about an object so far.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    lease: LogTime,
    /// A rule matched it, and no record has named it since.
    maybe_gone: bool,
}

impl KeyFilter {
    pub(super) fn new(key: &[u8]) -> Self {
        Self { key: key.into(), objects: BTreeMap::new() }
    }

    /// Passes the record to `show`, together with the key, if it is about that key; of a list only the part that is.
    pub(super) fn about<E>(
        &mut self,
        id: SequenceId,
        at: LogTime,
        record: &Record<'_>,
        mut show: impl FnMut(&Record<'_>, &[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        match *record {
            Record::Remove { objects, source } => {
                let ours: Vec<ObjectRef> =
                    objects.iter().filter(|object| self.names(object.id)).copied().collect();
                let record = Record::Remove { objects: &ours, source };
                if ours.is_empty() { Ok(()) } else { show(&record, &self.key) }
            }
            Record::Sweep { objects } => {
                let ours: Vec<ObjectId> =
                    objects.iter().filter(|object| self.names(**object)).copied().collect();
                let record = Record::Sweep { objects: &ours };
                if ours.is_empty() { Ok(()) } else { show(&record, &self.key) }
            }
            Record::RenewLeases { leases } => {
                let ours: Vec<(ObjectId, LogTime)> =
                    leases.iter().filter(|(object, _)| self.names(*object)).copied().collect();
                for (object, until) in &ours {
                    self.promised(*object, *until);
                }
                let record = Record::RenewLeases { leases: &ours };
                if ours.is_empty() { Ok(()) } else { show(&record, &self.key) }
            }
            _ if self.is_about(id, at, record) => show(record, &self.key),
            _ => Ok(()),
        }
    }

    fn is_about(&mut self, id: SequenceId, at: LogTime, record: &Record<'_>) -> bool {
        match *record {
            Record::RemoveAll { from, up_to, .. } => {
                self.objects.range(from.0..=up_to.0.max(from.0)).next().is_some()
            }
            Record::Evict(rule) => {
                let mut fits = false;
                for (object, seen) in self.objects.iter_mut().filter(|(_, seen)| !seen.maybe_gone) {
                    // Its group or a pin may have kept it; that is not in the log.
                    let place = (LeaseBucket::of(seen.lease), ObjectId(*object));
                    seen.maybe_gone = seen.lease != LogTime(0) && (rule.from..=rule.up_to).contains(&place);
                    fits |= seen.maybe_gone;
                }
                fits
            }
            Record::Release { reservation } => self.names(ObjectId(reservation.0)),
            _ if json::key(record) == Some(&self.key) => {
                if !matches!(record, Record::TaskCreated { .. }) {
                    self.follow(id);
                }
                true
            }
            _ => {
                let Some(object) = json::object(record).filter(|object| self.names(object.id)) else {
                    return false;
                };
                match record {
                    Record::End { .. } => self.promised(object.id, at),
                    // Bytes are kept under the id of this record, by which their Release names them.
                    Record::Discard { .. } | Record::ReplicationEnd { .. } => self.follow(id),
                    _ => {}
                }
                true
            }
        }
    }

    fn names(&mut self, object: ObjectId) -> bool {
        let seen = self.objects.get_mut(&object.0);
        let found = seen.is_some();
        seen.into_iter().for_each(|seen| seen.maybe_gone = false);
        found
    }

    fn promised(&mut self, object: ObjectId, until: LogTime) {
        if let Some(seen) = self.objects.get_mut(&object.0) {
            seen.lease = seen.lease.max(until);
        }
    }

    fn follow(&mut self, id: SequenceId) {
        self.objects.insert(id.0, Seen::default());
        if self.objects.len() > MOST {
            self.objects.pop_first();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::key::Key;
    use crate::engine::record::Place;
    use crate::engine::record::{EvictRule, RemoveSource, SoftPin, Start};
    use crate::engine::types::{SegmentNumber, Uuid};

    fn start(key: &[u8]) -> Start<'_> {
        const PLACES: &[Place] = &[Place { segment: SegmentNumber(0), offset: 0 }];
        Start {
            key: Key::new(key),
            client: Uuid::default(),
            size: 1,
            places: PLACES,
            hard_pin: false,
            soft_pin: SoftPin::Preserve,
            group: None,
            data_type: 0,
        }
    }

    fn object(id: u64) -> ObjectRef {
        ObjectRef { id: ObjectId(id), after: SequenceId(id) }
    }

    #[test]
    fn a_key_is_followed_by_its_objects() {
        let mut follow = KeyFilter::new(b"mine");
        let mut id = 0;
        let mut shown = |record: &Record<'_>| {
            id += 1;
            let mut seen = None;
            let look = |record: &Record<'_>, key: &[u8]| {
                assert_eq!(key, b"mine");
                seen = Some(format!("{record:?}"));
                Ok::<_, ()>(())
            };
            follow.about(SequenceId(id), LogTime(1000 * id), record, look).unwrap();
            seen
        };
        let rule = |bucket, id| {
            let up_to = (LeaseBucket(bucket), ObjectId(id));
            let from = (LeaseBucket(0), ObjectId(0));
            Record::Evict(EvictRule { from, up_to, soft_pinned: false, reserved_since: SequenceId(0) })
        };
        let all = |from, up_to| Record::RemoveAll {
            from: ObjectId(from),
            up_to: ObjectId(up_to),
            force: false,
            reserved_since: SequenceId(0),
        };
        assert!(shown(&all(0, 100)).is_none(), "before it was there");
        assert!(shown(&Record::PutStart(start(b"other"))).is_none());
        assert!(shown(&Record::PutStart(start(b"mine"))).is_some());
        assert!(shown(&Record::End { object: object(2), checksum: None }).is_none());
        assert!(shown(&rule(10_000, 9)).is_none(), "what is being written is not evicted");
        assert!(shown(&Record::End { object: object(3), checksum: None }).is_some());
        assert!(shown(&rule(90, 9)).is_none(), "its lease is longer");
        assert!(shown(&rule(95, 9)).is_some());
        assert!(shown(&rule(96, 9)).is_none(), "told already");
        let listed =
            shown(&Record::RenewLeases { leases: &[(ObjectId(2), LogTime(1)), (ObjectId(3), LogTime(2))] });
        assert_eq!(listed.unwrap(), "RenewLeases { leases: [(ObjectId(3), LogTime(2))] }");
        assert!(shown(&rule(96, 9)).is_some(), "it was still there");
        assert!(shown(&all(3, 3)).is_some());
        assert!(shown(&all(4, 100)).is_none());
        assert!(shown(&Record::Discard { object: object(3), release_at: LogTime(0) }).is_some());
        assert!(shown(&Record::Release { reservation: SequenceId(14) }).is_some(), "by the record before");
        let record = Record::Remove { objects: &[object(2)], source: RemoveSource::Regex };
        assert!(shown(&record).is_none());
    }
}
