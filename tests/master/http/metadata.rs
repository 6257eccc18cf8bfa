//! The metadata server.

use std::sync::Arc;
use std::time::Duration;

use moonkeeper::engine::Engine;
use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::LogTime;
use moonkeeper::master::etcd_health::no_etcd;
use moonkeeper::master::http::{HttpBackend, NotRemoved};
use moonkeeper::master::http_backend::{MasterBackend, MetadataLimits};
use moonkeeper::master::live_state::{AnswerGate, LiveState};
use moonkeeper::master::metadata_server::{MetadataStore, Stored, router};
use moonkeeper::master::metrics::Metrics;
use moonkeeper::replication::admission::Refusal;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::time::RunningClock;
use moonkeeper::replication::time::{Monotonic, MonotonicClock};

use super::support::{LIMITS, Server, check_recorded, start};

async fn serve(max_entries: usize, max_bytes: usize) -> Server {
    let engine = Arc::new(Engine::new(EngineSettings::default()));
    let limits = MetadataLimits { entries: max_entries, bytes: max_bytes };
    let admin = admin(LiveState::alone(engine, RunningClock::start(), Arc::default()), limits);
    start(router(Arc::new(admin)), LIMITS).await
}

fn admin(current: LiveState, metadata_limits: MetadataLimits) -> MasterBackend {
    let (_, current) = tokio::sync::watch::channel(current);
    let etcd_health = no_etcd();
    MasterBackend { current, metrics: Metrics::new(), etcd_health, metadata_limits, removal: Arc::default() }
}

/// The metadata server of a primary with a log that is never written. It may answer until its gate is closed.
fn replicated(queue_bytes: usize) -> (Arc<MasterBackend>, Arc<Incarnation>) {
    let incarnation = Incarnation::new(EngineSettings::default(), queue_bytes);
    incarnation.gate.open_until(Monotonic(u64::MAX));
    incarnation.guards.open();
    let engine = Arc::clone(&incarnation.engine);
    let answer_gate = AnswerGate(Some((Arc::clone(&incarnation), MonotonicClock::start())));
    let current =
        LiveState { answer_gate, ..LiveState::alone(engine, RunningClock::start(), Arc::default()) };
    (Arc::new(admin(current, MetadataLimits { entries: 100, bytes: 1 << 20 })), incarnation)
}

#[tokio::test]
async fn changes_are_refused_before_anything_is_applied() {
    let (admin, incarnation) = replicated(1 << 20);
    let server = start(router(admin.clone()), LIMITS).await;
    let unchanged = |why: &str| {
        assert_eq!((incarnation.engine.applied().0, incarnation.queue.bytes()), (0, 0), "{why}");
    };
    incarnation.gate.set_log_full(true);
    let answer = server.request("PUT", "/metadata?key=a", b"1").await;
    assert_eq!(answer.status, 503);
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(text, "the log is full or refused by etcd (see the status), nothing was changed");
    unchanged("etcd is out of space");
    incarnation.gate.set_log_full(false);
    // The lease has run out.
    incarnation.gate.close();
    for method in ["PUT", "DELETE"] {
        assert_eq!(server.request(method, "/metadata?key=a", b"1").await.status, 503);
        unchanged("the lease has run out");
    }
    assert!(matches!(admin.remove_all(true).await, Err(NotRemoved::Refused(Refusal::NotLeading))));
    incarnation.gate.open_until(Monotonic(u64::MAX));
    // The port is being closed.
    incarnation.guards.close();
    assert_eq!(server.request("PUT", "/metadata?key=a", b"1").await.status, 503);
    assert!(matches!(admin.remove_all(true).await, Err(NotRemoved::Refused(Refusal::NotLeading))));
    assert!(admin.query_key(b"a").await.is_err());
    unchanged("the port is being closed");
    assert!(incarnation.guards.is_drained());
}

#[tokio::test]
async fn changes_wait_for_space_in_the_queue() {
    let (admin, incarnation) = replicated(1 << 10);
    let taken = incarnation.queue.try_acquire(1 << 10).unwrap();
    let mut putting = admin.put(b"a", bytes::Bytes::from_static(b"1"));
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut putting).await.is_err());
    assert_eq!(incarnation.engine.applied().0, 0, "it was applied without space for its record");
    drop(taken);
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut putting).await.is_err());
    while incarnation.engine.applied().0 == 0 {
        assert!(tokio::time::timeout(Duration::from_millis(5), &mut putting).await.is_err());
    }
    incarnation.gate.advance(incarnation.engine.applied());
    assert_eq!(putting.await, Ok(Stored::Updated));
}

/// INV-3: an entry that is absent because of a deletion that is not durable yet comes back if this master crashes now.
#[tokio::test]
async fn an_absent_entry_rests_on_its_deletion() {
    let (admin, incarnation) = replicated(1 << 20);
    let put = incarnation.engine.sequencer(LogTime(1)).put_metadata(b"a", b"1", |_, _, _| Ok::<_, ()>(()));
    assert!(put.is_ok());
    incarnation.gate.advance(incarnation.engine.applied());
    assert!(incarnation.engine.sequencer(LogTime(1)).delete_metadata(b"a").is_some());
    let mut getting = admin.get(b"a");
    assert!(tokio::time::timeout(Duration::from_millis(100), &mut getting).await.is_err());
    incarnation.gate.advance(incarnation.engine.applied());
    assert_eq!(getting.await, Ok(None));
}

#[tokio::test]
async fn answers_as_the_reference() {
    check_recorded(&serve(100, 1 << 20).await, include_str!("metadata.tsv")).await;
}

#[tokio::test]
async fn is_bounded() {
    let server = serve(2, 8 << 20).await;
    let value = vec![b'x'; 4 << 20];
    assert_eq!(server.request("PUT", "/metadata?key=big", &value).await.status, 200);
    assert_eq!(server.get("/metadata?key=big").await.body, value);
    let larger = vec![b'x'; (4 << 20) + 1];
    assert_eq!(server.request("PUT", "/metadata?key=larger", &larger).await.status, 413);
    assert_eq!(server.request("PUT", "/metadata?key=big2", &value).await.status, 507);
    let long = format!("/metadata?key={}", "k".repeat(5000));
    assert_eq!(server.request("PUT", &long, b"v").await.status, 414);
    assert_eq!(server.request("PUT", "/metadata?key=a", b"1").await.status, 200);
    assert_eq!(server.request("PUT", "/metadata?key=b", b"1").await.status, 507);
    assert_eq!(server.request("PUT", "/metadata?key=a", b"2").await.status, 200);
}
