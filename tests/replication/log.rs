//! The two ends of the log: a writer that never overwrites a batch or leaves a gap (INV-1), and a follower that applies
//! batches only to the state that the log made.

use std::sync::Arc;
use std::time::Duration;

use moonkeeper::cluster::keys::Keys;
use moonkeeper::cluster::log_end::{Checksum, LogId};
use moonkeeper::coordination::model::Model;
use moonkeeper::coordination::types::{
    Failure, Get, KeyRange, LeaseId, Op, OpResult, Page, Request, Response, Txn,
};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::record::Record;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::state::Log;
use moonkeeper::engine::types::{LogTime, SequenceId, Term, Uuid};
use moonkeeper::replication::batch::Batch;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::log_position::{Offered, Position};
use moonkeeper::replication::queue::Queue;
use moonkeeper::replication::writer::{Discontinuity, End, Writer, Written};

const NOW: Duration = Duration::from_secs(1);

fn joined(number: u64) -> Record<'static> {
    Record::ClientJoined { client: Uuid { first: number, second: 0 } }
}

/// An etcd in which this writer leads.
struct Scene {
    etcd: Model,
    keys: Keys,
    queue: Arc<Queue>,
    writer: Writer,
}

impl Scene {
    fn new() -> Self {
        let (mut etcd, keys) = (Model::new(), Keys::new("demo"));
        let put = |key| Op::Put { key, value: "me".into(), lease: LeaseId(0) };
        let lead = Txn { success: vec![put(keys.election())], ..Txn::default() };
        let Ok(Response::Txn { revision, .. }) = etcd.call(NOW, &Request::Txn(lead)) else { panic!() };
        let end = End { log: LogId(7), last: SequenceId(0), checksum: Checksum(0), latest: None };
        let writer = Writer::new(keys.clone(), Term(revision), end, None);
        Self { etcd, keys, queue: Arc::new(Queue::new(1 << 20)), writer }
    }

    fn append(&self, id: u64) {
        self.append_in(Format::NEWEST, id);
    }

    fn append_in(&self, format: Format, id: u64) {
        self.queue.append(format, SequenceId(id), LogTime(id), &joined(id));
    }

    fn send(&mut self, txn: Txn) -> Result<Response, Failure> {
        self.etcd.call(NOW, &Request::Txn(txn))
    }

    fn write(&mut self) -> Written {
        let txn = self.writer.next(&self.queue).unwrap().unwrap();
        let answer = self.send(txn);
        self.writer.answered(answer, &self.queue)
    }

    fn batches(&mut self) -> Page {
        let get = Request::Get(Get::all(self.keys.batches()));
        let Ok(Response::Got { page, .. }) = self.etcd.call(NOW, &get) else { panic!() };
        page
    }

    fn put(&mut self, key: bytes::Bytes, value: &'static str) {
        let put = Op::Put { key, value: value.into(), lease: LeaseId(0) };
        self.send(Txn { success: vec![put], ..Txn::default() }).unwrap();
    }
}

#[test]
fn records_that_do_not_follow_the_end_of_the_log_are_not_sent() {
    // A record of an earlier term that was left in the queue (lower), and one that was lost (higher).
    for first in [1, 4] {
        let mut scene = Scene::new();
        (1..=2).for_each(|id| scene.append(id));
        assert_eq!(scene.write(), Written::Durable(SequenceId(2)));
        scene.append(first);
        let gap = Discontinuity { end: SequenceId(2), first: SequenceId(first) };
        assert_eq!(scene.writer.next(&scene.queue), Err(gap));
        assert_eq!(scene.batches().entries.len(), 1);
        assert!(scene.writer.is_busy(), "the state that made the record cannot be kept");
        assert_eq!(scene.queue.bytes(), 0, "the room is given back");
        scene.append(3);
        assert_eq!(scene.writer.next(&scene.queue), Ok(None), "nothing more is written");
    }
}

#[test]
fn a_batch_is_never_overwritten() {
    let mut scene = Scene::new();
    scene.append(1);
    assert_eq!(scene.write(), Written::Durable(SequenceId(1)));
    scene.put(scene.keys.batch(LogId(7), SequenceId(2)), "of another writer");
    scene.append(2);
    assert_eq!(scene.write(), Written::Broken);
    let last = scene.batches().entries.pop().unwrap();
    assert_eq!(&last.value[..], b"of another writer");
}

