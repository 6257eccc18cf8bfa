//! The admin routes.

use std::sync::Arc;

use axum::Router;
use axum::routing::get;
use moonkeeper::master::http::{changes, replicated_router, router};
use moonkeeper::master::metrics::Metrics;

use super::support::{LIMITS, Server, Store, check_recorded, start};

async fn serve(store: Store) -> Server {
    start(router(Arc::new(store), Metrics::new()), LIMITS).await
}

#[tokio::test]
async fn a_serving_master_answers_as_the_reference() {
    check_recorded(&serve(Store::new()).await, include_str!("admin.tsv")).await;
}

#[tokio::test]
async fn a_standby_answers_as_the_reference() {
    let server = serve(Store { serving: false, ..Store::new() }).await;
    check_recorded(&server, include_str!("standby.tsv")).await;
}

#[tokio::test]
async fn the_key_list_has_every_key_once_however_long_it_is() {
    let mut store = Store::new();
    store.objects = (0..50_000_u32).map(|n| (format!("key-{n}").into_bytes(), 1)).collect();
    let mut expected: Vec<Vec<u8>> = store.objects.keys().cloned().collect();
    let server = serve(store).await;
    let reply = server.get("/get_all_keys").await;
    assert_eq!((reply.status, reply.content_type.as_str()), (200, "text/plain; version=0.0.4"));
    let mut keys: Vec<Vec<u8>> = reply.body.split(|byte| *byte == b'\n').map(<[u8]>::to_vec).collect();
    assert_eq!(keys.pop(), Some(Vec::new()), "the last line ends");
    keys.sort();
    expected.sort();
    assert!(keys == expected, "{} keys instead of {}", keys.len(), expected.len());

    let empty = serve(Store { objects: Default::default(), ..Store::new() }).await.get("/get_all_keys").await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
}

#[tokio::test]
async fn keys_of_any_bytes_can_be_asked_for_and_give_valid_json() {
    let mut store = Store::new();
    store.objects.insert(b"\xff\xfe\x00".to_vec(), 7);
    store.objects.insert("uni-é\"\\\n".as_bytes().to_vec(), 5);
    store.objects.insert(b"%31".to_vec(), 9);
    let server = serve(store).await;
    // Encoded, which the reference does not understand here.
    assert!(server.get("/query_key?key=%FF%FE%00").await.text().contains("\"size_\":7"));
    assert!(server.get("/query_key?key=uni-%C3%A9%22%5C%0A").await.text().contains("\"size_\":5"));
    // As it stands, which is what the reference does.
    assert!(server.get("/query_key?key=%31").await.text().contains("\"size_\":9"));

    let reply = server.get("/batch_query_keys?keys=%FF%FE%00,%FE,uni-%C3%A9%22%5C%0A").await;
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    let data = answer["data"].as_object().unwrap();
    assert_eq!(data.keys().collect::<Vec<_>>(), ["\\xfe", "\\xff\\xfe\0", "uni-é\"\\\n"]);
    assert_eq!(data["\\xff\\xfe\0"]["values"][0]["size_"], 7);
    assert_eq!(data["\\xfe"]["ok"], false);
}

#[tokio::test]
async fn drain_jobs_say_that_they_are_not_there() {
    let reply = serve(Store::new()).await.request("POST", "/api/v1/drain_jobs", b"{}").await;
    assert_eq!(reply.status, 501);
    let answer: serde_json::Value = serde_json::from_slice(&reply.body).unwrap();
    assert_eq!(answer["success"], false);
    assert!(answer["error_message"].as_str().unwrap().contains("not supported"), "{answer}");
}

#[tokio::test]
async fn with_replication_changes_are_elsewhere() {
    let more = Router::new().route("/api/v1/status", get(async || "status"));
    let (store, metrics) = (Arc::new(Store::new()), Metrics::new());
    let server = start(replicated_router(store.clone(), Arc::clone(&metrics), more), LIMITS).await;
    assert_eq!(server.get("/role").await.text(), "leader");
    assert_eq!(server.get("/api/v1/status").await.text(), "status");
    let reply = server.request("POST", "/api/v1/remove_all?force=true", b"").await;
    assert!(reply.status == 403 && reply.text().contains("--admin_port"), "{reply:?}");
    assert_eq!(server.get("/nothing").await.status, 404);
    let server = start(changes(store, metrics), LIMITS).await;
    let reply = server.request("POST", "/api/v1/remove_all?force=true", b"").await;
    assert_eq!((reply.status, reply.text().as_str()), (200, r#"{"success":true,"removed_count":2}"#));
}
