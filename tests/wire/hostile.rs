//! Peers that mean no good: wrong bytes, lying lengths, masses of connections, clients that never read.

use crate::part::{self, Part};
use crate::scripted::{Scripted, key_body, start};
use moonkeeper::wire::client::{Client, ClientError};
use moonkeeper::wire::frame::{MAX_REQUEST, REQUEST_HEADER, RequestHeader, append_request};
use moonkeeper::wire::functions::Function;
use moonkeeper::wire::server::Settings;
use moonkeeper::wire::struct_pack::Form;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What all clients that never read may cost together.
const NEVER_READ_LIMIT: u64 = 200 << 20;
/// What an idle connection may cost, its task and its socket included.
const IDLE_LIMIT: u64 = 4 << 10;

async fn answers(address: SocketAddr) {
    let client = Client::connect(address, Form::Short).await.unwrap();
    assert_eq!(client.call(Function::ExistKey, &key_body(b"a")).await.unwrap().error, 0);
}

/// Sends bytes and expects the connection to be closed without a byte of an answer.
async fn is_closed(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(bytes).await.unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer).await {
        Ok(_) => assert!(answer.is_empty(), "{answer:02x?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[tokio::test]
async fn frames_that_are_none_close_the_connection() {
    let running = start(&Scripted::new(), Settings::default());
    let id = Function::ExistKey.id();
    let header = |length, attachment_length| {
        RequestHeader { sequence: 1, function_id: id, length, attachment_length }.to_bytes()
    };
    is_closed(running.address, b"GET / HTTP/1.1\r\n\r\n").await;
    is_closed(running.address, b"\x16\x03\x01").await;
    is_closed(running.address, &[0x15, 1]).await;
    is_closed(running.address, &[0x15, 0, 1]).await;
    is_closed(running.address, &header(MAX_REQUEST as u32 + 1, 0)).await;
    is_closed(running.address, &header(MAX_REQUEST as u32, 1)).await;
    is_closed(running.address, &header(u32::MAX, u32::MAX)).await;
    answers(running.address).await;
}

#[tokio::test]
async fn what_came_before_a_bad_frame_is_answered() {
    let running = start(&Scripted::new(), Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    append_request(&mut bytes, 7, Function::ExistKey.id(), |out| out.extend_from_slice(&key_body(b"a")));
    bytes.extend_from_slice(&[0xff; 40]);
    stream.write_all(&bytes).await.unwrap();
    let mut answer = [0; 22];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[4..8], [7, 0, 0, 0]);
}

#[tokio::test]
async fn bodies_that_lie_get_error_4_and_the_connection_stays() {
    let running = start(&Scripted::new(), Settings::default());
    let client = Client::connect(running.address, Form::Short).await.unwrap();
    let good = key_body(b"some key");
    for length in 0..good.len() {
        assert_eq!(
            client.call(Function::ExistKey, &good[..length]).await.unwrap().error,
            4,
            "{length} bytes"
        );
    }
    let mut lying = good.clone();
    lying[4] = 200;
    assert_eq!(client.call(Function::ExistKey, &lying).await.unwrap().error, 4);
    for size_type in 0..4u8 {
        let mut lying = good[..4].to_vec();
        lying[0] |= 1;
        lying.push(size_type << 3);
        lying.extend_from_slice(&[0xff; 16]);
        assert_eq!(client.call(Function::ExistKey, &lying).await.unwrap().error, 4, "size type {size_type}");
    }
    assert_eq!(client.call(Function::ExistKey, &good).await.unwrap().error, 0);
}

#[tokio::test]
async fn a_body_that_is_cut_off_by_the_end_of_the_connection_starts_nothing() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut bytes = Vec::new();
    append_request(&mut bytes, 1, Function::ExistKey.id(), |out| out.extend_from_slice(&key_body(b"cut")));
    for length in [1, REQUEST_HEADER - 1, REQUEST_HEADER, bytes.len() - 1] {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(&bytes[..length]).await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
    }
    answers(running.address).await;
    assert_eq!(*service.started.lock().unwrap(), [b"a".to_vec()]);
}

#[tokio::test]
async fn peers_that_send_slowly_hold_nobody_back() {
    let running = start(&Scripted::new(), Settings::default());
    let mut bytes = Vec::new();
    append_request(&mut bytes, 1, Function::ExistKey.id(), |out| out.extend_from_slice(&key_body(b"slow")));
    let mut slow = Vec::new();
    for _ in 0..200 {
        slow.push(TcpStream::connect(running.address).await.unwrap());
    }
    for at in 0..bytes.len() {
        for stream in &mut slow {
            stream.write_all(&bytes[at..=at]).await.unwrap();
        }
        if at % 10 == 0 {
            answers(running.address).await;
        }
    }
    for stream in &mut slow {
        let mut answer = [0; 22];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[4..8], [1, 0, 0, 0]);
    }
}

