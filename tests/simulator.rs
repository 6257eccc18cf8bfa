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
            if outcome.violation.is_some() {
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

/// Every bug that is planted is found within the seeds of `make test`, and by which check. The clean code passes them.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use moonkeeper::planted::{Bug, plant};

    std::panic::set_hook(Box::new(|_| ()));
    let mut missed = Vec::new();
    println!("| bug | first seed | check | what it said |\n|---|---|---|---|");
    for bug in Bug::ALL {
        let found: Mutex<Option<(u64, simulator::Violation)>> = Mutex::new(None);
        each_seed(
            SEEDS,
            || plant(Some(bug)),
            |seed, outcome| {
                let mut found = found.lock().unwrap();
                if let Some(violation) = outcome.violation
                    && found.as_ref().is_none_or(|found| found.0 > seed)
                {
                    *found = Some((seed, violation));
                }
                found.is_none()
            },
        );
        match found.into_inner().unwrap() {
            Some((seed, violation)) => {
                println!("| {bug:?} | {seed} | {} | {:.100} |", violation.check, violation.what);
            }
            None => missed.push(bug),
        }
    }
    assert!(missed.is_empty(), "not found: {missed:?}");
}
