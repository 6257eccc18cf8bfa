//! Records and batches as bytes: what is written is read, what is not a batch is refused, and a format stays what it is.

use crate::records;
use crate::support::Rng;
use bytes::Bytes;
use moonkeeper::cluster::log_end::{Checksum, Latest, LogId};
use moonkeeper::engine::format::Format;
use moonkeeper::engine::key::Key;
use moonkeeper::engine::record::{ObjectRef, Place, Record, Start};
use moonkeeper::engine::types::{LogTime, ObjectId, SegmentNumber, SequenceId, Term};
use moonkeeper::replication::batch::{Batch, BatchError, Body, MAX_BODY, MAX_RECORDS, Sealed, seal};
use moonkeeper::replication::codec::json::RecordJson;
use moonkeeper::replication::codec::{Context, Records, Scratch, encode};
use proptest::prelude::*;
use xxhash_rust::xxh3::xxh3_64;

const LOG: LogId = LogId(0x1122_3344_5566_7788);
const FIRST: SequenceId = SequenceId(1000);

fn sealed(body: &Body) -> Sealed {
    seal(LOG, Term(1234), FIRST, Checksum(0x99), body)
}

/// What a batch has in it, as text.
fn texts(batch: &Batch) -> Vec<String> {
    let mut all = Vec::new();
    batch.each(|id, at, record| all.push(format!("{} {} {record:?}", id.0, at.0)));
    all
}

/// A body of random records, and what is in it.
fn random_body(seed: u64, most: u64) -> (Body, Vec<String>) {
    let mut rng = Rng::new(seed);
    let (mut body, mut all) = (Body::default(), Vec::new());
    for nth in 0..rng.below(most) {
        let kind = rng.below(records::KINDS as u64) as usize;
        records::random(&mut rng, kind, |at, record| {
            assert!(body.try_push(at, record));
            all.push(format!("{} {} {record:?}", FIRST.0 + nth, at.0));
        });
    }
    (body, all)
}

/// Puts the right checksum under bytes that were changed.
fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let covered = bytes.len() - 8;
    let sum = xxh3_64(&bytes[..covered]);
    bytes[covered..].copy_from_slice(&sum.to_le_bytes());
    bytes
}

#[test]
fn every_kind_of_record_comes_back() {
    for kind in 0..records::KINDS {
        let mut rng = Rng::new(kind as u64);
        for _ in 0..200 {
            records::random(&mut rng, kind, |at, record| {
                let (mut bytes, mut scratch) = (Vec::new(), Scratch::default());
                encode(Format::NEWEST, &mut bytes, &mut Context::default(), at, record);
                let mut read = Records::new(Format::NEWEST, &bytes);
                let (read_at, back) = read.next(&mut scratch).unwrap().unwrap();
                assert_eq!((read_at, format!("{back:?}")), (at, format!("{record:?}")));
                assert!(read.next(&mut Scratch::default()).unwrap().is_none());
            });
        }
    }
}

/// The bytes of each example of a format, a plain batch and a compressed one.
fn examples(format: Format) -> &'static str {
    match format {
        Format::One => include_str!("codec/format-1.txt"),
        Format::Two => include_str!("codec/format-2.txt"),
    }
}

/// A line that has to change means a new format. How well a body is compressed is no part of the format, so the last line
/// is only read.
#[test]
fn formats_are_what_they_were() {
    Format::READABLE.iter().copied().for_each(is_what_it_was);
}

fn is_what_it_was(format: Format) {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (mut lines, mut kinds) = (Vec::new(), [false; records::KINDS]);
    let (mut body, mut small) = (Body::of(format), Body::of(format));
    records::each_example(format, |at, record| {
        let mut bytes = Vec::new();
        encode(format, &mut bytes, &mut Context::default(), at, record);
        kinds[records::kind(record)] = true;
        let name = RecordJson::new(Checksum(0), FIRST, at, record).op_type;
        lines.push(format!("{name} {}", hex(&bytes)));
        assert!(body.try_push(at, record));
        if small.records() < 5 {
            assert!(small.try_push(at, record));
        }
    });
    lines.push(format!("plain-batch {}", hex(&sealed(&small).bytes)));
    assert_eq!(kinds, [true; records::KINDS], "some kind has no example");
    let fresh = sealed(&body);
    let mut kept: Vec<&str> = examples(format).lines().collect();
    let last = kept.pop().unwrap_or_default();
    let now = || format!("{}\ncompressed-batch {}", lines.join("\n"), hex(&fresh.bytes));
    assert!(lines == kept, "{format:?} has changed; now it would be:\n{}", now());
    let digits = last.strip_prefix("compressed-batch ").unwrap().as_bytes().chunks(2);
    let bytes: Vec<u8> =
        digits.map(|two| u8::from_str_radix(str::from_utf8(two).unwrap(), 16).unwrap()).collect();
    assert!(bytes.len() < body.len());
    let (kept, fresh) = (Batch::open(&bytes).unwrap(), Batch::open(&fresh.bytes).unwrap());
    assert_eq!(kept.header, fresh.header);
    assert_eq!(texts(&kept), texts(&fresh));
}