/// The part of a test that is a server: says its address, serves until it is told to end.
fn serve_until_told() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let service = Scripted::new();
        service.later.send_replace(true);
        let running = start(&service, Settings::default());
        // Touches what the first call allocates once, so that the growth is that of the connections.
        answers(running.address).await;
        part::say(&running.address.to_string());
        tokio::task::spawn_blocking(part::wait_for_end).await.unwrap();
        running.stop.send_replace(true);
        running.task.await.unwrap();
    });
}

/// The part that holds ten thousand connections, each of which has made a call.
fn hold_idle_connections(address: &str) {
    let mut bytes = Vec::new();
    append_request(&mut bytes, 1, Function::ExistKey.id(), |out| out.extend_from_slice(&key_body(b"idle")));
    let mut connections = Vec::new();
    for _ in 0..10_000 {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(&bytes).unwrap();
        stream.read_exact(&mut [0; 22]).unwrap();
        connections.push(stream);
    }
    part::say("connected");
    part::wait_for_end();
}

#[test]
fn ten_thousand_idle_connections_cost_little() {
    let name = "hostile::ten_thousand_idle_connections_cost_little";
    match part::role() {
        Some((role, _)) if role == "server" => return serve_until_told(),
        Some((_, address)) => return hold_idle_connections(&address),
        None => {}
    }
    let mut server = Part::start(name, "server", "");
    let address = server.listen();
    let base = server.memory("VmRSS");
    let mut clients = Part::start(name, "clients", &address);
    assert_eq!(clients.listen(), "connected");
    let grown = server.memory("VmRSS").saturating_sub(base);
    println!("10,000 idle connections: {} KiB above a base of {} KiB", grown >> 10, base >> 10);
    assert!(grown <= 10_000 * IDLE_LIMIT, "{} bytes for each connection", grown / 10_000);
    tokio::runtime::Runtime::new().unwrap().block_on(answers(address.parse().unwrap()));
}

/// As in the program: a panic may have left the state half changed, and no connection is served from that.
#[test]
fn a_handler_that_panics_ends_the_process() {
    if part::role().is_some() {
        moonkeeper::cli::master::end_on_panic();
        return serve_until_told();
    }
    let mut server = Part::start("hostile::a_handler_that_panics_ends_the_process", "server", "");
    let address = server.listen().parse().unwrap();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        answers(address).await;
        let other = Client::connect(address, Form::Short).await.unwrap();
        let panicking = Client::connect(address, Form::Short).await.unwrap();
        let reply = panicking.call(Function::ExistKey, &key_body(b"panic")).await;
        assert!(matches!(reply, Err(ClientError::Closed)), "{reply:?}");
        assert!(
            other.call(Function::ExistKey, &key_body(b"a")).await.is_err(),
            "another connection is served"
        );
    });
    assert_eq!(server.ended_by(), Some(rustix::process::Signal::ABORT.as_raw()));
}

