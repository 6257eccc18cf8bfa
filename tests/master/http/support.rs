//! A master made of a few objects, a server for it on a free port, and a client that shows every byte.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use moonkeeper::engine::walk::Cursor;
use moonkeeper::master::http::{
    Answer, BackendError, BufferInfo, Health, HttpBackend, KeysPiece, NotRemoved, ReferenceRole, SegmentInfo,
};
use moonkeeper::master::metrics::{Gauges, SegmentGauges};
use moonkeeper::net::http_server::{self, HttpLimits};
use moonkeeper::net::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

pub const LIMITS: HttpLimits = HttpLimits { max_connections: 16, header_timeout: Duration::from_secs(20) };

/// Long enough for any answer on a busy machine; only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Objects by key with their sizes, spread over four shards.
pub struct Store {
    pub serving: bool,
    pub objects: BTreeMap<Vec<u8>, u64>,
}

impl Store {
    pub fn new() -> Store {
        Store { serving: true, objects: [(b"k1".to_vec(), 500), (b"a+b".to_vec(), 100)].into() }
    }

    fn find(&self, key: &[u8]) -> Result<Vec<BufferInfo>, BackendError> {
        let size = *self.objects.get(key).ok_or(BackendError { code: -704, name: "OBJECT_NOT_FOUND" })?;
        Ok(vec![BufferInfo {
            size,
            address: 0x7fab_5700_0000,
            protocol: "tcp".into(),
            transport_endpoint: "127.0.0.1:16400".into(),
        }])
    }
}

impl HttpBackend for Store {
    fn health(&self) -> Health {
        Health {
            role: if self.serving { ReferenceRole::Leader } else { ReferenceRole::Standby },
            state: if self.serving { "serving" } else { "candidate" },
            service_ready: self.serving,
            leader_address: None,
            view_version: None,
        }
    }

    fn gauges(&self) -> Gauges {
        let allocated_bytes = self.objects.values().sum();
        let name = "a \"segment\"\n".to_owned();
        let segments = vec![SegmentGauges { name, allocated_bytes, capacity_bytes: 64 << 20 }];
        Gauges { allocated_bytes, capacity_bytes: 64 << 20, segments, keys: 2, ..Gauges::default() }
    }

    fn query_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, BackendError>> {
        Box::pin(async move { self.find(key) })
    }

    fn peek_key<'a>(&'a self, key: &'a [u8]) -> Answer<'a, Result<Vec<BufferInfo>, BackendError>> {
        Box::pin(async move { self.find(key) })
    }

    fn keys_from(&self, cursor: Cursor) -> Answer<'_, Result<Option<KeysPiece>, BackendError>> {
        let shard = cursor.shard();
        let keys = self.objects.keys().filter(move |key| key.len() % 4 == shard);
        let lines: Vec<u8> = keys.flat_map(|key| [key.as_slice(), b"\n"].concat()).collect();
        Box::pin(async move { Ok((shard < 4).then(|| (lines, Cursor::of_shard(shard + 1)))) })
    }

    fn segments(&self) -> Answer<'_, Result<Vec<SegmentInfo>, BackendError>> {
        let segment = SegmentInfo {
            name: b"127.0.0.1:21980".to_vec(),
            id: (2253393820971904617, 15433326956400855463),
            client_id: (1, 2),
            base: 0x7fab_5700_0000,
            size: 64 << 20,
            te_endpoint: "127.0.0.1:16400".into(),
            protocol: "tcp".into(),
            draining: false,
            used_bytes: self.objects.values().sum(),
        };
        let serving = self.serving.then(|| vec![segment]);
        Box::pin(
            async move { serving.ok_or(BackendError { code: -1010, name: "UNAVAILABLE_IN_CURRENT_STATUS" }) },
        )
    }

    /// Pretends that one object has a lease.
    fn remove_all(&self, force: bool) -> Answer<'_, Result<i64, NotRemoved>> {
        Box::pin(async move { Ok(if force { 2 } else { 1 }) })
    }
}

/// A running server; dropping it stops it.
pub struct Server {
    pub address: SocketAddr,
    pub stop: watch::Sender<bool>,
    pub task: tokio::task::JoinHandle<()>,
}

pub async fn start(router: Router, limits: HttpLimits) -> Server {
    let listener = listen::bind("127.0.0.1", 0).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = watch::channel(false);
    let task = tokio::spawn(http_server::serve(listener, router, limits, stopped));
    Server { address, stop, task }
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub content_type: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

impl Server {
    pub async fn request(&self, method: &str, path: &str, body: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        // A server that refuses a body may close before it has all of it.
        let _ = stream.write_all(body).await;
        parse(&read_to_end(&mut stream).await)
    }

    pub async fn get(&self, path: &str) -> Reply {
        self.request("GET", path, b"").await
    }
}

pub async fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    // A reset ends the answer like a close does.
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("no answer");
    bytes
}

pub fn parse(bytes: &[u8]) -> Reply {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n").expect("no complete head");
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let header = |name: &str| {
        head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
        })
    };
    let mut body = bytes[end + 4..].to_vec();
    if header("transfer-encoding").as_deref() == Some("chunked") {
        body = dechunk(&body);
    }
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Reply { status, content_type: header("content-type").unwrap_or_default(), body }
}

fn dechunk(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    loop {
        let line = rest.windows(2).position(|two| two == b"\r\n").expect("a chunk without a size");
        let size = usize::from_str_radix(std::str::from_utf8(&rest[..line]).unwrap(), 16).unwrap();
        if size == 0 {
            return body;
        }
        body.extend_from_slice(&rest[line + 2..line + 2 + size]);
        rest = &rest[line + 2 + size + 2..];
    }
}

/// Checks a recorded list of requests and answers, in order.
pub async fn check_recorded(server: &Server, recorded: &str) {
    let mut count = 0;
    for line in recorded.lines().filter(|line| !line.starts_with('#')) {
        let columns: Vec<&str> = line.split('\t').collect();
        let [method, path, status, content_type, body] = columns[..5] else { panic!("{line}") };
        let reply = server.request(method, path, columns.get(5).unwrap_or(&"").as_bytes()).await;
        let at = format!("{method} {path} gave {reply:?}: {}", reply.text());
        assert_eq!(reply.status.to_string(), status, "{at}");
        assert_eq!(reply.content_type, content_type, "{at}");
        let pattern = regex::escape(&body.replace("\\n", "\n"))
            .replace("<n>", "[0-9]+")
            .replace("<s>", "[^\"]+")
            .replace("<f>", "[0-9.eE+-]+");
        let pattern = regex::Regex::new(&format!("^{pattern}$")).unwrap();
        assert!(pattern.is_match(&reply.text()), "expected {body}, {at}");
        count += 1;
    }
    assert!(count > 10, "only {count} answers were compared");
}
