//! A fuzzer of the decoders and the framing, seeded with captured frames.

use crate::captured::captured;
use crate::counting;
use crate::mutations::{cases, mutate, seeds};
use moonkeeper::engine::types::SequenceId;
use moonkeeper::wire::client_version;
use moonkeeper::wire::frame::{INVALID_RPC_ARGUMENTS, RESPONSE_HEADER, ResponseHeader, append_request};
use moonkeeper::wire::functions::{Function, Rpc, Visitor};
use moonkeeper::wire::server::{BoxFuture, Failure, Outcome, Server, Service, Settings, Waited};
use moonkeeper::wire::struct_pack::{Decode, Encode, Form, decode, encode};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::watch;

/// What all of it may reserve at one time, whatever the inputs say: inputs have some kilobytes, and all of it together
/// was seen to take less than a megabyte. A length that is believed asks for gigabytes.
const RESERVED_LIMIT: usize = 16 << 20;
/// Cases of each kind, twice: about five seconds.
const BODIES: u64 = 1_500_000;
const STREAMS: u64 = 20_000;

/// What decodes is the same value after every way there and back.
fn check_stable<'a, T: Encode + Decode<'a> + PartialEq + std::fmt::Debug>(
    body: &'a [u8],
    short: &'a mut Vec<u8>,
    long: &'a mut Vec<u8>,
) -> bool {
    let Ok(value) = decode::<T>(body) else { return false };
    encode(&value, Form::Short, short);
    encode(&value, Form::Long, long);
    assert_eq!(decode::<T>(short).as_ref(), Ok(&value));
    assert_eq!(decode::<T>(long).as_ref(), Ok(&value));
    true
}

struct Stable<'b>(&'b [u8]);

impl Visitor for Stable<'_> {
    /// Whether it was a request, and whether it was a response.
    type Output = (bool, bool);

    fn visit<F: Rpc>(self) -> (bool, bool) {
        let request = check_stable::<F::Request<'_>>(self.0, &mut Vec::new(), &mut Vec::new());
        let response = check_stable::<F::Response<'_>>(self.0, &mut Vec::new(), &mut Vec::new());
        (request, response)
    }
}

#[test]
fn decoders_survive_mutated_bodies() {
    let seeds = seeds();
    let bodies: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.1.clone()).collect();
    let (mut requests, mut responses) = (0u64, 0u64);
    let cases = cases(BODIES, |random| {
        let (function, body) = &seeds[random.below(seeds.len())];
        let mut body = body.clone();
        mutate(random, &mut body, &bodies);
        let (request, response) = function.visit(Stable(&body));
        requests += u64::from(request);
        responses += u64::from(response);
        if !request {
            let _ = client_version::explain(*function, &body).to_string();
        }
    });
    println!("{cases} bodies, {requests} decoded as requests, {responses} as responses");
    // A fuzzer whose inputs are all refused at the first byte tests nothing.
    assert!(requests > cases / 20 && responses > cases / 20);
    assert!(counting::peak() < RESERVED_LIMIT, "{} MiB were reserved", counting::peak() >> 20);
}

/// Decodes every request for real and answers it with the little that a test needs.
struct Decoding;

struct Decodes<'b>(&'b [u8]);

impl Visitor for Decodes<'_> {
    type Output = bool;

    fn visit<F: Rpc>(self) -> bool {
        decode::<F::Request<'_>>(self.0).is_ok()
    }
}

impl Service for Decoding {
    fn call(&self, function: Function, body: &[u8], _: &mut Waited, out: &mut Vec<u8>) -> Outcome {
        if function.visit(Decodes(body)) {
            encode(&true, Form::Short, out);
            Outcome::Ready { depends_on: SequenceId(0) }
        } else {
            Outcome::Error(Failure { code: INVALID_RPC_ARGUMENTS, message: "invalid rpc arg" })
        }
    }

    fn durable(&self) -> SequenceId {
        SequenceId::NEVER
    }

    fn wait_durable(&self, _: SequenceId) -> BoxFuture<()> {
        Box::pin(std::future::ready(()))
    }

    fn may_write(&self) -> bool {
        true
    }
}

/// Sends a stream in pieces and reads until the server ends it; the replies that came are whole frames but the last.
async fn exchange(address: std::net::SocketAddr, bytes: &[u8], pieces: &[usize]) -> usize {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let (mut read, mut write) = stream.split();
    let send = async {
        let mut rest = bytes;
        for piece in pieces.iter().cycle() {
            let (now, later) = rest.split_at((*piece).min(rest.len()));
            // The server may have closed already.
            if now.is_empty() || write.write_all(now).await.is_err() {
                break;
            }
            rest = later;
            tokio::task::yield_now().await;
        }
        let _ = write.shutdown().await;
    };
    let mut replies = Vec::new();
    let receive = async {
        let _ = read.read_to_end(&mut replies).await;
    };
    tokio::time::timeout(Duration::from_secs(60), async { tokio::join!(send, receive) })
        .await
        .expect("the server neither answers nor closes");
    let mut rest = replies.as_slice();
    let mut count = 0;
    while let Some(header) = rest.first_chunk::<RESPONSE_HEADER>() {
        let header = ResponseHeader::parse(header).unwrap();
        assert!([0, 4, 11].contains(&header.error), "{header:?}");
        rest = rest.get(RESPONSE_HEADER + header.length as usize..).unwrap_or_default();
        count += 1;
    }
    count
}

/// Panics of any thread: the server survives one of a handler, this test must not.
static PANICS: AtomicUsize = AtomicUsize::new(0);

#[test]
fn the_framing_survives_mutated_streams() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let requests: Vec<_> = captured().into_iter().filter(|frame| frame.is_request).collect();
    let streams: Vec<Vec<u8>> =
        requests.iter().map(|frame| [&frame.header[..], &frame.body].concat()).collect();
    let (stop, stopped) = watch::channel(false);
    let (address, server) = runtime.block_on(async {
        let server = Server::bind("127.0.0.1:0".parse().unwrap(), Settings::default()).unwrap();
        (server.local_address(), tokio::spawn(server.serve(Arc::new(Decoding), stopped)))
    });
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        PANICS.fetch_add(1, Ordering::Relaxed);
        print(panic);
    }));
    let mut healthy = Vec::new();
    append_request(&mut healthy, 1, Function::ServiceReady.id(), |_| {});
    let mut replies = 0;
    let cases = cases(STREAMS, |random| {
        let mut bytes = Vec::new();
        for _ in 0..1 + random.below(12) {
            bytes.extend_from_slice(&streams[random.below(streams.len())]);
        }
        if random.below(4) > 0 {
            mutate(random, &mut bytes, &streams);
        }
        let pieces = [1 + random.below(40), 1 + random.below(4000), 1 + random.below(300)];
        replies += runtime.block_on(exchange(address, &bytes, &pieces));
    });
    println!("{cases} streams, {replies} replies");
    assert!(replies as u64 > cases);
    assert_eq!(runtime.block_on(exchange(address, &healthy, &[1])), 1, "the server still answers");
    assert!(counting::peak() < RESERVED_LIMIT, "{} MiB were reserved", counting::peak() >> 20);
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "something panicked");
    stop.send_replace(true);
    runtime.block_on(server).expect("no handler and no accept loop panicked");
}
