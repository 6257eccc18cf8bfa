//! Waits for the signal that a server shall stop.

use tokio::sync::watch;

/// Waits until `stop` turns true. A sender that was dropped means stop, too.
pub async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await;
}
