//! Asks masters for a snapshot, beside the passes.

use std::sync::Arc;
use std::time::Duration;

use super::admin_client::{self, Credentials};
use super::apply::Writer;
use super::etcd_session::EtcdSession;
use super::observation::{Call, CallError, SnapshotBegun};
use super::plan::snapshot::Candidate;

/// Delay before a failed call is retried.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts to ask one master after the other, unless that is under way.
pub(super) fn take_snapshot(
    writer: &Arc<Writer>,
    etcd_session: &EtcdSession,
    credentials: Credentials,
    request_id: String,
    candidates: Vec<Candidate>,
) {
    let again = {
        let mut calls = etcd_session.calls.lock();
        if calls.snapshot.is_running() {
            return;
        }
        let again = matches!(&calls.snapshot, Call::Done(id, Err(_)) if *id == request_id);
        calls.snapshot = Call::Running(request_id.clone());
        again
    };
    let writer = Arc::clone(writer);
    let call = async move {
        if again {
            tokio::time::sleep(PAUSE).await;
        }
        ask_all(&writer, &credentials, &candidates).await
    };
    etcd_session.spawn(call, move |calls, result| calls.snapshot = Call::Done(request_id, result));
}

/// Returns the answer of the first master that takes one, else why each did not.
async fn ask_all(
    writer: &Writer,
    credentials: &Credentials,
    candidates: &[Candidate],
) -> Result<SnapshotBegun, CallError> {
    let mut refusals = Vec::new();
    for Candidate { name, address } in candidates {
        // The Lease may have been lost since the pass that planned this.
        if let Err(why) = writer.permit() {
            return Err(CallError::NoAnswer(why.to_string()));
        }
        match admin_client::snapshot(address, credentials).await {
            Ok(begun) => return Ok(begun),
            Err(CallError::Refused { message, .. } | CallError::NoAnswer(message)) => {
                tracing::debug!(name, message, "a master took no snapshot");
                refusals.push(format!("{name}: {message}"));
            }
        }
    }
    writer.metrics.call_failed("snapshot");
    let message = format!("no master could take a snapshot: {}", refusals.join("; "));
    Err(CallError::Refused { code: "refused".to_owned(), message })
}
