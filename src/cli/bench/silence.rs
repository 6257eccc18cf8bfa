//! Measures how long no master answers: every master is called all the time, on a connection of its own.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use serde_json::{Value, json};

use super::calls::Template;
use super::probe::Wire;
use super::{BenchError, seconds};
use crate::wire::functions::Function;
use crate::wire::types::Uuid;

/// Pause between two calls to one master.
const PAUSE: Duration = Duration::from_millis(1);
/// Timeout of a call: a master that hangs accepts connections and does not answer.
const PATIENCE: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
pub(super) struct SilenceArguments {
    /// RPC addresses of all masters
    #[arg(long = "address", required = true)]
    addresses: Vec<SocketAddr>,
    /// Longest time that is watched
    #[arg(long, default_value_t = 600.0)]
    seconds: f64,
}

/// Calls the masters until standard input ends.
pub(super) async fn measure(arguments: &SilenceArguments) -> Result<Value, BenchError> {
    let stop = Arc::new(AtomicBool::new(false));
    let start = Instant::now();
    let threads: Vec<_> = arguments
        .addresses
        .iter()
        .map(|&address| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || ask(address, &stop))
        })
        .collect();
    // The end of the time limit is a normal end.
    let _ = tokio::time::timeout(seconds(arguments.seconds), super::end_of_input()).await;
    let end = Instant::now();
    stop.store(true, Ordering::Relaxed);
    let mut answered = Vec::new();
    for thread in threads {
        answered.extend(thread.join().unwrap_or_default());
    }
    answered.sort_unstable();
    Ok(json!({
        "answers": answered.len(),
        "seconds": (end - start).as_secs_f64(),
        "longest_silence_us": longest_gap(start, &answered, end).as_micros() as u64,
    }))
}

/// Returns the times at which one master answered.
fn ask(address: SocketAddr, stop: &AtomicBool) -> Vec<Instant> {
    let template = Template::new(Function::ExistKey, Uuid { first: 1, second: 1 }, 1, 0);
    let (mut answered, mut wire) = (Vec::new(), None::<Wire>);
    while !stop.load(Ordering::Relaxed) {
        match &mut wire {
            // An accepted connection is not an answer yet.
            None => wire = Wire::connect(address, PATIENCE).ok(),
            Some(open) => match open.call(&template, 0) {
                Ok(()) => answered.push(Instant::now()),
                Err(_) => wire = None,
            },
        }
        std::thread::sleep(PAUSE);
    }
    answered
}

/// Returns the longest time between two neighbours among the start, the moments and the end.
fn longest_gap(start: Instant, moments: &[Instant], end: Instant) -> Duration {
    let all = || std::iter::once(start).chain(moments.iter().copied());
    let gaps = all().zip(all().skip(1).chain(std::iter::once(end)));
    gaps.map(|(earlier, later)| later.saturating_duration_since(earlier)).max().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_gap_may_be_at_either_end() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        assert_eq!(longest_gap(start, &[], at(9)), Duration::from_millis(9));
        assert_eq!(longest_gap(start, &[at(1), at(5), at(6)], at(7)), Duration::from_millis(4));
        assert_eq!(longest_gap(start, &[at(1), at(2)], at(9)), Duration::from_millis(7));
        assert_eq!(longest_gap(start, &[at(5), at(6)], at(7)), Duration::from_millis(5));
    }
}
