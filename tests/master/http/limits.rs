//! Clients that misbehave, and the server's end.

use std::sync::Arc;
use std::time::Duration;

use moonkeeper::master::http::router;
use moonkeeper::master::metrics::Metrics;
use moonkeeper::net::http_server::HttpLimits;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::support::{LIMITS, PATIENCE, Server, Store, parse, read_to_end, start};

async fn serve(limits: HttpLimits) -> Server {
    start(router(Arc::new(Store::new()), Metrics::new()), limits).await
}

async fn send(server: &Server, bytes: &[u8]) -> TcpStream {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    stream
}

#[tokio::test]
async fn what_is_too_much_waits_for_a_place() {
    let server = serve(HttpLimits { max_connections: 2, ..LIMITS }).await;
    let request = b"GET /role HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let first = send(&server, b"GET /role HTTP/1.1\r\n").await;
    let _second = send(&server, b"GET /role HTTP/1.1\r\n").await;
    let mut third = send(&server, request).await;
    let mut byte = [0];
    let early = timeout(Duration::from_millis(300), third.read(&mut byte)).await;
    assert!(early.is_err(), "the third was served although both places are taken");
    drop(first);
    let reply = parse(&read_to_end(&mut third).await);
    assert_eq!((reply.status, reply.text().as_str()), (200, "leader"));
}

#[tokio::test]
async fn a_head_that_never_ends_is_cut_off() {
    let server = serve(HttpLimits { header_timeout: Duration::from_millis(100), ..LIMITS }).await;
    let mut stream = send(&server, b"GET /role HTTP/1.1\r\nHost:").await;
    // It moves all the time, so only the limit for the head can end it.
    let mut byte = [0];
    for _ in 0..400 {
        let _ = stream.write_all(b"x").await;
        if timeout(Duration::from_millis(50), stream.read(&mut byte)).await.is_ok() {
            return;
        }
    }
    panic!("a head of 400 pieces was waited for");
}

#[tokio::test]
async fn a_head_that_is_too_long_is_refused() {
    let server = serve(LIMITS).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let long = format!("GET /query_key?key={} HTTP/1.1\r\nHost: x\r\n\r\n", "k".repeat(300 << 10));
    let _ = stream.write_all(long.as_bytes()).await;
    let reply = read_to_end(&mut stream).await;
    assert!(!reply.starts_with(b"HTTP/1.1 200"), "it was accepted");
    assert_eq!(server.get("/role").await.status, 200);
}

#[tokio::test]
async fn nonsense_does_no_harm() {
    let server = serve(LIMITS).await;
    for nonsense in
        [&b"\x15\x00\x00\x00\x00\x00\x00\x00"[..], b"\r\n\r\n\r\n", b"GET\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\n"]
    {
        let mut stream = send(&server, nonsense).await;
        stream.shutdown().await.unwrap();
        read_to_end(&mut stream).await;
    }
    assert_eq!(server.get("/health").await.status, 200);
}

#[tokio::test]
async fn it_stops_when_told_even_with_idle_connections() {
    let server = serve(LIMITS).await;
    let mut idle = send(&server, b"GET /role HTTP/1.1\r\nHost: x\r\n\r\n").await;
    let mut byte = [0];
    idle.read_exact(&mut byte).await.unwrap();
    server.stop.send(true).unwrap();
    timeout(PATIENCE, server.task).await.expect("it goes on").unwrap();
    assert!(TcpStream::connect(server.address).await.is_err(), "the port is still open");
    read_to_end(&mut idle).await;
}