#[test]
fn what_is_written_often_is_small() {
    let mut body = Body::default();
    let mut sizes = Vec::new();
    for nth in 0..100_u64 {
        records::each_example(Format::NEWEST, |at, record| {
            let shifted = match *record {
                Record::PutStart(start) if !start.hard_pin => Record::PutStart(start),
                Record::End { mut object, checksum: None } => {
                    object.id = ObjectId(object.id.0 + nth);
                    object.after = SequenceId(object.id.0);
                    Record::End { object, checksum: None }
                }
                _ => return,
            };
            let before = body.len();
            assert!(body.try_push(LogTime(at.0 + nth), &shifted));
            sizes.push(body.len() - before);
        });
    }
    // Kind, time, flags, length, five bytes of key, size, one place; and kind, time, id, previous record, no checksum.
    assert_eq!(sizes[sizes.len() - 2..], [16, 5]);
}

#[test]
fn a_body_is_bounded() {
    let mut body = Body::default();
    let joined = Record::MetadataDelete { key: b"k" };
    while body.try_push(LogTime(1), &joined) {}
    assert_eq!(body.records(), MAX_RECORDS);

    body.clear();
    assert!(body.is_empty());
    let value = vec![b'x'; 2 * MAX_BODY];
    let large = Record::MetadataPut { key: b"k", value: &value };
    assert!(body.try_push(LogTime(1), &large), "a first record always fits");
    let before = sealed(&body).bytes;
    assert!(!body.try_push(LogTime(2), &joined));
    assert_eq!(sealed(&body).bytes, before, "what did not fit changed nothing");
    assert_eq!(Batch::open(&before).unwrap().records(), 1);

    body.clear();
    let part = Record::MetadataPut { key: b"k", value: &value[..1000] };
    while body.try_push(LogTime(7), &part) {}
    assert!(body.len() <= MAX_BODY && body.len() > MAX_BODY - 2000);
    // The next record is told relative to the last that fitted, not to the one that did not.
    assert!(body.try_push(LogTime(9), &joined));
    let batch = sealed(&body);
    assert!(batch.bytes.len() < MAX_BODY / 10, "this compresses well");
    let opened = Batch::open(&batch.bytes).unwrap();
    assert_eq!((opened.header, opened.checksum), (batch.header, batch.checksum));
    assert!(texts(&opened).last().unwrap().contains(" 9 MetadataDelete"));
}

#[test]
fn what_is_no_batch_is_refused() {
    let (body, _) = random_body(5, 40);
    let good = sealed(&body).bytes.to_vec();
    let changed = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        resealed(bytes)
    };
    assert!(matches!(Batch::open(b""), Err(BatchError::Foreign(0))));
    assert!(matches!(Batch::open(&changed(0, b'X')), Err(BatchError::Foreign(_))));
    assert!(matches!(Batch::open(&changed(4, 3)), Err(BatchError::Format(3))));
    let mut flipped = good.clone();
    flipped[60] ^= 1;
    assert!(matches!(Batch::open(&flipped), Err(BatchError::Checksum { .. })));
    assert!(matches!(Batch::open(&good[..good.len() - 1]), Err(BatchError::Checksum { .. })));
    // First id, last id, kind of packing, length.
    assert!(matches!(Batch::open(&changed(24, 0xe9)), Err(BatchError::Bounds(_))));
    assert!(matches!(Batch::open(&changed(32, 0x00)), Err(BatchError::Bounds(_))));
    assert!(matches!(Batch::open(&changed(48, 9)), Err(BatchError::Body)));
    assert!(matches!(Batch::open(&changed(55, 0xff)), Err(BatchError::Body)));
    let empty = sealed(&Body::default()).bytes;
    assert!(matches!(Batch::open(&empty), Err(BatchError::Bounds(_))));
}

