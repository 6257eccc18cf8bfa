//! The log as etcd has it, and what it means: every batch is checked when it is committed (INV-1, INV-2, R1), applied to
//! a state that nothing else touches, and remembered, so that whatever a master says can be compared with it.

use std::collections::{BTreeMap, BTreeSet};

use moonkeeper::cluster::keys::Keys;
use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::coordination::types::{Change, LeaseId};
use moonkeeper::engine::Engine;
use moonkeeper::engine::format::Format;
use moonkeeper::engine::object::Object;
use moonkeeper::engine::record::{EvictRule, LeaseBucket, Record};
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::Digest;
use moonkeeper::engine::types::{ErrorCode, LogTime, ObjectId, SequenceId, Term, Uuid};
use moonkeeper::replication::batch::{Batch, Header};

use super::claims::{Bytes, Rewritten, bytes_of};

/// What there was under a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Nothing,
    /// Something that nobody can read.
    Unready,
    /// An object and where it lies.
    Readable(ObjectId, Vec<Bytes>),
}

impl Seen {
    /// What an object says of itself.
    pub fn of(object: &Object) -> (ObjectId, Vec<Bytes>) {
        let readable = object.replicas().filter(|replica| replica.is_readable());
        (object.id, readable.map(|replica| bytes_of(replica, object.size)).collect())
    }

    /// The answer to a read.
    pub fn answer(answer: Result<(ObjectId, Vec<Bytes>), ErrorCode>) -> Self {
        match answer {
            Ok((object, bytes)) => Self::Readable(object, bytes),
            Err(ErrorCode::REPLICA_IS_NOT_READY) => Self::Unready,
            Err(_) => Self::Nothing,
        }
    }
}

/// How a term ended in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The lease ran out.
    Expired,
    /// The lease was revoked.
    Revoked(u64),
    /// The key was deleted on purpose.
    HandedOver,
}

/// Why something changed in etcd.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Time passed.
    Time,
    /// A lease was revoked.
    Revocation,
    /// A transaction.
    Transaction,
    /// An operator, past all masters.
    Hand,
}

/// The log and what it means.
pub struct Truth {
    keys: Keys,
    pub engine: Engine,
    /// The digest before the first record.
    empty: Digest,
    log: Option<LogId>,
    pub last: SequenceId,
    checksum: Checksum,
    term: Term,
    /// The format of the last batch.
    format: Option<Format>,
    /// The term and the digest after each record, from the first one on.
    records: Vec<(Term, Digest)>,
    /// The batches, by their last record.
    pub batches: BTreeMap<SequenceId, (Header, Checksum)>,
    /// The records that are digests of the state before them.
    pub digests: BTreeSet<SequenceId>,
    /// What was under each key, from which record on.
    versions: BTreeMap<Vec<u8>, Vec<(SequenceId, Seen)>>,
    objects: BTreeMap<ObjectId, Vec<u8>>,
    /// Who leads.
    pub leader: Option<(Term, LeaseId)>,
    /// Where the log ended when each term began.
    pub elections: BTreeMap<Term, SequenceId>,
    /// How terms ended.
    pub endings: BTreeMap<Term, Ending>,
    /// The first record of each batch, and the revision that wrote it.
    revisions: Vec<(SequenceId, u64)>,
    /// The keys of batches that were ever written.
    written: BTreeSet<SequenceId>,
    /// When the log began, in real time and in its own.
    began: Option<(u64, LogTime)>,
    /// What became of objects that were written in place.
    pub rewritten: Rewritten,
    /// The state of a master was corrupted: it may write digests that do not match.
    pub corruption: bool,
    /// What happened since it was last asked.
    pub news: News,
}

