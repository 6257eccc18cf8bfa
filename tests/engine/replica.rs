//! Random use of a primary with a mirror: INV-5, INV-7 and INV-8 after every step, everything else now and then.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::support::seeds;
use crate::support::world::World;

const STEPS: u64 = 4_000;

/// Every kind of operation has to have had an effect somewhere, or the test tests less than it says.
const KINDS: [&str; 40] = [
    "mount",
    "remount",
    "unmount",
    "drain",
    "drained",
    "expire",
    "put",
    "upsert",
    "upsert in place",
    "end",
    "revoke",
    "exist",
    "get",
    "get matching",
    "remove",
    "forced remove",
    "batch remove",
    "remove matching",
    "remove all",
    "clear",
    "copy",
    "move",
    "end copy or move",
    "revoke copy or move",
    "copy task",
    "move task",
    "fetch tasks",
    "complete task",
    "task time-out",
    "put metadata",
    "delete metadata",
    "evict",
    "release",
    "renew",
    "sweep",
    "failover",
    "hand-over",
    "rejoin",
    "digest",
    "evict expired",
];

#[test]
fn a_mirror_stays_the_same_and_no_byte_is_given_out_twice() {
    let mut done: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in seeds(20) {
        let mut step = 0;
        let mut world = World::new(seed);
        let run = catch_unwind(AssertUnwindSafe(|| {
            while step < STEPS {
                step += 1;
                world.step();
                if step % 16 == 0 {
                    world.check("after a while");
                }
            }
            world.check("in the end");
        }));
        if let Err(failure) = run {
            eprintln!("seed {seed}, step {step}");
            resume_unwind(failure);
        }
        world.done.iter().for_each(|(kind, times)| *done.entry(kind).or_default() += times);
    }
    for kind in KINDS {
        assert!(done.get(kind).is_some_and(|times| *times > 0), "{kind} never had an effect: {done:?}");
    }
}