/// R5: the first attempt succeeded, but its answer was lost.
#[test]
fn an_attempt_that_had_succeeded_is_recognised() {
    let mut scene = Scene::new();
    scene.append(1);
    let txn = scene.writer.next(&scene.queue).unwrap().unwrap();
    scene.send(txn.clone()).unwrap();
    assert_eq!(scene.writer.answered(Err(Failure::Unknown("lost".into())), &scene.queue), Written::Unknown);
    let again = scene.writer.again().unwrap();
    assert_eq!(again, txn, "the same bytes");
    let answer = scene.send(again);
    assert!(matches!(answer, Ok(Response::Txn { succeeded: false, .. })), "{answer:?}");
    assert_eq!(scene.writer.answered(answer, &scene.queue), Written::Durable(SequenceId(1)));
    scene.append(2);
    assert_eq!(scene.write(), Written::Durable(SequenceId(2)));
}

#[test]
fn a_deposed_writer_is_told_so() {
    let mut scene = Scene::new();
    scene.append(1);
    let range = KeyRange::key(scene.keys.election());
    scene.send(Txn { success: vec![Op::Delete(range)], ..Txn::default() }).unwrap();
    assert_eq!(scene.write(), Written::Deposed);
    let election = Request::Get(Get::all(KeyRange::key(scene.keys.election())));
    assert!(
        matches!(scene.etcd.call(NOW, &election), Ok(Response::Got { page, .. }) if page.entries.is_empty())
    );
}

/// A straggler of an ended term changes a state that follows the log.
#[test]
fn a_batch_is_not_applied_to_a_state_that_the_log_did_not_make() {
    let mut scene = Scene::new();
    scene.append(1);
    scene.write();
    scene.append(2);
    scene.write();
    let values: Vec<_> = scene.batches().entries.into_iter().map(|entry| entry.value).collect();
    let incarnation = Incarnation::new(EngineSettings::default(), 1 << 20);
    let mut position = Position::default();
    assert_eq!(position.offer(&values[0], &incarnation), Offered::Applied);
    let engine = &incarnation.engine;
    engine.sequencer(LogTime(5)).commit(&joined(99));
    let (at, digest) = (position, engine.sequencer(LogTime(0)).digest());
    let offered = position.offer(&values[1], &incarnation);
    assert!(matches!(&offered, Offered::Diverged(why) if why.contains("at record 2")), "{offered:?}");
    assert_eq!(position, at);
    assert_eq!(engine.sequencer(LogTime(0)).digest(), digest);
    // What was applied before is still known.
    assert_eq!(position.offer(&values[0], &incarnation), Offered::Known);
}

#[test]
fn results_of_other_shapes_are_unknown() {
    let mut scene = Scene::new();
    scene.append(1);
    scene.writer.next(&scene.queue).unwrap().unwrap();
    let odd = Response::Txn { revision: 9, succeeded: false, results: vec![OpResult::Put] };
    assert_eq!(scene.writer.answered(Ok(odd), &scene.queue), Written::Unknown);
}

/// The key and the first batch in a newer format are one transaction, and no batch is in two formats.
#[test]
fn a_newer_format_begins_with_a_batch_of_its_own() {
    let mut scene = Scene::new();
    let key = |scene: &mut Scene| {
        let get = Request::Get(Get::all(KeyRange::key(scene.keys.format())));
        let Ok(Response::Got { page, .. }) = scene.etcd.call(NOW, &get) else { panic!() };
        page.entries.first().map(|entry| (entry.value.clone(), entry.version))
    };
    for (format, id) in [(Format::One, 1), (Format::One, 2), (Format::Two, 3), (Format::Two, 4)] {
        scene.append_in(format, id);
    }
    assert_eq!(scene.write(), Written::Durable(SequenceId(2)));
    assert_eq!(key(&mut scene), Some(("1".into(), 1)));
    assert_eq!(scene.write(), Written::Durable(SequenceId(4)));
    assert_eq!(key(&mut scene), Some(("2".into(), 2)));
    scene.append_in(Format::Two, 5);
    assert_eq!(scene.write(), Written::Durable(SequenceId(5)));
    assert_eq!(key(&mut scene), Some(("2".into(), 2)), "written once");
    let batches = scene.batches().entries;
    let formats = batches.iter().map(|entry| Batch::open(&entry.value).unwrap().header.format);
    assert_eq!(formats.collect::<Vec<_>>(), [Format::One, Format::Two, Format::Two]);
}