/// What happened to the log.
#[derive(Default)]
pub struct News {
    /// A term began in etcd.
    pub elected: Option<Term>,
    /// Batches, as text.
    pub batches: Vec<String>,
    /// Something may have lost its bytes.
    pub frees: bool,
    /// Clients that were not heard from in time.
    pub expired: Vec<(SequenceId, Uuid)>,
    /// The last record that evicted objects.
    pub evicted: Option<SequenceId>,
    /// Objects that were reserved in their term and went while others were held.
    pub exempt: u64,
    /// The log was raised to a newer format.
    pub raised: bool,
}

type Broken = (&'static str, String);

impl Truth {
    pub fn new(keys: Keys) -> Self {
        let engine = Engine::new(EngineSettings::default());
        let empty = engine.sequencer(LogTime(0)).digest();
        Self {
            keys,
            engine,
            empty,
            log: None,
            last: SequenceId(0),
            checksum: Checksum(0),
            term: Term(0),
            format: None,
            records: Vec::new(),
            batches: BTreeMap::new(),
            digests: BTreeSet::new(),
            versions: BTreeMap::new(),
            objects: BTreeMap::new(),
            leader: None,
            elections: BTreeMap::new(),
            endings: BTreeMap::new(),
            revisions: Vec::new(),
            written: BTreeSet::new(),
            began: None,
            rewritten: Rewritten::default(),
            corruption: false,
            news: News::default(),
        }
    }

    /// The log that is written.
    pub fn log(&self) -> Option<LogId> {
        self.log
    }

    /// The term of the batch that a record is in.
    pub fn term_of(&self, id: SequenceId) -> Option<Term> {
        self.records.get(usize::try_from(id.0.checked_sub(1)?).ok()?).map(|record| record.0)
    }

    /// The digest after a record.
    pub fn digest_at(&self, id: SequenceId) -> Option<Digest> {
        if id.0 == 0 {
            return Some(self.empty);
        }
        self.records.get(usize::try_from(id.0 - 1).ok()?).map(|record| record.1)
    }

    /// The last record, of those up to `id`, that a primary of `term` shares with the log.
    pub fn shared(&self, term: Term, id: SequenceId) -> SequenceId {
        let upto = usize::try_from(id.0).unwrap_or(usize::MAX).min(self.records.len());
        SequenceId(self.records[..upto].partition_point(|record| record.0 <= term) as u64)
    }

    /// The revision of the first batch that whoever is at `applied` does not have.
    pub fn revision_after(&self, applied: SequenceId) -> Option<u64> {
        let known = self.revisions.partition_point(|(first, _)| *first <= applied);
        self.revisions.get(known).map(|(_, revision)| *revision)
    }

    /// What was under a key after a record.
    pub fn seen_at(&self, key: &[u8], id: SequenceId) -> Seen {
        let Some(versions) = self.versions.get(key) else { return Seen::Nothing };
        let after = versions.partition_point(|version| version.0 <= id);
        versions[..after].last().map_or(Seen::Nothing, |version| version.1.clone())
    }

    /// What is under a key.
    pub fn seen(&self, key: &[u8]) -> Seen {
        Seen::answer(self.engine.peek(key, Seen::of).result)
    }

    /// The keys that ever had an object.
    pub fn known_keys(&self) -> Vec<Vec<u8>> {
        self.versions.keys().cloned().collect()
    }

    /// Something changed in etcd.
    pub fn changed(&mut self, now: u64, change: &Change, cause: Cause) -> Result<(), Broken> {
        match change {
            Change::Put(entry) if entry.key == self.keys.election() => {
                if entry.version != 1 {
                    return Err(("election", "the election key was overwritten".into()));
                }
                let term = Term(entry.create_revision);
                self.leader = Some((term, entry.lease));
                self.elections.insert(term, self.last);
                self.news.elected = Some(term);
                Ok(())
            }
            Change::Deleted { key, .. } if *key == self.keys.election() => {
                if let Some((term, _)) = self.leader.take() {
                    let ending = match cause {
                        Cause::Time => Ending::Expired,
                        Cause::Revocation => Ending::Revoked(now),
                        Cause::Transaction | Cause::Hand => Ending::HandedOver,
                    };
                    self.endings.insert(term, ending);
                }
                Ok(())
            }
            Change::Put(entry) if self.keys.batches().contains(&entry.key) => {
                let last = self.last;
                self.batch(now, &entry.key, &entry.value)?;
                self.revisions.push((SequenceId(last.0 + 1), entry.mod_revision));
                Ok(())
            }
            Change::Put(entry) if entry.key == self.keys.latest() => {
                let latest =
                    Latest::from_bytes(&entry.value).map_err(|error| ("INV-1", error.to_string()))?;
                let fits = latest.last == self.last && latest.checksum == self.checksum;
                if fits { Ok(()) } else { Err(("INV-2", format!("{latest:?} does not end the log"))) }
            }
            _ => Ok(()),
        }
    }

    fn batch(&mut self, now: u64, key: &[u8], value: &[u8]) -> Result<(), Broken> {
        let batch = Batch::open(value).map_err(|error| ("INV-1", error.to_string()))?;
        let header = batch.header;
        let broken = |what: &str| Err(("INV-1", format!("{what}: {header:?} after {:?}", self.last)));
        if *key != *self.keys.batch(header.log, header.first) {
            return broken("a batch under another's key");
        }
        if self.log.is_some_and(|log| log != header.log) {
            return Err(("history", format!("another log was begun: {header:?} after {:?}", self.last)));
        }
        if !self.written.insert(header.first) {
            return broken("written twice");
        }
        if header.first.0 != self.last.0 + 1 {
            return broken("a gap or an overlap");
        }
        if header.previous != self.checksum {
            return broken("the chain is broken");
        }
        if header.term < self.term {
            return broken("an earlier term");
        }
        if self.leader.map(|leader| leader.0) != Some(header.term) {
            return Err(("R1", format!("{header:?} was written while {:?} leads", self.leader)));
        }
        (self.log, self.checksum, self.term) = (Some(header.log), batch.checksum, header.term);
        let before = self.format.replace(header.format);
        self.news.raised |= before.is_some_and(|before| before < header.format);
        let mut kinds = String::new();
        let mut early = None;
        batch.each(|id, at, record| {
            let began = *self.began.get_or_insert((now, at));
            // No clock of a master is faster than ours, and what passes between two primaries is lost.
            if at.0.saturating_sub(began.1.0) > (now - began.0) / 1000 + 10_000 {
                early.get_or_insert((id, at));
            }
            self.apply(header.format, id, at, record);
            kinds.push_str(kind(record));
        });
        if let Some((id, at)) = early {
            return Err(("log time", format!("{id:?} says {at:?}, too soon after {:?}", self.began)));
        }
        self.last = header.last;
        self.batches.insert(header.last, (header, batch.checksum));
        self.news.batches.push(format!("t{} {}..{} {kinds}", header.term.0, header.first.0, header.last.0));
        let faults = self.engine.faults();
        let divergence = self.engine.take_divergence();
        if divergence.digest_mismatches > 0 && !self.corruption {
            return Err(("INV-8", format!("{header:?} has a digest of another state")));
        }
        if faults > 0 || divergence.broken_chains > 0 || divergence.records_out_of_order > 0 {
            return Err((
                "INV-8",
                format!("the log contradicts itself at {header:?}: {faults} {divergence:?}"),
            ));
        }
        Ok(())
    }

    fn apply(&mut self, format: Format, id: SequenceId, at: LogTime, record: &Record<'_>) {
        let objects = self.engine.len();
        let mut sequencer = self.engine.sequencer(at);
        if matches!(record, Record::Digest { digest } if *digest == sequencer.digest()) {
            self.digests.insert(id);
        }
        sequencer.apply(format, id, at, record);
        self.records.push((self.term, sequencer.digest()));
        drop(sequencer);
        if let Record::Evict(EvictRule { reserved_since, .. }) | Record::RemoveAll { reserved_since, .. } =
            record
            && *reserved_since != SequenceId(0)
        {
            self.news.exempt += objects - self.engine.len();
        }
        let touched = |object: &ObjectId| self.objects.get(object).cloned();
        let keys: Vec<Vec<u8>> = match record {
            Record::PutStart(start) => vec![start.key.bytes.to_vec()],
            Record::UpsertStart { start, replaces, .. } => {
                if start.places.is_empty() {
                    self.rewritten.begun(replaces.map(|replaces| replaces.id), ObjectId(id.0));
                }
                vec![start.key.bytes.to_vec()]
            }
            Record::End { object, .. }
            | Record::Revoke { object }
            | Record::Discard { object, .. }
            | Record::ReplicationStart { object, .. }
            | Record::ReplicationEnd { object, .. }
            | Record::ReplicationRevoke { object } => touched(&object.id).into_iter().collect(),
            Record::Remove { objects, .. } => {
                objects.iter().filter_map(|object| touched(&object.id)).collect()
            }
            Record::ClientJoined { .. }
            | Record::MountSegment { .. }
            | Record::DrainSegment { .. }
            | Record::RenewLeases { .. }
            | Record::Resign { .. }
            | Record::Digest { .. } => Vec::new(),
            _ => self.known_keys(),
        };
        match *record {
            Record::End { object, .. } => self.rewritten.ended(object.id, false),
            Record::Revoke { object } | Record::Discard { object, .. } => {
                self.rewritten.ended(object.id, true)
            }
            Record::Release { reservation } => self.rewritten.ended(ObjectId(reservation.0), true),
            _ => {}
        }
        match record {
            Record::ClientExpired { client } => self.news.expired.push((id, *client)),
            Record::Evict(rule) if rule.up_to != (LeaseBucket(0), ObjectId(0)) => {
                self.news.evicted = Some(id)
            }
            _ => {}
        }
        if let Record::PutStart(start) | Record::UpsertStart { start, .. } = record {
            self.objects.insert(ObjectId(id.0), start.key.bytes.to_vec());
        }
        self.news.frees |= !matches!(
            record,
            Record::PutStart(_)
                | Record::End { .. }
                | Record::ClientJoined { .. }
                | Record::MountSegment { .. }
                | Record::RenewLeases { .. }
                | Record::Digest { .. }
        );
        for key in keys {
            let seen = self.seen(&key);
            let versions = self.versions.entry(key).or_default();
            if versions.last().map(|version| &version.1) != Some(&seen) {
                versions.push((id, seen));
            }
        }
    }
}

fn kind(record: &Record<'_>) -> &'static str {
    match record {
        Record::PutStart(_) => "P",
        Record::UpsertStart { .. } => "U",
        Record::End { .. } => "e",
        Record::Revoke { .. } => "r",
        Record::Discard { .. } => "d",
        Record::Release { .. } => "f",
        Record::Remove { .. } => "x",
        Record::ClearReplicas { .. } => "c",
        Record::Sweep { .. } => "s",
        Record::RemoveAll { .. } => "X",
        Record::Evict(_) => "E",
        Record::ReplicationStart { .. } => "C",
        Record::ReplicationEnd { .. } => "n",
        Record::ReplicationRevoke { .. } => "v",
        Record::MountSegment { .. } => "M",
        Record::ClientJoined { .. } => "j",
        Record::DrainSegment { .. } => "D",
        Record::UnmountSegment { .. } => "u",
        Record::ClientExpired { .. } => "!",
        Record::TaskCreated { .. } | Record::TaskAssigned { .. } | Record::TaskDone { .. } => "t",
        Record::MetadataPut { .. } | Record::MetadataDelete { .. } => "m",
        Record::RenewLeases { .. } => "l",
        Record::NewTerm { .. } => "N",
        Record::Resign { .. } => "R",
        Record::Digest { .. } => ".",
    }
}
