//! A service for tests: what a call does is written in its key.

use moonkeeper::engine::types::SequenceId;
use moonkeeper::wire::frame::INVALID_RPC_ARGUMENTS;
use moonkeeper::wire::functions::{Function, decode_request, encode_response, rpc};
use moonkeeper::wire::messages::{KeyRequest, ReplicaDescriptor};
use moonkeeper::wire::server::{BoxFuture, Failure, Offload, Outcome, Server, Service, Settings, Waited};
use moonkeeper::wire::struct_pack::{Form, Map};
use moonkeeper::wire::types::Expected;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

/// Answers ExistKey with true. Keys with a meaning: `busy...` (refused until `capacity` is true), `wait N ...` (the
/// reply depends on sequence id N), `later N` (offloaded when `later` is true, with N more bytes), `change N` (the
/// same, and holds back what comes after it), `turn...` (one at a time), `panic`.
/// GetReplicaListByRegex answers with as many bytes as its key says.
pub struct Scripted {
    /// The keys of calls in the order in which they started.
    pub started: Mutex<Vec<Vec<u8>>>,
    /// The durable prefix.
    pub durable: watch::Sender<u64>,
    /// Whether busy calls may start.
    pub capacity: watch::Sender<bool>,
    /// Whether later calls may end.
    pub later: watch::Sender<bool>,
    /// How many of them are at work.
    pub at_work: Arc<AtomicUsize>,
    /// Whose turn it is.
    pub turns: Arc<Semaphore>,
    /// Whether this master leads.
    pub leads: AtomicBool,
}

impl Scripted {
    /// Nothing durable, no capacity, leading.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            started: Mutex::default(),
            durable: watch::Sender::new(0),
            capacity: watch::Sender::new(false),
            later: watch::Sender::new(false),
            at_work: Arc::default(),
            turns: Arc::new(Semaphore::new(1)),
            leads: AtomicBool::new(true),
        })
    }

    fn exist_key(&self, body: &[u8], waited: &mut Waited, out: &mut Vec<u8>) -> Outcome {
        let Ok(KeyRequest { key, .. }) = decode_request::<rpc::ExistKey>(body) else {
            return Outcome::Error(Failure { code: INVALID_RPC_ARGUMENTS, message: "invalid rpc arg" });
        };
        if key.starts_with(b"busy") && !*self.capacity.borrow() {
            out.extend_from_slice(b"thrown away");
            let mut capacity = self.capacity.subscribe();
            return Outcome::Busy(Box::pin(async move {
                capacity.wait_for(|capacity| *capacity).await.unwrap();
                None
            }));
        }
        if key.starts_with(b"turn") && waited.turn.is_none() {
            waited.turn = Arc::clone(&self.turns).try_acquire_owned().ok();
            if waited.turn.is_none() {
                let turns = Arc::clone(&self.turns);
                return Outcome::Busy(Box::pin(async move { turns.acquire_owned().await.ok() }));
            }
        }
        self.started.lock().unwrap().push(key.to_vec());
        assert!(key != b"panic", "as the test asked for");
        if key.starts_with(b"later") || key.starts_with(b"change") {
            let more = key.split(|byte| *byte == b' ').nth(1).map_or(0, number);
            let (mut later, at_work) = (self.later.subscribe(), Arc::clone(&self.at_work));
            let work = move |out: &mut Vec<u8>| {
                at_work.fetch_add(1, Ordering::Relaxed);
                // When the test is over, nobody can say so any more.
                let _ = tokio::runtime::Handle::current().block_on(later.wait_for(|later| *later));
                encode_response::<rpc::ExistKey, _>(&Expected::Ok(true), out);
                out.resize(out.len() + more as usize, 0);
                at_work.fetch_sub(1, Ordering::Relaxed);
                Ok(SequenceId(0))
            };
            let holds_back = key.starts_with(b"change");
            return Outcome::Offload(Box::new(Offload {
                work: Box::new(work),
                keeps: key.len(),
                holds_back,
            }));
        }
        encode_response::<rpc::ExistKey, _>(&Expected::Ok(true), out);
        let words: Vec<&[u8]> = key.split(|byte| *byte == b' ').collect();
        let depends_on = match words[..] {
            [b"wait", id, ..] => SequenceId(number(id)),
            _ => SequenceId(0),
        };
        Outcome::Ready { depends_on }
    }
}

impl Service for Scripted {
    fn call(&self, function: Function, body: &[u8], waited: &mut Waited, out: &mut Vec<u8>) -> Outcome {
        match function {
            Function::ExistKey => self.exist_key(body, waited, out),
            Function::GetReplicaListByRegex => {
                let request = decode_request::<rpc::GetReplicaListByRegex>(body).unwrap();
                let length = std::str::from_utf8(request.key).unwrap().parse().unwrap();
                let key = vec![b'k'; length];
                let found = Map(vec![(key.as_slice(), Vec::<ReplicaDescriptor<'_>>::new())]);
                encode_response::<rpc::GetReplicaListByRegex, _>(&Expected::Ok(found), out);
                Outcome::Ready { depends_on: SequenceId(0) }
            }
            _ => Outcome::Error(Failure { code: INVALID_RPC_ARGUMENTS, message: "invalid rpc arg" }),
        }
    }

    fn durable(&self) -> SequenceId {
        SequenceId(*self.durable.borrow())
    }

    fn wait_durable(&self, id: SequenceId) -> BoxFuture<()> {
        let mut durable = self.durable.subscribe();
        Box::pin(async move {
            durable.wait_for(|durable| *durable >= id.0).await.unwrap();
        })
    }

    fn may_write(&self) -> bool {
        self.leads.load(Ordering::Relaxed)
    }
}

fn number(text: &[u8]) -> u64 {
    std::str::from_utf8(text).unwrap().parse().unwrap()
}

/// A server that runs.
pub struct Running {
    /// Where.
    pub address: SocketAddr,
    /// Ends it when true.
    pub stop: watch::Sender<bool>,
    /// Its task.
    pub task: JoinHandle<()>,
}

/// Starts a server on a free port.
pub fn start(service: &Arc<Scripted>, settings: Settings) -> Running {
    let server = Server::bind("127.0.0.1:0".parse().unwrap(), settings).unwrap();
    let address = server.local_address();
    let (stop, stopped) = watch::channel(false);
    let serving = server.serve(Arc::clone(service), stopped);
    let task = tokio::spawn(async move { drop(serving.await) });
    Running { address, stop, task }
}

/// The arguments of ExistKey, encoded.
pub fn key_body(key: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    let request = KeyRequest { key, tenant_id: b"default" };
    moonkeeper::wire::struct_pack::encode(&request, Form::Short, &mut body);
    body
}
