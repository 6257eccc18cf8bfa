//! Serving over several openings of the port in one term, through the real port: no straggler, and no client without a
//! deadline.

mod parked_puts;

use moonkeeper::engine::settings::EngineSettings;
use moonkeeper::engine::types::{SequenceId, Term};
use moonkeeper::master::handlers::Told;
use moonkeeper::master::metrics::Metrics;
use moonkeeper::master::rpc_server::{ServeConfig, Serving};
use moonkeeper::master::rpc_service::LogContext;
use moonkeeper::master::settings::ha::Durability;
use moonkeeper::replication::incarnation::Incarnation;
use moonkeeper::replication::time::RunningClock;
use moonkeeper::replication::time::{Monotonic, MonotonicClock};
use moonkeeper::wire::client::{Client, ClientError};
use moonkeeper::wire::functions::{Rpc, rpc};
use moonkeeper::wire::messages::{MountSegmentRequest, RemoveRequest, Segment};
use moonkeeper::wire::server::Settings;
use moonkeeper::wire::struct_pack::{Form, encode};
use moonkeeper::wire::types::Uuid;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The RPC error of a master that no longer leads.
const NOT_LEADING: u8 = 255;

/// Only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

const TERM: Term = Term(7);

struct Master {
    service: ServeConfig,
    incarnation: Arc<Incarnation>,
    clock: RunningClock,
    monotonic: MonotonicClock,
}

impl Master {
    fn new(client_ttl: u64) -> Self {
        Self::with_queue(client_ttl, 64 << 20)
    }

    fn with_queue(client_ttl: u64, queue_bytes: usize) -> Self {
        let incarnation = Incarnation::new(EngineSettings::default(), queue_bytes);
        incarnation.gate.open_until(Monotonic(u64::MAX));
        let service = ServeConfig {
            address: "127.0.0.1:0".parse().unwrap(),
            server: Settings::default(),
            told: Told {
                fsdir: Vec::new(),
                enable_disk_eviction: false,
                quota_bytes: 0,
                max_retry_attempts: 0,
            },
            client_ttl,
            inherited_client_ttl: 180_000,
            forget_metadata: false,
            lease_sync: Duration::from_secs(1),
            metrics: Metrics::new(),
            deadlines: None,
        };
        Self { service, incarnation, clock: RunningClock::start(), monotonic: MonotonicClock::start() }
    }

    fn open(&mut self) -> Serving {
        let (incarnation, clock) = (Arc::clone(&self.incarnation), self.monotonic);
        let engine = Arc::clone(&incarnation.engine);
        let replication = LogContext { incarnation, clock, durability: Durability::Strict };
        self.service.open(None, engine, self.clock, Some(replication), TERM).unwrap()
    }

    /// Everything is durable as soon as it is applied.
    async fn commit_all(incarnation: Arc<Incarnation>) {
        loop {
            Self::commit(&incarnation);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Everything that is queued is durable.
    fn commit(incarnation: &Incarnation) {
        while let Some(chunk) = incarnation.queue.take() {
            let last = chunk.last();
            incarnation.queue.done(chunk);
            incarnation.gate.advance(last);
        }
    }
}

fn client_id(number: u64) -> Uuid {
    Uuid { first: number, second: 2 }
}

fn mount(number: u64, name: &[u8]) -> MountSegmentRequest<'_> {
    let segment = Segment {
        id: Uuid { first: 7, second: number },
        name,
        base: number << 40,
        size: 1 << 30,
        te_endpoint: name,
        protocol: b"tcp",
        host_id: b"",
    };
    MountSegmentRequest { segment, client_id: client_id(number) }
}

async fn connect(serving: &Serving) -> Client {
    Client::connect(serving.address, Form::Short).await.unwrap()
}

/// Objects in every shard.
fn fill(incarnation: &Incarnation, clock: RunningClock, objects: usize) {
    use moonkeeper::engine::ops::{ReplicaTypes, WriteConfig};
    let client = moonkeeper::engine::types::Uuid { first: 1, second: 2 };
    for number in 0..objects {
        let key = format!("x{number}");
        let now = clock.now();
        let config = WriteConfig { replicas: 1, ..WriteConfig::default() };
        let started = incarnation.engine.sequencer(now).put_start(client, key.as_bytes(), 64, &config);
        assert!(started.result.is_ok());
        let ended = incarnation.engine.sequencer(now).end(client, key.as_bytes(), ReplicaTypes::Memory, None);
        assert!(ended.result.is_ok());
    }
}

/// The schedule of F4: a removal by pattern is under way at a closing; the port opens again; another one is under way at
/// the next closing. When a closing says quiet, no record is made any more.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_removal_goes_on_after_a_closing_said_quiet() {
    // Smaller than what one chunk asks for, which is therefore admitted when all before it is written.
    let mut master = Master::with_queue(600_000, 1 << 17);
    let incarnation = Arc::clone(&master.incarnation);
    let committing = tokio::spawn(Master::commit_all(Arc::clone(&incarnation)));
    let serving = master.open();
    let client = connect(&serving).await;
    client.call_typed::<rpc::MountSegment>(&mount(1, b"10.0.0.1:1")).await.unwrap();
    fill(&incarnation, master.clock, 5_000);
    while incarnation.queue.bytes() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    committing.abort();
    let mut serving = Some(serving);
    for _ in 0..2 {
        let open = serving.take().unwrap_or_else(|| master.open());
        let client = connect(&open).await;
        let mut arguments = Vec::new();
        let request = RemoveRequest { key: b"^x", force: true, tenant_id: b"" };
        encode(&request, Form::Short, &mut arguments);
        let before = incarnation.engine.applied();
        let removal = client.start(rpc::RemoveByRegex::FUNCTION.id(), |out| out.extend(&arguments));
        let removal = tokio::spawn(removal);
        // It has removed some objects and waits for space for the next ones: nothing is written.
        while incarnation.engine.applied() == before {
            assert!(!removal.is_finished(), "it found nothing");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let (quiet, port) = tokio::time::timeout(PATIENCE, open.close()).await.unwrap();
        drop(port);
        let at_close = incarnation.engine.applied();
        // The connection may go before or after it is told that it was called off.
        match removal.await.unwrap() {
            Err(ClientError::Closed) => {}
            Ok(reply) => assert_eq!(reply.error, NOT_LEADING, "its answer was sent"),
            Err(error) => panic!("{error}"),
        }
        // Now there is space.
        Master::commit(&incarnation);
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (now, left) = (incarnation.engine.applied(), incarnation.engine.len());
        assert!(!quiet || now == at_close, "records were made after a closing had said quiet");
        assert!(quiet, "a removal is cancelled between chunks and never aborts a hand-over");
        assert!(incarnation.guards.is_drained() && left > 0);
    }
}

/// What outlives one closing is counted at the next, although the port was open in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_straggler_of_an_earlier_opening_is_counted_at_the_next_closing() {
    let mut master = Master::new(600_000);
    let serving = master.open();
    let straggler = master.incarnation.guards.guard().unwrap();
    assert!(!serving.close().await.0);
    let serving = master.open();
    assert!(straggler.is_cancelled());
    let (quiet, _) = serving.close().await;
    assert!(!quiet, "work that had begun before goes on");
    let serving = master.open();
    drop(straggler);
    assert!(serving.close().await.0);
}

