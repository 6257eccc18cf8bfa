//! The metrics as one line for people, in the format of the reference: memory in use, requests per second, evictions.

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use parking_lot::Mutex;

use super::reference;
use super::rpc::RpcCounts;
use super::{Gauges, Metrics};

/// Names of RPCs in the summary, and the families behind them.
const SINGLES: [(&str, &str); 15] = [
    ("PutStart", "put_start"),
    ("PutEnd", "put_end"),
    ("PutRevoke", "put_revoke"),
    ("Get", "get_replica_list"),
    ("Exist", "exist_key"),
    ("Del", "remove"),
    ("DelAll", "remove_all"),
    ("Ping", "ping"),
    ("CopyStart", "copy_start"),
    ("CopyEnd", "copy_end"),
    ("CopyRevoke", "copy_revoke"),
    ("MoveStart", "move_start"),
    ("MoveEnd", "move_end"),
    ("MoveRevoke", "move_revoke"),
    ("EvictDiskReplica", "evict_disk_replica"),
];

const BATCHES: [(&str, &str); 7] = [
    ("PutStart", "batch_put_start"),
    ("PutEnd", "batch_put_end"),
    ("PutRevoke", "batch_put_revoke"),
    ("Get", "batch_get_replica_list"),
    ("ExistKey", "batch_exist_key"),
    ("QueryIp", "batch_query_ip"),
    ("Clear", "batch_replica_clear"),
];

const TASKS: [(&str, &str); 5] = [
    ("CreateMoveTask", "create_move_task"),
    ("CreateCopyTask", "create_copy_task"),
    ("QueryTask", "query_task"),
    ("FetchTasks", "fetch_tasks"),
    ("MarkTaskToComplete", "update_task"),
];

/// Writes summaries. Rates are measured since the previous summary, so each reader should have its own.
#[derive(Debug)]
pub struct Summary {
    last: Mutex<Last>,
}

#[derive(Debug)]
struct Last {
    at: Instant,
    counts: Vec<RpcCounts>,
}

impl Default for Summary {
    fn default() -> Self {
        let counts = vec![RpcCounts::default(); SINGLES.len() + BATCHES.len() + TASKS.len()];
        Summary { last: Mutex::new(Last { at: Instant::now(), counts }) }
    }
}

impl Summary {
    /// Returns the summary at this moment.
    pub fn text(&self, metrics: &Metrics, gauges: &Gauges, now: Instant) -> String {
        let names = || SINGLES.iter().chain(&BATCHES).chain(&TASKS);
        let counts: Vec<RpcCounts> = names().map(|(_, name)| reference::counts(name, &metrics.rpc)).collect();
        let mut last = self.last.lock();
        // Avoid a division by zero when two requests come at the same moment.
        let seconds = now.saturating_duration_since(last.at).as_secs_f64().max(0.001);
        let rates: Vec<Rates> =
            counts.iter().zip(&last.counts).map(|(new, old)| Rates::between(*old, *new, seconds)).collect();
        *last = Last { at: now, counts };
        drop(last);

        let (singles, rest) = rates.split_at(SINGLES.len());
        let (batches, tasks) = rest.split_at(BATCHES.len());
        let mut text = String::with_capacity(2048);
        let _ = write!(
            text,
            "Mem Storage: {} | Keys: {} (soft-pinned: {}) | Clients: {} | Requests (Success/Total per sec): ",
            of_capacity(gauges.allocated_bytes, gauges.capacity_bytes),
            gauges.keys,
            gauges.soft_pinned_keys,
            gauges.clients
        );
        joined(&mut text, SINGLES.iter().zip(singles), |text, name, rates| {
            let _ = write!(text, "{name}={:.2}/{:.2}", rates.succeeded, rates.requests);
        });
        text.push_str(" | Batch Requests (per sec, Req=Success/PartialSuccess/Total, Item=Success/Total): ");
        joined(&mut text, BATCHES.iter().zip(batches), |text, name, rates| {
            let Rates { succeeded, partial, requests, items_succeeded, items } = rates;
            let _ = write!(
                text,
                "{name}:(Req={succeeded:.2}/{partial:.2}/{requests:.2}, Item={items_succeeded:.2}/{items:.2})"
            );
        });
        text.push_str(" | Tasks (Success/Total per sec): ");
        joined(&mut text, TASKS.iter().zip(tasks), |text, name, rates| {
            let _ = write!(text, "{name}={:.2}/{:.2}", rates.succeeded, rates.requests);
        });
        events(&mut text, metrics, gauges);
        text
    }
}

