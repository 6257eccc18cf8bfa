//! Puts right after a takeover, which find no memory before clients have rejoined.

use super::{Master, PATIENCE, client_id, connect, mount};
use moonkeeper::engine::segment::SegmentSpec;
use moonkeeper::engine::term_state::Primary;
use moonkeeper::engine::types::Term;
use moonkeeper::master::rpc_server::Serving;
use moonkeeper::replication::clocks::{Clocks, Reading};
use moonkeeper::replication::parked_puts::{MAX_PARKED, PARKED_FOR};
use moonkeeper::replication::time::MonotonicClock;
use moonkeeper::wire::client::{Client, ClientError, Reply};
use moonkeeper::wire::functions::{Rpc, rpc};
use moonkeeper::wire::messages::{
    BatchStartRequest, KeyRequest, MountSegmentRequest, ReMountSegmentRequest, ReplicateConfig, Segment,
    StartRequest,
};
use moonkeeper::wire::struct_pack::{Form, decode, encode};
use moonkeeper::wire::types::ErrorCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const NO_MEMORY: ErrorCode = ErrorCode::NO_AVAILABLE_HANDLE;
/// What the frame of a reply says when the master that took the call no longer leads.
const NOT_LEADING: u8 = 255;

/// A clock that a test sets: however busy the machine is, the time of parking ends when the test says so.
#[derive(Debug, Default)]
struct SetClock(AtomicU64);

impl Clocks for SetClock {
    fn read(&self) -> Reading {
        let now = Duration::from_micros(self.0.load(Ordering::SeqCst));
        Reading { boottime: now, monotonic: now, realtime: now }
    }
}

impl SetClock {
    fn pass(&self, time: Duration) {
        self.0.fetch_add(time.as_micros() as u64, Ordering::SeqCst);
    }
}

/// A master that has taken over from a primary with two clients, each with memory.
struct Takeover {
    master: Master,
    clock: &'static SetClock,
    committing: JoinHandle<()>,
}

impl Takeover {
    async fn new() -> Self {
        Self::with_memory([1 << 30; 2]).await
    }

    async fn with_memory(sizes: [u64; 2]) -> Self {
        let clock: &SetClock = Box::leak(Box::default());
        let mut master = Master::new(600_000);
        master.monotonic = MonotonicClock::on(clock);
        let committing = tokio::spawn(Master::commit_all(Arc::clone(&master.incarnation)));
        let serving = master.open();
        let client = connect(&serving).await;
        for (number, size) in [1, 2].into_iter().zip(sizes) {
            let request = sized(number, size);
            client.call_typed::<rpc::MountSegment>(&request).await.unwrap();
        }
        serving.close().await;
        let primary = Primary { name: b"another", boot_id: 1, leader_ttl: 5_000 };
        master.incarnation.engine.sequencer(master.clock.now()).begin_term(Term(8), &primary, 0);
        Self { master, clock, committing }
    }

    /// (parked now, ever, resumed, starved).
    fn counts(&self) -> [u64; 4] {
        let counters = &self.master.service.metrics.counters;
        let all = [
            &counters.parked_puts,
            &counters.parked_puts_ever,
            &counters.parked_puts_resumed,
            &counters.parked_puts_starved,
        ];
        all.map(|counter| counter.load(Ordering::Relaxed))
    }

    async fn wait_until_parked(&self, count: u64) {
        let parked = async {
            while self.counts()[0] != count {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, parked).await;
        assert!(waited.is_ok(), "{count} puts should be parked: {:?}", self.counts());
    }

    /// The record of the term's begin is written meanwhile; a put that held space would hold it as long as it is parked.
    async fn wait_until_queue_is_empty(&self) {
        let empty = async {
            while self.master.incarnation.queue.bytes() != 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        let waited = tokio::time::timeout(PATIENCE, empty).await;
        assert!(
            waited.is_ok(),
            "a parked put holds space in the queue: {}",
            self.master.incarnation.queue.bytes()
        );
    }

    async fn end(self, serving: Serving) {
        serving.close().await;
        assert!(self.master.incarnation.guards.drained(PATIENCE).await && self.counts()[0] == 0);
        self.committing.abort();
    }
}

fn sized(number: u64, size: u64) -> MountSegmentRequest<'static> {
    let request = mount(number, if number == 1 { b"10.0.0.1:1" } else { b"10.0.0.2:2" });
    MountSegmentRequest { segment: Segment { size, ..request.segment }, ..request }
}

async fn rejoin_with(client: &Client, number: u64, size: u64) {
    let MountSegmentRequest { segment, client_id } = sized(number, size);
    let request = ReMountSegmentRequest { segments: vec![segment], client_id };
    assert_eq!(client.call_typed::<rpc::ReMountSegment>(&request).await.unwrap().value().unwrap(), Ok(()));
}

async fn rejoin(client: &Client, number: u64) {
    rejoin_with(client, number, 1 << 30).await;
}

/// A put under way.
type Put = JoinHandle<Result<Reply, ClientError>>;

/// Sends a call, and waits for its answer in the background.
fn send<F: Rpc>(client: &Client, request: &F::Request<'_>) -> Put {
    tokio::spawn(client.start(F::FUNCTION.id(), |out| encode(request, Form::Short, out)))
}

fn config() -> ReplicateConfig<'static> {
    ReplicateConfig { replica_num: 1, ..ReplicateConfig::default() }
}