async fn ping(serving: &Serving, number: u64) {
    let client = connect(serving).await;
    client.call_typed::<rpc::Ping>(&client_id(number)).await.unwrap();
}

/// F5: clients that joined in this term, and fell silent, lose their segments although the port was closed and opened
/// again in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_keep_their_deadlines_when_the_port_opens_again_in_the_same_term() {
    let mut master = Master::new(3_000);
    let committing = tokio::spawn(Master::commit_all(Arc::clone(&master.incarnation)));
    let serving = master.open();
    let client = connect(&serving).await;
    client.call_typed::<rpc::MountSegment>(&mount(1, b"10.0.0.1:1")).await.unwrap();
    client.call_typed::<rpc::MountSegment>(&mount(2, b"10.0.0.2:2")).await.unwrap();
    assert!(serving.close().await.0);
    // Longer than any client may be silent, but none could be heard.
    tokio::time::sleep(Duration::from_millis(3_500)).await;
    let serving = master.open();
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(master.incarnation.engine.segments().len(), 2, "no client could be heard meanwhile");
    let began = Instant::now();
    while master.incarnation.engine.segments().len() > 1 {
        assert!(began.elapsed() < PATIENCE, "a silent client keeps its segments for ever");
        ping(&serving, 2).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(&*master.incarnation.engine.segments()[0].name, b"10.0.0.2:2");
    serving.close().await;
    committing.abort();
}

/// Calls whose records etcd refuses are answered that their outcome is unknown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_a_full_etcd_refuses_has_an_unknown_outcome() {
    let mut master = Master::new(600_000);
    let serving = master.open();
    let client = connect(&serving).await;
    let request = mount(1, b"10.0.0.1:1");
    let mut mounting = std::pin::pin!(client.call_typed::<rpc::MountSegment>(&request));
    // Nothing is ever written.
    assert!(tokio::time::timeout(Duration::from_millis(200), &mut mounting).await.is_err());
    assert!(master.incarnation.engine.applied() > SequenceId(0));
    master.incarnation.gate.set_log_full(true);
    let answer = tokio::time::timeout(PATIENCE, mounting).await.unwrap();
    let Err(ClientError::Rpc { code: 3, message }) = answer else { panic!("{answer:?}") };
    assert_eq!(
        message,
        "the log is full or refused by etcd (see the status), whether this was done is unknown"
    );
    // New changes are refused at once, with nothing applied; reads go on.
    let applied = master.incarnation.engine.applied();
    let refused = client.call_typed::<rpc::MountSegment>(&mount(2, b"10.0.0.2:2")).await;
    let Err(ClientError::Rpc { code: 3, message }) = refused else { panic!("{refused:?}") };
    assert_eq!(message, "the log is full or refused by etcd (see the status), nothing was changed");
    assert_eq!(master.incarnation.engine.applied(), applied);
    // etcd takes writes again.
    master.incarnation.gate.set_log_full(false);
    let committing = tokio::spawn(Master::commit_all(Arc::clone(&master.incarnation)));
    client.call_typed::<rpc::MountSegment>(&mount(3, b"10.0.0.3:3")).await.unwrap();
    assert_eq!(master.incarnation.engine.segments().len(), 2);
    committing.abort();
    serving.close().await;
}
