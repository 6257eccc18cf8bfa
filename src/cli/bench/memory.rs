//! The memory that objects cost a master, and how much of it is released when they are removed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::session::Session;
use super::{BenchError, MemoryArguments, load, process, seconds};

/// Time for allocators and background threads to settle before memory is read.
const REST: Duration = Duration::from_secs(2);
/// How often memory is read while it is being released.
const POLL: Duration = Duration::from_millis(250);

/// Puts objects, removes them all, and reports the master's resident memory before, with them and after.
pub(super) async fn measure(arguments: &MemoryArguments) -> Result<Value, BenchError> {
    let target = &arguments.target;
    let pid = target.pid.unwrap_or(0);
    let session = Session::open(target.address, target.segment_gib << 30).await?;
    tokio::time::sleep(REST).await;
    let before = process::resident_bytes(pid)?;
    let start = Instant::now();
    let tally = load::fill(target, session.id, arguments.objects).await?;
    let filling = start.elapsed();
    tokio::time::sleep(REST).await;
    let full = process::resident_bytes(pid)?;
    session.remove_all().await?;
    let removed = Instant::now();
    let mut after = process::resident_bytes(pid)?;
    while removed.elapsed() < seconds(arguments.settle) {
        tokio::time::sleep(POLL).await;
        after = after.min(process::resident_bytes(pid)?);
    }
    session.close().await?;
    let objects = tally.operations * u64::from(target.batch);
    let growth = full.saturating_sub(before);
    Ok(json!({
        "objects": objects,
        "errors": tally.errors,
        "filling_seconds": filling.as_secs_f64(),
        "resident_before": before,
        "resident_full": full,
        "resident_after": after,
        "bytes_per_object": growth as f64 / objects.max(1) as f64,
        "given_back_share": full.saturating_sub(after) as f64 / growth.max(1) as f64,
    }))
}