/// The part that sends and never reads: a thousand connections with as many requests as the server and the kernel
/// take, each asking for a reply of many times its size.
fn send_and_never_read(address: &str, request: &[u8]) {
    let mut bytes = Vec::new();
    while bytes.len() < 64 << 10 {
        bytes.extend_from_slice(request);
    }
    let address: SocketAddr = address.parse().unwrap();
    let connect = || {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        // Small buffers in the kernel, so that the pressure is on the server.
        socket.set_recv_buffer_size(8 << 10).unwrap();
        socket.set_send_buffer_size(64 << 10).unwrap();
        socket.connect(&address.into()).unwrap();
        socket.set_nonblocking(true).unwrap();
        (std::net::TcpStream::from(socket), 0)
    };
    let mut connections: Vec<_> = (0..1_000).map(|_| connect()).collect();
    let mut total = 0u64;
    for _ in 0..40 {
        for connection in &mut connections {
            loop {
                let (stream, offset) = &mut *connection;
                match stream.write(&bytes[*offset..]) {
                    Ok(count) => {
                        total += count as u64;
                        *offset = (*offset + count) % bytes.len();
                    }
                    Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                    // It was closed to make room for others: there are always a thousand.
                    Err(_) => *connection = connect(),
                }
            }
        }
        std::thread::sleep(Duration::from_millis(25));
    }
    part::say(&(total / request.len() as u64).to_string());
    part::wait_for_end();
}

/// A thousand clients send this request over and over and read nothing; each reply has `reply` bytes.
fn never_read(name: &str, request: impl FnOnce() -> Vec<u8>, reply: u64) {
    match part::role() {
        Some((role, _)) if role == "server" => return serve_until_told(),
        Some((_, address)) => return send_and_never_read(&address, &request()),
        None => {}
    }
    let mut server = Part::start(name, "server", "");
    let address = server.listen();
    let base = server.memory("VmRSS");
    let mut clients = Part::start(name, "clients", &address);
    let sent: u64 = clients.listen().parse().unwrap();
    let grown = server.memory("VmHWM").saturating_sub(base);
    println!(
        "1,000 clients sent {sent} requests for {reply} bytes each and read nothing: {} MiB above a base of {} MiB",
        grown >> 20,
        base >> 20
    );
    assert!(sent * reply > 20 * NEVER_READ_LIMIT, "{sent} requests are no pressure");
    assert!(grown < NEVER_READ_LIMIT, "{} MiB", grown >> 20);
    tokio::runtime::Runtime::new().unwrap().block_on(answers(address.parse().unwrap()));
}

/// A request for a reply of so many bytes, made at once.
fn ask_for(bytes: u64) -> Vec<u8> {
    let mut request = Vec::new();
    let id = Function::GetReplicaListByRegex.id();
    let body = key_body(bytes.to_string().as_bytes());
    append_request(&mut request, 1, id, |out| out.extend_from_slice(&body));
    request
}

#[test]
fn a_thousand_clients_that_never_read_cost_less_than_200_mib() {
    never_read(
        "hostile::a_thousand_clients_that_never_read_cost_less_than_200_mib",
        || ask_for(16_384),
        16_384,
    );
}

#[test]
fn a_thousand_clients_that_never_read_large_replies_cost_less_than_200_mib() {
    let name = "hostile::a_thousand_clients_that_never_read_large_replies_cost_less_than_200_mib";
    never_read(name, || ask_for(400 << 10), 400 << 10);
}

#[test]
fn a_thousand_clients_that_never_read_replies_made_aside_cost_less_than_200_mib() {
    let name = "hostile::a_thousand_clients_that_never_read_replies_made_aside_cost_less_than_200_mib";
    let request = || {
        let mut request = Vec::new();
        // The allocator gives blocks of this size back at once; of smaller ones it keeps some for a second.
        let body = key_body(b"later 12000000");
        append_request(&mut request, 1, Function::ExistKey.id(), |out| out.extend_from_slice(&body));
        request
    };
    never_read(name, request, 12_000_000);
}
