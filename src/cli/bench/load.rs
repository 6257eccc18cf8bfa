//! The load: connections that each keep a number of operations outstanding.
//!
//! A connection handles everything that one read brought with one write, and reads the clock once for both, so that the
//! load itself costs little beside a master on the same machine.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::calls::{Check, Scenario, Template};
use super::latency::Latencies;
use super::session::Session;
use super::{BenchError, LoadArguments, Target, process, seconds};
use crate::wire::frame::{RESPONSE_HEADER, ResponseHeader};
use crate::wire::types::Uuid;

/// Least free capacity of the buffer for every read.
const READ: usize = 64 << 10;

/// State that all connections share.
pub(super) struct Plan {
    scenario: Scenario,
    templates: Vec<Template>,
    items: u64,
    /// Objects that may be read; for a put, objects to be put.
    keys: u64,
    /// The first key that is not put yet.
    next: AtomicU64,
    /// Whether operations are counted; not during the warm-up.
    counting: AtomicBool,
    /// Whether no further operation may start.
    stopping: AtomicBool,
}

/// Counts of one connection, or of all, while operations were counted.
pub(super) struct Tally {
    pub(super) operations: u64,
    pub(super) errors: u64,
    latencies: Latencies,
}

impl Plan {
    pub(super) fn new(scenario: Scenario, client: Uuid, target: &Target, keys: u64) -> Self {
        Self::placed(scenario, client, target, 0..keys, None)
    }

    /// Plans puts of these keys that prefer a segment.
    fn placed(
        scenario: Scenario,
        client: Uuid,
        target: &Target,
        keys: Range<u64>,
        segment: Option<&[u8]>,
    ) -> Self {
        let items = scenario.items(target.batch);
        let template =
            |function: &_| Template::placed(*function, client, items, target.value_length, segment);
        Self {
            scenario,
            templates: scenario.functions().iter().map(template).collect(),
            items,
            keys: keys.end,
            next: AtomicU64::new(keys.start),
            counting: AtomicBool::new(true),
            stopping: AtomicBool::new(false),
        }
    }

    /// Returns the first key of the next operation, or `None` if no further operation may start.
    fn draw(&self, random: &mut u64) -> Option<u64> {
        if self.stopping.load(Ordering::Relaxed) {
            return None;
        }
        if !self.scenario.reads() {
            let first = self.next.fetch_add(self.items, Ordering::Relaxed);
            return (first < self.keys).then_some(first);
        }
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        let choices = u128::from(self.keys - self.items + 1);
        Some(((u128::from(*random) * choices) >> 64) as u64)
    }
}

/// Puts objects with the keys from 0 on, as fast as the master accepts them.
pub(super) async fn fill(target: &Target, client: Uuid, objects: u64) -> Result<Tally, BenchError> {
    let few = Target { connections: 4, outstanding: 2, ..*target };
    let plan = Arc::new(Plan::new(Scenario::BatchPut, client, &few, objects));
    spread(&few, &plan).await
}

/// Puts the objects with these keys into the segment of a client.
pub(super) async fn fill_segment(
    target: &Target,
    session: &Session,
    keys: Range<u64>,
) -> Result<Tally, BenchError> {
    let few = Target { connections: 4, outstanding: 4, ..*target };
    let segment = Some(session.segment_name());
    let plan = Arc::new(Plan::placed(Scenario::BatchPut, session.id, &few, keys, segment));
    spread(&few, &plan).await
}

/// Runs a scenario for a while and reports its throughput and latencies.
pub(super) async fn measure(arguments: &LoadArguments) -> Result<Value, BenchError> {
    let LoadArguments { target, scenario, keys, .. } = arguments;
    let session = match arguments.filled {
        true => None,
        false => Some(Session::open(target.address, target.segment_gib << 30).await?),
    };
    let id = session.as_ref().map_or(Uuid { first: 1, second: 1 }, |session| session.id);
    let keys = if scenario.reads() {
        if *keys < scenario.items(target.batch) {
            return Err(BenchError::TooFewKeys);
        }
        if session.is_some() {
            fill(target, id, *keys).await?;
        }
        *keys
    } else {
        u64::MAX
    };
    let plan = Arc::new(Plan::new(*scenario, id, target, keys));
    plan.counting.store(false, Ordering::Relaxed);
    let load = {
        let (target, plan) = (*target, Arc::clone(&plan));
        tokio::spawn(async move { spread(&target, &plan).await })
    };
    tokio::time::sleep(seconds(arguments.warm_up)).await;
    let used = || target.pid.map(process::cpu_micros).transpose();
    let (start, cpu) = (Instant::now(), used()?);
    plan.counting.store(true, Ordering::Relaxed);
    tokio::time::sleep(seconds(arguments.seconds)).await;
    plan.counting.store(false, Ordering::Relaxed);
    let (elapsed, cpu) = (start.elapsed(), used()?.zip(cpu).map(|(after, before)| after - before));
    plan.stopping.store(true, Ordering::Relaxed);
    let tally = load
        .await
        .map_err(|error| BenchError::Io { what: "the load ended early", source: error.into() })??;
    if let Some(session) = session {
        session.close().await?;
    }
    Ok(report(arguments, &plan, &tally, elapsed, cpu))
}

