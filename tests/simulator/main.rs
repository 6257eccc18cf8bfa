//! The simulator: many seeds of a cluster in virtual time, with everything that can go wrong. `docs/simulator.md` says
//! what is simulated and what is checked.
//!
//! `MOONKEEPER_TEST_SEEDS` is how many seeds are run, `MOONKEEPER_TEST_SEED` runs one and prints its trace,
//! `MOONKEEPER_TEST_DAY` brings the seeds of a day back.
#![allow(clippy::unwrap_used, clippy::panic)] // clippy knows test functions but not their helpers

mod cluster;
#[path = "../support/dated.rs"]
mod dated;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(feature = "planted")]
use cluster::Focus;
use cluster::{Counts, Outcome, run};

/// The seeds of `make test`.
const SEEDS: u64 = 1_000;

/// Those of the day, which nothing is known of yet.
const DATED_SEEDS: u64 = 100;

/// How often each thing happens in a thousand seeds, at least: about half of what it is.
const FLOORS: [(&str, u64); 28] = [
    ("events", 20_000_000),
    ("terms", 2_500),
    ("records", 500_000),
    ("answers", 2_000_000),
    ("unknown", 10_000),
    ("reads", 800_000),
    ("starts", 150_000),
    ("waited", 5_000),
    ("refused", 8_000),
    ("given_up_answers", 5),
    ("handed_over", 400),
    ("given_up", 100),
    ("certain", 1_000_000),
    ("expired", 400),
    ("evicted", 15_000),
    ("witnessed", 80),
    ("exempt", 1_500),
    ("raised", 100),
    ("parked_puts", 1_000),
    ("resumed", 400),
    ("suspended", 30),
    ("stopped", 30),
    ("snapshots", 4_000),
    ("snapshots_of_primaries", 90),
    ("snapshot_starts", 30),
    ("restored", 10),
    ("truncations", 100),
    ("tampered", 20),
];

/// The same for each kind of fault.
const FAULT_FLOOR: u64 = 30;

fn number(name: &str) -> Option<u64> {
    let text = std::env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs seeds on all cores until `visit` has had enough.
fn each_seed(seeds: &[u64], prepare: impl Fn() + Sync, visit: impl Fn(u64, Outcome) -> bool + Sync) {
    let next = AtomicUsize::new(0);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                prepare();
                loop {
                    let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                    if !visit(*seed, run(*seed, false)) {
                        next.store(seeds.len(), Ordering::Relaxed);
                        return;
                    }
                }
            });
        }
    });
}

fn told(seed: u64) -> String {
    let outcome = run(seed, true);
    let lines: Vec<&str> = outcome.trace.lines().collect();
    let tail = lines[lines.len().saturating_sub(60)..].join("\n");
    let violation = outcome.violation.as_ref().unwrap();
    format!(
        "{tail}\nseed {seed}: {}: {}\nrun it alone: MOONKEEPER_TEST_SEED={seed} cargo test --test simulator one_seed -- --nocapture",
        violation.check, violation.what
    )
}

/// What happened too rarely in so many seeds for its checks to mean anything.
fn too_rare(counts: &Counts, seeds: u64) -> Vec<String> {
    let faults = cluster::FAULTS
        .into_iter()
        .map(|(fault, _)| (format!("{fault:?}"), counts.faults[fault as usize], FAULT_FLOOR));
    let named = counts.named().into_iter().map(|(name, count)| {
        let floor = FLOORS.iter().find(|floor| floor.0 == name).unwrap().1;
        (name.to_owned(), count, floor)
    });
    let mut rare = Vec::new();
    for (name, count, of_thousand) in named.chain(faults) {
        let floor = of_thousand * seeds / 1_000;
        if count < floor {
            rare.push(format!("{name}: {count}, at least {floor}"));
        }
    }
    rare
}

#[test]
fn seeds() {
    let seeds = number("MOONKEEPER_TEST_SEEDS").unwrap_or(SEEDS);
    assert!(seeds > 0, "no seed shows nothing");
    let rare = too_rare(&run_all(&(0..seeds).collect::<Vec<_>>()), seeds);
    assert!(rare.is_empty(), "too little happened in {seeds} seeds: {rare:?}");
}

/// Others each day. How much happens in so few says little.
#[test]
fn seeds_of_the_day() {
    let day = dated::day();
    println!("seeds of day {day} (MOONKEEPER_TEST_DAY={day} repeats them)");
    run_all(&(0..DATED_SEEDS).map(|nth| day * 1_000 + nth).collect::<Vec<_>>());
}

/// Runs them, fails with the traces of the first few that fail, and returns what happened.
fn run_all(seeds: &[u64]) -> Counts {
    let failed = Mutex::new(Vec::new());
    let total = Mutex::new(Counts::default());
    each_seed(
        seeds,
        || (),
        |seed, outcome| {
            total.lock().unwrap().add(&outcome.counts);
            if let Some(violation) = &outcome.violation {
                println!("seed {seed} failed: {}: {:.300}", violation.check, violation.what);
                failed.lock().unwrap().push((seed, told(seed)));
            }
            failed.lock().unwrap().len() < 5
        },
    );
    let total = total.into_inner().unwrap();
    println!("{total:?}");
    let failed = failed.into_inner().unwrap();
    for (_, text) in &failed {
        println!("{text}\n");
    }
    let numbers: Vec<u64> = failed.iter().map(|failed| failed.0).collect();
    assert!(failed.is_empty(), "failing seeds: {numbers:?}");
    total
}

/// A simulator in which nothing happens finds nothing, and says so.
#[test]
fn nothing_happening_is_a_failure() {
    assert_eq!(too_rare(&Counts::default(), SEEDS).len(), FLOORS.len() + cluster::FAULTS.len());
}