fn start(key: &[u8], slice_length: u64) -> StartRequest<'_> {
    StartRequest { client_id: client_id(1), key, slice_length, config: config(), tenant_id: b"default" }
}

fn put(client: &Client, key: &str, size: u64) -> Put {
    send::<rpc::PutStart>(client, &start(key.as_bytes(), size))
}

fn batch<'k>(keys: &[&'k str], sizes: &[u64]) -> BatchStartRequest<'k> {
    BatchStartRequest {
        client_id: client_id(1),
        keys: keys.iter().map(|key| key.as_bytes()).collect(),
        slice_lengths: sizes.to_vec(),
        config: config(),
        tenant_id: b"default",
    }
}

async fn reply(put: Put) -> Reply {
    let reply = tokio::time::timeout(PATIENCE, put).await.expect("it is never answered").unwrap().unwrap();
    assert_eq!(reply.error, 0, "{reply:?}");
    reply
}

/// The answer to a put: whether it began.
async fn answer(put: Put) -> Result<(), ErrorCode> {
    let reply = reply(put).await;
    decode::<<rpc::PutStart as Rpc>::Response<'_>>(&reply.body).unwrap().map(|_| ())
}

/// The answer to each put of a batch.
async fn answers(put: Put) -> Vec<Result<(), ErrorCode>> {
    let reply = reply(put).await;
    let items = decode::<<rpc::BatchPutStart as Rpc>::Response<'_>>(&reply.body).unwrap();
    items.into_iter().map(|item| item.map(|_| ())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_waits_for_a_client_to_rejoin_and_is_overtaken_by_its_connection() {
    let mut takeover = Takeover::new().await;
    let serving = takeover.master.open();
    let client = connect(&serving).await;
    let upsert = send::<rpc::UpsertStart>(&client, &start(b"upsert", 64));
    let single = put(&client, "single", 64);
    let several = send::<rpc::BatchPutStart>(&client, &batch(&["several 0", "several 1"], &[64, 64]));
    takeover.wait_until_parked(3).await;
    takeover.wait_until_queue_is_empty().await;
    let applied = takeover.master.incarnation.engine.applied();
    // Later calls of the same connection go on, and so does the remount.
    let exists = client.call_typed::<rpc::ExistKey>(&KeyRequest { key: b"single", tenant_id: b"default" });
    assert_eq!(exists.await.unwrap().value().unwrap(), Ok(false), "it has not begun");
    assert_eq!(takeover.master.incarnation.engine.applied(), applied);
    assert!(!upsert.is_finished() && !single.is_finished() && !several.is_finished());
    rejoin(&client, 1).await;
    assert_eq!(answer(single).await, Ok(()));
    assert_eq!(answer(upsert).await, Ok(()));
    assert_eq!(answers(several).await, [Ok(()); 2]);
    assert_eq!(takeover.counts(), [0, 3, 3, 0]);
    takeover.end(serving).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_put_that_no_client_rejoins_for_is_answered_after_the_time() {
    let mut takeover = Takeover::new().await;
    let serving = takeover.master.open();
    let client = connect(&serving).await;
    let puts = [put(&client, "a", 64), send::<rpc::UpsertStart>(&client, &start(b"b", 64))];
    takeover.wait_until_parked(2).await;
    takeover.clock.pass(PARKED_FOR);
    for put in puts {
        assert_eq!(answer(put).await, Err(NO_MEMORY));
    }
    assert_eq!(takeover.counts(), [0, 2, 0, 2]);
    assert_eq!(answer(put(&client, "c", 64)).await, Err(NO_MEMORY), "past the time no put waits");
    assert_eq!(takeover.counts(), [0, 2, 0, 2]);
    takeover.end(serving).await;
}

/// Memory for one of two; the one that came first gets it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_puts_are_tried_in_order_until_no_segment_is_closed() {
    let mut takeover = Takeover::with_memory([64 << 10; 2]).await;
    let serving = takeover.master.open();
    let (one, other) = (connect(&serving).await, connect(&serving).await);
    let first = put(&one, "first", 40 << 10);
    takeover.wait_until_parked(1).await;
    let second = put(&other, "second", 40 << 10);
    let large = put(&other, "large", 70 << 10);
    takeover.wait_until_parked(3).await;
    rejoin_with(&other, 1, 64 << 10).await;
    assert_eq!(answer(first).await, Ok(()));
    takeover.wait_until_parked(2).await;
    rejoin_with(&other, 2, 64 << 10).await;
    assert_eq!(answer(second).await, Ok(()));
    assert_eq!(answer(large).await, Err(NO_MEMORY), "there is nothing left to wait for");
    assert_eq!(answer(put(&one, "later", 40 << 10)).await, Err(NO_MEMORY));
    assert_eq!(takeover.counts(), [0, 3, 2, 1]);
    takeover.end(serving).await;
}

/// A batch that has begun in part is answered as it is.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_of_which_some_puts_have_begun_is_not_parked() {
    let mut takeover = Takeover::with_memory([64 << 10; 2]).await;
    let serving = takeover.master.open();
    let client = connect(&serving).await;
    rejoin_with(&client, 1, 64 << 10).await;
    let part = send::<rpc::BatchPutStart>(&client, &batch(&["fits", "does not"], &[40 << 10; 2]));
    assert_eq!(answers(part).await, [Ok(()), Err(NO_MEMORY)]);
    let none = send::<rpc::BatchPutStart>(&client, &batch(&["fits", "does not"], &[40 << 10; 2]));
    takeover.wait_until_parked(1).await;
    rejoin_with(&client, 2, 64 << 10).await;
    assert_eq!(answers(none).await, [Err(ErrorCode::OBJECT_ALREADY_EXISTS), Ok(())]);
    takeover.end(serving).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_more_puts_are_parked_than_there_are_positions() {
    let mut takeover = Takeover::new().await;
    let serving = takeover.master.open();
    let (one, other) = (connect(&serving).await, connect(&serving).await);
    let half = MAX_PARKED / 2;
    let of_one: Vec<Put> = (0..half).map(|number| put(&one, &format!("one {number}"), 64)).collect();
    let of_other: Vec<Put> =
        (half..MAX_PARKED).map(|number| put(&other, &format!("other {number}"), 64)).collect();
    takeover.wait_until_parked(MAX_PARKED as u64).await;
    assert_eq!(answer(put(&other, "one too many", 64)).await, Err(NO_MEMORY));
    // A connection that is closed takes its puts along.
    drop((one, of_one));
    takeover.wait_until_parked((MAX_PARKED - half) as u64).await;
    let again = put(&other, "there is a position again", 64);
    takeover.wait_until_parked((MAX_PARKED - half + 1) as u64).await;
    rejoin(&other, 2).await;
    for put in of_other.into_iter().chain([again]) {
        assert_eq!(answer(put).await, Ok(()));
    }
    takeover.end(serving).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_master_that_leaves_ends_parked_puts_at_once() {
    let mut takeover = Takeover::new().await;
    let serving = takeover.master.open();
    let client = connect(&serving).await;
    let parked = put(&client, "a", 64);
    takeover.wait_until_parked(1).await;
    let applied = takeover.master.incarnation.engine.applied();
    tokio::time::timeout(PATIENCE, serving.close()).await.unwrap();
    let drained = takeover.master.incarnation.guards.drained(PATIENCE).await;
    assert!(drained, "a parked put holds a guard of the term");
    // Its gate is still open, as that of no master that leaves is: the error may come before the connection is closed.
    let ended = parked.await.unwrap();
    let told = matches!(&ended, Ok(reply) if reply.error == NOT_LEADING);
    assert!(told || matches!(ended, Err(ClientError::Closed)), "{ended:?}");
    assert_eq!(takeover.counts(), [0, 1, 0, 0]);
    assert_eq!(takeover.master.incarnation.engine.applied(), applied, "it has not begun");
    // A hand-over that is given up opens the port again, and with it the time of parking begins anew.
    let serving = takeover.master.open();
    let client = connect(&serving).await;
    let parked = put(&client, "a", 64);
    takeover.wait_until_parked(1).await;
    rejoin(&client, 1).await;
    assert_eq!(answer(parked).await, Ok(()));
    takeover.end(serving).await;
}

/// The lease runs out while a put is parked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_put_of_a_master_that_may_no_longer_answer_is_not_begun() {
    let mut takeover = Takeover::new().await;
    let serving = takeover.master.open();
    let client = connect(&serving).await;
    let parked = put(&client, "a", 64);
    takeover.wait_until_parked(1).await;
    takeover.master.incarnation.gate.close();
    // There is memory for it now: only the end of the lease keeps it from beginning.
    let MountSegmentRequest { segment, client_id } = sized(1, 1 << 30);
    let Segment { id, name, base, size, te_endpoint, protocol, host_id } = segment;
    let spec = SegmentSpec { id, name, base, size, te_endpoint, protocol, host_id };
    let engine = &takeover.master.incarnation.engine;
    assert_eq!(engine.remount(&[spec], client_id, takeover.master.clock.now()).result, Ok(()));
    let applied = engine.applied();
    takeover.clock.pass(PARKED_FOR);
    let ended = tokio::time::timeout(PATIENCE, parked).await.unwrap().unwrap();
    assert!(matches!(ended, Err(ClientError::Closed)), "{ended:?}");
    assert_eq!(takeover.master.incarnation.engine.applied(), applied);
    takeover.end(serving).await;
}