fn report(
    arguments: &LoadArguments,
    plan: &Plan,
    tally: &Tally,
    elapsed: Duration,
    cpu: Option<u64>,
) -> Value {
    let per_second = tally.operations as f64 / elapsed.as_secs_f64();
    json!({
        "scenario": format!("{:?}", arguments.scenario),
        "connections": arguments.target.connections,
        "outstanding": arguments.target.outstanding,
        "seconds": elapsed.as_secs_f64(),
        "calls": tally.operations,
        "items": tally.operations * plan.items,
        "errors": tally.errors,
        "calls_per_second": per_second,
        "items_per_second": per_second * plan.items as f64,
        "p50_us": tally.latencies.quantile(0.5),
        "p99_us": tally.latencies.quantile(0.99),
        "cpu_us": cpu,
        "cpu_us_per_call": cpu.map(|cpu| cpu as f64 / tally.operations.max(1) as f64),
        "cpu_us_per_item": cpu.map(|cpu| cpu as f64 / (tally.operations * plan.items).max(1) as f64),
    })
}

/// Runs all connections until no further operation may start and every reply has come.
async fn spread(target: &Target, plan: &Arc<Plan>) -> Result<Tally, BenchError> {
    let mut connections = Vec::new();
    for number in 0..target.connections {
        let connection = Connection::open(target.address, Arc::clone(plan), number).await?;
        connections.push(tokio::spawn(connection.run(target.outstanding)));
    }
    let mut sum = Tally { operations: 0, errors: 0, latencies: Latencies::new() };
    for connection in connections {
        let ended = connection.await;
        let one = ended
            .map_err(|error| BenchError::Io { what: "the load ended early", source: error.into() })??;
        sum.operations += one.operations;
        sum.errors += one.errors;
        sum.latencies.add_all(&one.latencies);
    }
    Ok(sum)
}

/// One operation under way. Its sequence number on the wire is its index.
struct Slot {
    first: u64,
    step: usize,
    since: Instant,
}

struct Connection {
    plan: Arc<Plan>,
    stream: TcpStream,
    checks: Vec<Check>,
    slots: Vec<Slot>,
    under_way: usize,
    output: Vec<u8>,
    tally: Tally,
    random: u64,
}

impl Connection {
    async fn open(address: SocketAddr, plan: Arc<Plan>, number: u32) -> Result<Self, BenchError> {
        let connected = async {
            let stream = TcpStream::connect(address).await?;
            stream.set_nodelay(true)?;
            Ok(stream)
        };
        let stream = connected.await.map_err(|source| BenchError::Io { what: "cannot connect", source })?;
        let check = |function: &_| Check::new(*function, plan.items);
        Ok(Self {
            stream,
            checks: plan.scenario.functions().iter().map(check).collect(),
            slots: Vec::new(),
            under_way: 0,
            output: Vec::new(),
            tally: Tally { operations: 0, errors: 0, latencies: Latencies::new() },
            random: 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(u64::from(number) + 1),
            plan,
        })
    }

    async fn run(mut self, outstanding: u32) -> Result<Tally, BenchError> {
        let broken = |source| BenchError::Io { what: "a connection broke", source };
        let now = Instant::now();
        for number in 0..outstanding {
            self.slots.push(Slot { first: 0, step: 0, since: now });
            self.start(number as usize, now);
        }
        let mut input = BytesMut::with_capacity(READ);
        while self.under_way > 0 {
            if !self.output.is_empty() {
                self.stream.write_all(&self.output).await.map_err(broken)?;
                self.output.clear();
            }
            input.reserve(READ);
            if self.stream.read_buf(&mut input).await.map_err(broken)? == 0 {
                return Err(broken(std::io::ErrorKind::UnexpectedEof.into()));
            }
            let now = Instant::now();
            while let Some(header) = input.first_chunk::<RESPONSE_HEADER>() {
                let header = ResponseHeader::parse(header)?;
                let length = RESPONSE_HEADER + header.length as usize + header.attachment_length as usize;
                if input.len() < length {
                    break;
                }
                self.answered(&header, &input[RESPONSE_HEADER..length], now);
                input.advance(length);
            }
        }
        Ok(self.tally)
    }

    /// Starts an operation in an empty slot, if one may start.
    fn start(&mut self, slot: usize, now: Instant) {
        if let Some(first) = self.plan.draw(&mut self.random) {
            self.slots[slot] = Slot { first, step: 0, since: now };
            self.under_way += 1;
            self.plan.templates[0].append(&mut self.output, slot as u32, first);
        }
    }

    /// Continues the operation whose call was answered: with its next call, or with another operation.
    fn answered(&mut self, header: &ResponseHeader, body: &[u8], now: Instant) {
        let number = header.sequence as usize;
        let Some(slot) = self.slots.get_mut(number) else {
            self.tally.errors += 1;
            return;
        };
        let good = header.error == 0 && self.checks[slot.step].is_good(body);
        slot.step += 1;
        if good && let Some(template) = self.plan.templates.get(slot.step) {
            template.append(&mut self.output, header.sequence, slot.first);
            return;
        }
        if self.plan.counting.load(Ordering::Relaxed) {
            self.tally.operations += 1;
            self.tally.errors += u64::from(!good);
            self.tally.latencies.add(now - slot.since);
        }
        self.under_way -= 1;
        self.start(number, now);
    }
}
