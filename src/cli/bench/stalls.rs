//! Measures how long the calls of other clients wait while one client, or the master itself, does something large.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use clap::{Args, ValueEnum};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::clients::{Clients, Layout};
use super::probe::Probes;
use super::{BenchError, Target, seconds};

/// Matches every key of a benchmark.
const EVERY_KEY: &[u8] = b"^moonkeeper/bench/";
/// How often the bench checks whether the segments of ended clients are gone.
const LOOK: Duration = Duration::from_millis(250);
/// Time within which the master must have expired the ended clients.
const EXPIRY: Duration = Duration::from_secs(180);
/// After a fill, time for its after-effects to settle; after a step, for the work that it left in the background.
const REST: Duration = Duration::from_secs(2);

/// What is done while others call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Step {
    /// Nothing: the noise of the machine
    Untouched,
    /// A scrape of /metrics
    Metrics,
    /// /get_all_keys
    AllKeys,
    /// A removal of all objects by a regular expression
    RemoveByRegex,
    /// The unmount of a segment with a tenth of the objects
    Unmount,
    /// The expiry of half of the clients
    Expiry,
    /// RemoveAll
    RemoveAll,
}

#[derive(Debug, Args)]
pub(super) struct StallArguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    layout: Layout,
    /// The master's HTTP address
    #[arg(long, default_value = "127.0.0.1:9003")]
    http: SocketAddr,
    /// The RPC address of another master, which is pinged all the time and asked for nothing else: how late its answers are is
    /// the noise of the machine under the same load
    #[arg(long)]
    control: Option<SocketAddr>,
    /// Rounds of all steps
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Only this step; may be given several times
    #[arg(long)]
    only: Vec<Step>,
    /// Seconds in which nothing is done, to see the noise of the machine
    #[arg(long, default_value_t = 15.0)]
    untouched_seconds: f64,
}

/// Prints a line for every step of every round.
pub(super) async fn run(arguments: &StallArguments) -> Result<(), BenchError> {
    let mut clients = Clients::new(arguments.target, arguments.layout);
    let wanted = |step: &&Step| arguments.only.is_empty() || arguments.only.contains(step);
    for round in 1..=arguments.rounds {
        for step in Step::value_variants().iter().filter(wanted) {
            let mut report = measure(arguments, &mut clients, *step).await?;
            report["round"] = round.into();
            crate::cli::print(&format!("{report}\n"));
        }
    }
    Ok(())
}

async fn measure(arguments: &StallArguments, clients: &mut Clients, step: Step) -> Result<Value, BenchError> {
    let start = Instant::now();
    let filled = clients.complete().await?;
    // With half of the objects missing, a step would look better than it is.
    if filled.refused > arguments.layout.objects / 2 {
        return Err(BenchError::NotFilled(filled.refused));
    }
    let filling = start.elapsed();
    tokio::time::sleep(REST).await;
    let (address, client) = (arguments.target.address, clients.last()?.id);
    let probes = Probes::start(address, arguments.control, client, arguments.layout.objects);
    probes.count().await;
    let start = Instant::now();
    let done = perform(arguments, clients, step).await;
    let took = start.elapsed();
    if step != Step::Untouched {
        tokio::time::sleep(REST).await;
    }
    // The probes are stopped even if the step failed.
    let waits = probes.stop()?;
    let answer = done?;
    Ok(json!({
        "step": step.to_possible_value().map(|value| value.get_name().to_owned()),
        "objects": arguments.layout.objects,
        "put": filled.put,
        "refused": filled.refused,
        "filling_seconds": filling.as_secs_f64(),
        "seconds": took.as_secs_f64(),
        "answer": answer,
        "waits": waits,
    }))
}

/// Carries out a step, waits until it is done, and returns its result: objects removed, or bytes received.
async fn perform(arguments: &StallArguments, clients: &mut Clients, step: Step) -> Result<Value, BenchError> {
    Ok(match step {
        Step::Untouched => {
            tokio::time::sleep(seconds(arguments.untouched_seconds)).await;
            Value::Null
        }
        Step::Metrics => get(arguments.http, "/metrics").await?.len().into(),
        Step::AllKeys => get(arguments.http, "/get_all_keys").await?.len().into(),
        Step::RemoveByRegex => {
            let removed = clients.last()?.remove_by_regex(EVERY_KEY).await;
            clients.emptied();
            removed?.into()
        }
        Step::Unmount => {
            clients.unmount_first().await?;
            Value::Null
        }
        Step::Expiry => {
            let ended = clients.end_half();
            wait_until_gone(arguments.http, &ended).await?;
            Value::Null
        }
        Step::RemoveAll => {
            clients.last()?.remove_all().await?;
            clients.emptied();
            Value::Null
        }
    })
}

async fn wait_until_gone(http: SocketAddr, segments: &[String]) -> Result<(), BenchError> {
    const PATH: &str = "/get_all_segments";
    let end = Instant::now() + EXPIRY;
    loop {
        let body = get(http, PATH).await?;
        let text = String::from_utf8_lossy(&body);
        if !text.lines().any(|line| segments.iter().any(|segment| segment == line)) {
            return Ok(());
        }
        if Instant::now() > end {
            return Err(BenchError::Http { path: PATH, reason: "ended clients do not expire".into() });
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Returns the body of a response, whose status has to be 200.
async fn get(http: SocketAddr, path: &'static str) -> Result<Vec<u8>, BenchError> {
    let failed = |error: std::io::Error| BenchError::Http { path, reason: error.to_string() };
    let mut stream = TcpStream::connect(http).await.map_err(failed)?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {http}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.map_err(failed)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.map_err(failed)?;
    if !answer.starts_with(b"HTTP/1.1 200") {
        let line = answer.split(|byte| *byte == b'\r').next().unwrap_or_default();
        return Err(BenchError::Http { path, reason: String::from_utf8_lossy(line).into_owned() });
    }
    let head = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").map_or(answer.len(), |at| at + 4);
    Ok(answer.split_off(head))
}
