//! The simulator: many seeds of a cluster in virtual time, with everything that can go wrong. `docs/simulator.md` says
//! what is simulated and what is checked.
//!
//! `MOONKEEPER_TEST_SEEDS` is how many seeds are run, `MOONKEEPER_TEST_SEED` runs one and prints its trace.
#![allow(clippy::unwrap_used, clippy::panic)] // clippy knows test functions but not their helpers

#[path = "simulator/mod.rs"]
mod simulator;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use simulator::{Counts, Outcome, run};

/// The seeds of `make test`.
const SEEDS: u64 = 1_000;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// Runs seeds on all cores until `visit` has had enough.
fn each_seed(seeds: u64, prepare: impl Fn() + Sync, visit: impl Fn(u64, Outcome) -> bool + Sync) {
    let next = AtomicU64::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                prepare();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds || !visit(seed, run(seed)) {
                        next.store(seeds, Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
}

fn told(seed: u64, outcome: &Outcome) -> String {
    let lines: Vec<&str> = outcome.trace.lines().collect();
    let tail = lines[lines.len().saturating_sub(60)..].join("\n");
    let violation = outcome.violation.as_ref().unwrap();
    format!(
        "{tail}\nseed {seed}: {}: {}\nrun it alone: MOONKEEPER_TEST_SEED={seed} cargo test --test simulator one_seed -- --nocapture",
        violation.check, violation.what
    )
}

#[test]
fn seeds() {
    let failed = Mutex::new(Vec::new());
    let total = Mutex::new(Counts::default());
    each_seed(
        number("MOONKEEPER_TEST_SEEDS").unwrap_or(SEEDS),
        || (),
        |seed, outcome| {
            total.lock().unwrap().add(&outcome.counts);
            if let Some(violation) = &outcome.violation {
                println!("seed {seed} failed: {}: {:.300}", violation.check, violation.what);
                failed.lock().unwrap().push((seed, told(seed, &outcome)));
            }
            failed.lock().unwrap().len() < 5
        },
    );
    println!("{:?}", total.lock().unwrap());
    let failed = failed.into_inner().unwrap();
    for (_, text) in &failed {
        println!("{text}\n");
    }
    let seeds: Vec<u64> = failed.iter().map(|failed| failed.0).collect();
    assert!(failed.is_empty(), "failing seeds: {seeds:?}");
}

#[test]
fn same_seed_same_trace() {
    for seed in [1, 7, 42] {
        let (one, other) = (run(seed), run(seed));
        assert!(one.trace == other.trace, "seed {seed} has two traces");
        assert!(one.trace.lines().count() > 500, "hardly anything happened");
    }
}

#[test]
fn one_seed() {
    let Some(seed) = number("MOONKEEPER_TEST_SEED") else { return };
    let outcome = run(seed);
    println!("{}", outcome.trace);
    assert!(outcome.violation.is_none(), "{:?}", outcome.violation);
}

/// Every planted bug is found by the seeds of `make test`, and by the check that is meant to find it. The clean code passes
/// the same seeds. One find alone may be luck: `MOONKEEPER_TEST_FINDS=5` asks for as many, which takes longer. `MOONKEEPER_TEST_BUG` names the bugs to plant, with commas.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use moonkeeper::planted::{Bug, plant};
    use simulator::Violation;
    use std::collections::BTreeMap;

    let finds = number("MOONKEEPER_TEST_FINDS").unwrap_or(1) as usize;
    std::panic::set_hook(Box::new(|_| ()));
    let only = std::env::var("MOONKEEPER_TEST_BUG").ok();
    let mut missed = Vec::new();
    println!("| bug | seeds | check | what it said | seconds |\n|---|---|---|---|---|");
    for bug in Bug::ALL.into_iter().filter(|bug| {
        only.as_ref().is_none_or(|names| names.split(',').any(|name| name == format!("{bug:?}")))
    }) {
        let began = std::time::Instant::now();
        let found: Mutex<BTreeMap<u64, Violation>> = Mutex::default();
        let strays: Mutex<BTreeMap<u64, Violation>> = Mutex::default();
        each_seed(
            SEEDS,
            || plant(Some(bug)),
            |seed, outcome| {
                let mut found = found.lock().unwrap();
                match outcome.violation {
                    Some(violation) if bug.checks().contains(&violation.check) => {
                        _ = found.insert(seed, violation)
                    }
                    Some(violation) => _ = strays.lock().unwrap().insert(seed, violation),
                    None => {}
                }
                found.len() < finds
            },
        );
        let (found, strays) = (found.into_inner().unwrap(), strays.into_inner().unwrap());
        let seeds: Vec<String> = found.keys().map(u64::to_string).collect();
        let first = found.values().next();
        let (check, what) = first.map_or(("", ""), |violation| (violation.check, violation.what.as_str()));
        let seconds = began.elapsed().as_secs();
        println!("| {bug:?} | {} | {check} | {what:.100} | {seconds} |", seeds.join(", "));
        if found.len() < finds {
            missed.push((bug, found.len()));
            strays
                .iter()
                .take(5)
                .for_each(|(seed, stray)| println!("  seed {seed} {}: {:.160}", stray.check, stray.what));
        }
    }
    assert!(missed.is_empty(), "found too rarely: {missed:?}");
}
