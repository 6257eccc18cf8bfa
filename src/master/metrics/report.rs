//! The periodic summary in the log.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use super::{Gauges, Metrics, Summary};

/// Logs a summary at each interval `every`, until `stop` turns true or its sender is gone.
pub async fn report(
    metrics: Arc<Metrics>,
    gauges: impl Fn() -> Gauges + Send,
    every: Duration,
    mut stop: watch::Receiver<bool>,
) {
    let summary = Summary::default();
    // An error of the inner wait means that the sender is gone, which ends the reports as well.
    while tokio::time::timeout(every, stop.wait_for(|stop| *stop)).await.is_err() {
        let text = summary.text(&metrics, &gauges(), Instant::now());
        tracing::info!(summary = text, "metrics");
    }
}