#[test]
fn same_seed_same_trace() {
    for seed in [1, 7, 42] {
        let (one, other) = (run(seed, true), run(seed, true));
        assert!(one.trace == other.trace, "seed {seed} has two traces");
        assert!(one.trace.lines().count() > 500, "hardly anything happened");
        assert_eq!(run(seed, false).counts, one.counts, "seed {seed} is another run without a trace");
    }
}

#[test]
fn one_seed() {
    let Some(seed) = number("MOONKEEPER_TEST_SEED") else { return };
    let outcome = run(seed, true);
    println!("{}", outcome.trace);
    assert!(outcome.violation.is_none(), "{:?}", outcome.violation);
}

/// Writes the trace of each seed to a file in the folder `MOONKEEPER_TEST_TRACES`, for `scripts/oracle`. The first seed is
/// `MOONKEEPER_TEST_SEED`, their number `MOONKEEPER_TEST_SEEDS`.
#[test]
fn write_traces() {
    let Ok(folder) = std::env::var("MOONKEEPER_TEST_TRACES") else { return };
    let (first, count) = (number("MOONKEEPER_TEST_SEED").unwrap_or(0), number("MOONKEEPER_TEST_SEEDS"));
    let seeds: Vec<u64> = (first..first + count.unwrap_or(SEEDS)).collect();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for part in seeds.chunks(seeds.len().div_ceil(threads).max(1)) {
            let folder = &folder;
            scope.spawn(move || {
                for seed in part {
                    std::fs::write(format!("{folder}/{seed}.txt"), run(*seed, true).trace).unwrap();
                }
            });
        }
    });
}

/// What the seeds are about that have the schedule of a bug often, if it is a rare one.
#[cfg(feature = "planted")]
fn focus_of(bug: moonkeeper::planted::Bug) -> Option<Focus> {
    use moonkeeper::planted::Bug;
    match bug {
        Bug::SuccessorExpired | Bug::StaleTarget | Bug::AbortWithoutRecord | Bug::FlushSkipsGroups => {
            Some(Focus::HandOver)
        }
        Bug::QuietLie | Bug::ForgetJoined => Some(Focus::HandOver),
        Bug::LeaseFromArrival | Bug::StaleAbsence | Bug::AnyWriteAnswer => Some(Focus::Lease),
        Bug::EarlyWitness | Bug::WitnessOfAnother => Some(Focus::Lease),
        Bug::IgnoreDoubt | Bug::SkipChain => Some(Focus::Log),
        Bug::TrustSnapshot | Bug::AnySnapshotLog | Bug::AnnounceUndurable => Some(Focus::Log),
        Bug::FloorAtNewest | Bug::FloorIgnoresNeed | Bug::FloorHeldOnce => Some(Focus::Log),
        Bug::FloorOverEphemeral | Bug::FloorOverUnproven | Bug::FloorBeforeVerified => Some(Focus::Log),
        Bug::DeleteBeforeFloor | Bug::DeleteAnyLog => Some(Focus::Log),
        Bug::IgnoreUnmount | Bug::RegexNoWait | Bug::ForgetStrays => Some(Focus::Memory),
        _ => None,
    }
}

/// Every planted bug is found by at least five of the seeds of `make test`, one alone may be luck, and by the check that is
/// meant to find it. The clean code passes the same seeds. `MOONKEEPER_TEST_FINDS` asks for another number of finds,
/// `MOONKEEPER_TEST_BUG` names the bugs to plant, with commas.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_found() {
    use cluster::Violation;
    use moonkeeper::planted::{Bug, plant};
    use std::collections::BTreeMap;

    let finds = number("MOONKEEPER_TEST_FINDS").unwrap_or(5) as usize;
    std::panic::set_hook(Box::new(|_| ()));
    let only = std::env::var("MOONKEEPER_TEST_BUG").ok();
    let mut missed = Vec::new();
    println!("| bug | seeds | check | what it said | seconds |\n|---|---|---|---|---|");
    for bug in Bug::ALL.iter().copied().filter(|bug| {
        only.as_ref().is_none_or(|names| names.split(',').any(|name| name == format!("{bug:?}")))
    }) {
        let began = std::time::Instant::now();
        let found: Mutex<BTreeMap<u64, Violation>> = Mutex::default();
        let strays: Mutex<BTreeMap<u64, Violation>> = Mutex::default();
        // The same seeds in another order: those first that have its schedule often.
        let mut order: Vec<u64> = (0..SEEDS).collect();
        if let Some(focus) = focus_of(bug) {
            order.sort_by_key(|seed| Focus::of(*seed) != focus);
        }
        each_seed(
            &order,
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

/// The table of docs/simulator.md names every bug that the simulator finds, and the checks that are meant to find it.
#[cfg(feature = "planted")]
#[test]
fn planted_bugs_are_documented() {
    use moonkeeper::planted::Bug;

    let docs = include_str!("../../docs/simulator.md");
    let table = docs.split("| bug | checks |").nth(1).unwrap().lines().skip(2);
    let documented: Vec<String> = table.take_while(|line| line.starts_with('|')).map(str::to_owned).collect();
    let planted: Vec<String> =
        Bug::ALL.iter().map(|bug| format!("| `{bug:?}` | {} |", bug.checks().join(", "))).collect();
    assert_eq!(documented, planted);
    for bug in Bug::OF_ONE_SCHEDULE.iter().chain(Bug::OF_THREADS) {
        assert!(docs.contains(&format!("`{bug:?}`")), "{bug:?} is not documented");
    }
}
