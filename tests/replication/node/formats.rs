//! When a log is raised to a newer format.

use bytes::Bytes;
use moonkeeper::cluster::member::MemberValue;
use moonkeeper::coordination::types::{KeyRange, KeyValue, LeaseId};
use moonkeeper::engine::format::Format;
use moonkeeper::replication::batch::Batch;
use moonkeeper::replication::formats;

use super::takeover::takeover_after;
use super::world::{World, seconds};

fn format_key(world: &mut World) -> Bytes {
    let key = world.keys.format();
    world.log_keys().into_iter().find(|entry| entry.key == key).unwrap().value
}

fn put(world: &mut World, key: Bytes, value: Bytes) {
    world.put(&[KeyValue { key, value, create_revision: 0, mod_revision: 0, version: 0, lease: LeaseId(0) }]);
}

/// The formats of all batches of the log, in order.
fn formats(world: &mut World) -> Vec<Format> {
    let entries = world.log_keys();
    entries.iter().filter_map(|entry| Batch::open(&entry.value).ok()).map(|it| it.header.format).collect()
}

/// A log that an earlier version founded.
fn of_format_1(masters: usize) -> World {
    let mut world = World::new(0);
    let key = world.keys.format();
    put(&mut world, key, formats::key_value(Format::One));
    (0..masters).for_each(|_| world.add_master());
    world.run(seconds(3));
    world.change("old");
    world.run(seconds(1));
    assert_eq!(format_key(&mut world), "1");
    world
}

#[test]
fn f13_a_log_is_raised_when_every_member_has_read_the_newer_format_for_a_while() {
    let mut world = of_format_1(3);
    world.run(seconds(50));
    assert_eq!(format_key(&mut world), "1", "an older master may just be starting");
    world.run(seconds(20));
    world.change("new");
    world.run(seconds(1));
    assert_eq!(format_key(&mut world), "2");
    let formats = formats(&mut world);
    assert!(formats.is_sorted() && formats.first() == Some(&Format::One), "{formats:?}");
    assert_eq!(formats.last(), Some(&Format::Two));
    // Standbys follow across the change, and one of them takes over at once.
    let (primary, _) = takeover_after(&mut world, |_, _| ());
    assert_eq!(world.has(primary, &["old".to_owned(), "new".to_owned()]), 2);
}

#[test]
fn f13_a_log_is_not_raised_while_a_member_reads_only_the_older_format() {
    let mut world = of_format_1(3);
    // As a master of the version before says it, whose lease is none of this model's.
    let old = world.processes[0].node.seen_keys().members().next().unwrap().clone();
    let old = MemberValue { name: "old".into(), formats: vec![1], ..old };
    let (key, value) = (world.keys.member("old"), serde_json::to_vec(&old).unwrap());
    put(&mut world, key.clone(), value.into());
    world.run(seconds(180));
    world.change("late");
    world.run(seconds(1));
    assert_eq!(format_key(&mut world), "1");
    assert!(formats(&mut world).iter().all(|format| *format == Format::One));
    world.delete(KeyRange::key(key));
    world.run(seconds(70));
    assert_eq!(format_key(&mut world), "2", "it has gone");
}
