//! The metadata server.

use std::sync::Arc;

use moonkeeper::engine::Engine;
use moonkeeper::engine::rules::Rules;
use moonkeeper::master::admin::{Admin, MetadataLimits};
use moonkeeper::master::clock::Clock;
use moonkeeper::master::current::Current;
use moonkeeper::master::metadata_server::router;
use moonkeeper::master::metrics::Metrics;

use super::support::{LIMITS, Server, check_recorded, start};

async fn serve(max_entries: usize, max_bytes: usize) -> Server {
    let engine = Arc::new(Engine::new(Rules::default()));
    let (_, current) = tokio::sync::watch::channel(Current::alone(engine, Clock::start(), Arc::default()));
    let metadata_limits = MetadataLimits { entries: max_entries, bytes: max_bytes };
    let admin = Admin { current, metrics: Metrics::new(), metadata_limits, removal: Arc::default() };
    start(router(Arc::new(admin)), LIMITS).await
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