fn events(text: &mut String, metrics: &Metrics, gauges: &Gauges) {
    let counters = &metrics.counters;
    let read = |counter: &AtomicU64| counter.load(Relaxed);
    let _ = write!(
        text,
        " | Eviction: Success/Attempts={}/{}, AllocFail={}, PartialAlloc={}, keys={}, size={}",
        read(&counters.successful_evictions),
        read(&counters.attempted_evictions),
        read(&counters.put_start_alloc_failures),
        read(&counters.put_start_partial_allocations),
        read(&counters.evicted_keys),
        bytes(read(&counters.evicted_bytes)),
    );
    let _ = write!(
        text,
        " | Discard: Released/Total={}/{}, StagingSize={}",
        read(&counters.put_start_releases),
        read(&counters.put_start_discards),
        bytes(gauges.discarded_bytes),
    );
}

/// Calls and items per second.
struct Rates {
    succeeded: f64,
    partial: f64,
    requests: f64,
    items_succeeded: f64,
    items: f64,
}

impl Rates {
    fn between(old: RpcCounts, new: RpcCounts, seconds: f64) -> Rates {
        let rate = |old: u64, new: u64| new.saturating_sub(old) as f64 / seconds;
        let partial = rate(old.partial_successes, new.partial_successes);
        let requests = rate(old.requests, new.requests);
        let items = rate(old.items, new.items);
        // Counters are read one after the other while threads add to them, so differences can be slightly below zero.
        let succeeded = (requests - rate(old.failures, new.failures) - partial).max(0.0);
        let items_succeeded = (items - rate(old.failed_items, new.failed_items)).max(0.0);
        Rates { succeeded, partial, requests, items_succeeded, items }
    }
}

fn joined<'a>(
    text: &mut String,
    entries: impl Iterator<Item = (&'a (&'static str, &'static str), &'a Rates)>,
    write: impl Fn(&mut String, &str, &Rates),
) {
    for (position, ((name, _), rates)) in entries.enumerate() {
        if position > 0 {
            text.push_str(", ");
        }
        write(text, name, rates);
    }
}

/// Formats use and capacity, with the share where there is a capacity.
fn of_capacity(used: u64, capacity: u64) -> String {
    let text = format!("{} / {}", bytes(used), bytes(capacity));
    match capacity {
        0 => text,
        _ => format!("{text} ({:.1}%)", used as f64 * 100.0 / capacity as f64),
    }
}

/// Formats a number of bytes with a unit.
fn bytes(count: u64) -> String {
    let mut value = count as f64;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if value < 1024.0 {
            return if unit == "B" { format!("{count} B") } else { format!("{value:.2} {unit}") };
        }
        value /= 1024.0;
    }
    format!("{value:.2} PB")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::wire::functions::Function;

    #[test]
    fn rates_are_those_since_the_last_summary() {
        let metrics = Metrics::default();
        let summary = Summary::default();
        let start = summary.last.lock().at;
        let put = Function::PutStart;
        for succeeded in [true, true, true, false] {
            metrics.rpc.call(put, succeeded);
        }
        let gauges = Gauges { allocated_bytes: 2018, capacity_bytes: 64 << 20, keys: 5, ..Gauges::default() };
        let text = summary.text(&metrics, &gauges, start + Duration::from_secs(2));
        assert!(text.contains("PutStart=1.50/2.00,"), "{text}");
        assert!(text.starts_with("Mem Storage: 1.97 KB / 64.00 MB (0.0%) | Keys: 5 "), "{text}");
        let text = summary.text(&metrics, &gauges, start + Duration::from_secs(3));
        assert!(text.contains("PutStart=0.00/0.00,"), "{text}");
    }

    #[test]
    fn bytes_have_units() {
        for (count, text) in [
            (0, "0 B"),
            (1023, "1023 B"),
            (2018, "1.97 KB"),
            (64 << 20, "64.00 MB"),
            (u64::MAX, "16384.00 PB"),
        ] {
            assert_eq!(bytes(count), text);
        }
    }
}