#[test]
fn the_end_of_the_log_is_text() {
    let latest = Latest { log: LOG, term: Term(7), last: SequenceId(u64::MAX), checksum: Checksum(0xab) };
    let text =
        r#"{"log":"1122334455667788","term":7,"last":18446744073709551615,"checksum":"00000000000000ab"}"#;
    assert_eq!(latest.to_bytes(), text.as_bytes());
    assert_eq!(Latest::from_bytes(text.as_bytes()).unwrap(), latest);
    for wrong in ["", "{}", r#"{"log":"x","term":7,"last":1,"checksum":"ab"}"#, "[1]"] {
        assert!(Latest::from_bytes(wrong.as_bytes()).is_err(), "{wrong}");
    }
}

proptest! {
    #[test]
    fn batches_come_back(seed in any::<u64>()) {
        let (body, all) = random_body(seed, 60);
        prop_assume!(!body.is_empty());
        let batch = sealed(&body);
        let opened = Batch::open(&batch.bytes).unwrap();
        prop_assert_eq!(opened.header, batch.header);
        prop_assert_eq!(opened.checksum, batch.checksum);
        prop_assert_eq!(opened.records(), u64::from(body.records()));
        prop_assert_eq!(texts(&opened), all);
    }

    /// Bytes that nobody wrote are an error or some records, and if a whole batch, one that can be walked.
    #[test]
    fn changed_bytes_do_no_harm(
        seed in any::<u64>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let (body, _) = random_body(seed, 30);
        let mut bytes = sealed(&body).bytes.to_vec();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let _ = Batch::open(&bytes);
        if bytes.len() >= 8 && let Ok(batch) = Batch::open(&resealed(bytes.clone())) {
            prop_assert_eq!(texts(&batch).len() as u64, batch.records());
        }
        let (mut records, mut read) = (Records::new(Format::NEWEST, &bytes), 0);
        while let Ok(Some(_)) = records.next(&mut Scratch::default()) {
            read += 1;
        }
        prop_assert!(read <= bytes.len());
    }
}

/// What a put costs: `cargo test --release --test replication the_cost -- --ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn the_cost_of_a_put() {
    const PUTS: u64 = 1_000_000;
    let (mut body, mut batches, mut raw) = (Body::default(), Vec::new(), 0);
    let (mut encoding, mut sealing) = (std::time::Duration::ZERO, std::time::Duration::ZERO);
    let keys: Vec<String> = (0..1000_u64)
        .map(|nth| format!("model-a/{:016x}", nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
        .collect();
    let mut from = std::time::Instant::now();
    for nth in 0..PUTS {
        let places = [Place { segment: SegmentNumber(3), offset: nth * 65536 }];
        let start = Start {
            key: Key::new(keys[nth as usize % 1000].as_bytes()),
            places: &places,
            ..records::plain()
        };
        let object = ObjectRef { id: ObjectId(nth * 2), after: SequenceId(nth * 2) };
        let at = LogTime(1_700_000_000_000 + nth / 100);
        for record in [Record::PutStart(start), Record::End { object, checksum: None }] {
            if !body.try_push(at, &record) {
                encoding += from.elapsed();
                from = std::time::Instant::now();
                raw += body.len();
                batches.push(sealed(&body).bytes);
                sealing += from.elapsed();
                from = std::time::Instant::now();
                body.clear();
                assert!(body.try_push(at, &record));
            }
        }
    }
    let start = std::time::Instant::now();
    let opened: Vec<Batch> = batches.iter().map(|bytes| Batch::open(bytes).unwrap()).collect();
    let opening = start.elapsed();
    let start = std::time::Instant::now();
    let mut records = 0;
    opened.iter().for_each(|batch| batch.each(|_, _, _| records += 1));
    let kept: usize = batches.iter().map(Bytes::len).sum();
    println!(
        "{records} records: encode {encoding:?}, seal {sealing:?}, open {opening:?}, each {:?}",
        start.elapsed()
    );
    println!("{raw} bytes before compression, {kept} after, {} batches", batches.len());
}
