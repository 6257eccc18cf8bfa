//! Probes: each has a thread, a connection and one call outstanding, so that only the master can make it wait.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};

use super::BenchError;
use super::calls::Template;
use super::latency::Latencies;
use crate::wire::frame::{RESPONSE_HEADER, ResponseHeader};
use crate::wire::functions::Function;
use crate::wire::types::Uuid;

/// Pause between two calls of a probe: short beside any stall that matters, long enough to leave the processor to the
/// master.
const PAUSE: Duration = Duration::from_micros(500);
/// Timeout of a call.
const PATIENCE: Duration = Duration::from_secs(120);
/// Calls of each probe before counting may begin.
const WARM_UP: u64 = 50;
const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const STOPPING: u8 = 2;

/// A blocking connection to a master.
pub(super) struct Wire {
    stream: TcpStream,
    frame: Vec<u8>,
    sequence: u32,
}

impl Wire {
    pub(super) fn connect(address: SocketAddr, patience: Duration) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, patience)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(patience))?;
        Ok(Self { stream, frame: Vec::new(), sequence: 0 })
    }

    /// Makes a call and waits for its reply, whatever it contains.
    pub(super) fn call(&mut self, template: &Template, key: u64) -> std::io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.frame.clear();
        template.append(&mut self.frame, self.sequence, key);
        self.stream.write_all(&self.frame)?;
        let mut head = [0; RESPONSE_HEADER];
        self.stream.read_exact(&mut head)?;
        let head = ResponseHeader::parse(&head)
            .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error))?;
        if head.sequence != self.sequence {
            return Err(std::io::ErrorKind::InvalidData.into());
        }
        self.frame.resize(head.length as usize + head.attachment_length as usize, 0);
        self.stream.read_exact(&mut self.frame)
    }
}

/// The call that a probe makes.
#[derive(Debug, Clone, Copy)]
enum Kind {
    ExistKey,
    Ping,
    PutStart,
}

const KINDS: [(Kind, &str); 3] =
    [(Kind::ExistKey, "exist_key"), (Kind::Ping, "ping"), (Kind::PutStart, "put_start")];

/// Number and latencies of the calls of one probe.
struct Waits {
    calls: u64,
    longest: Duration,
    latencies: Latencies,
}

/// One running probe of each kind.
pub(super) struct Probes {
    phase: Arc<AtomicU8>,
    warm: Arc<AtomicU64>,
    threads: Vec<(&'static str, JoinHandle<std::io::Result<Waits>>)>,
}

impl Probes {
    /// Starts the probes; `objects` is the number of existing keys, `client` the client that pings and puts. One more probe
    /// pings `control`.
    pub(super) fn start(
        address: SocketAddr,
        control: Option<SocketAddr>,
        client: Uuid,
        objects: u64,
    ) -> Self {
        let (phase, warm) = (Arc::new(AtomicU8::new(WARMING)), Arc::new(AtomicU64::new(0)));
        let probes = KINDS.map(|(kind, name)| (kind, name, address)).into_iter();
        let threads = probes.chain(control.map(|control| (Kind::Ping, "control", control)));
        let threads = threads.map(|(kind, name, address)| {
            let (phase, warm) = (Arc::clone(&phase), Arc::clone(&warm));
            (name, std::thread::spawn(move || probe(kind, address, client, objects, &phase, &warm)))
        });
        Self { threads: threads.collect(), phase, warm }
    }

    /// Starts counting, once every probe has made some calls.
    pub(super) async fn count(&self) {
        let ended = || self.threads.iter().any(|(_, thread)| thread.is_finished());
        while self.warm.load(Ordering::Relaxed) < self.threads.len() as u64 && !ended() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        self.phase.store(COUNTING, Ordering::SeqCst);
    }

    /// Waits for the outstanding calls; reports the longest for each probe.
    pub(super) fn stop(self) -> Result<Value, BenchError> {
        self.phase.store(STOPPING, Ordering::SeqCst);
        let mut report = Map::new();
        for (name, thread) in self.threads {
            let waits = thread.join().unwrap_or_else(|_| Err(std::io::Error::other("the probe ended")));
            let waits = waits.map_err(|source| BenchError::Io { what: "a probe lost the master", source })?;
            let numbers = json!({
                "longest_us": waits.longest.as_micros() as u64,
                "p99_us": waits.latencies.quantile(0.99),
                "calls": waits.calls,
            });
            report.insert(name.to_owned(), numbers);
        }
        Ok(Value::Object(report))
    }
}

fn probe(
    kind: Kind,
    address: SocketAddr,
    client: Uuid,
    objects: u64,
    phase: &AtomicU8,
    warm: &AtomicU64,
) -> std::io::Result<Waits> {
    let template = |function| Template::new(function, client, 1, 4096);
    let (asked, then) = match kind {
        Kind::ExistKey => (template(Function::ExistKey), None),
        Kind::Ping => (template(Function::Ping), None),
        Kind::PutStart => (template(Function::PutStart), Some(template(Function::PutEnd))),
    };
    let mut wire = Wire::connect(address, PATIENCE)?;
    let mut waits = Waits { calls: 0, longest: Duration::ZERO, latencies: Latencies::new() };
    // New keys are beyond all existing objects, and differ in every run.
    let unused = (1 << 62) + std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64 >> 2);
    for number in 0_u64.. {
        let begun_in = phase.load(Ordering::SeqCst);
        if begun_in == STOPPING {
            break;
        }
        let key = match kind {
            Kind::PutStart => unused + number,
            // A stride that is coprime to every usual number of objects, so that all shards are visited.
            Kind::ExistKey | Kind::Ping => number.wrapping_mul(7_368_787) % objects.max(1),
        };
        let sent = Instant::now();
        wire.call(&asked, key)?;
        let waited = sent.elapsed();
        // A call that was outstanding when the step began, or when it ended, was delayed by it, too.
        if begun_in == COUNTING || phase.load(Ordering::SeqCst) == COUNTING {
            waits.calls += 1;
            waits.longest = waits.longest.max(waited);
            waits.latencies.add(waited);
        }
        if let Some(then) = &then {
            wire.call(then, key)?;
        }
        if number == WARM_UP {
            warm.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(PAUSE);
    }
    Ok(waits)
}
