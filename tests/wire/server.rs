//! The server and the client over loopback: order, waiting, errors, the end of connections.

use crate::scripted::{Running, Scripted, key_body, start};
use moonkeeper::wire::client::{Client, ClientError};
use moonkeeper::wire::frame::{RESPONSE_HEADER, ResponseHeader, append_request};
use moonkeeper::wire::functions::{Function, rpc};
use moonkeeper::wire::messages::{KeyRequest, NoArguments};
use moonkeeper::wire::server::{Server, Settings};
use moonkeeper::wire::struct_pack::Form;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

fn exist(out: &mut Vec<u8>, sequence: u32, key: &[u8]) {
    append_request(out, sequence, Function::ExistKey.id(), |out| out.extend_from_slice(&key_body(key)));
}

async fn read_frame(stream: &mut TcpStream) -> (ResponseHeader, Vec<u8>) {
    let frame = async {
        let mut header = [0; RESPONSE_HEADER];
        stream.read_exact(&mut header).await.unwrap();
        let header = ResponseHeader::parse(&header).unwrap();
        let mut body = vec![0; header.length as usize];
        stream.read_exact(&mut body).await.unwrap();
        (header, body)
    };
    // A reply that never comes fails the test that waits for it.
    tokio::time::timeout(Duration::from_secs(60), frame).await.expect("no reply came")
}

async fn sequences(stream: &mut TcpStream, count: usize) -> Vec<u32> {
    let mut seen = Vec::new();
    for _ in 0..count {
        seen.push(read_frame(stream).await.0.sequence);
    }
    seen
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    // More than one read takes, so that requests are cut at the edge of a read.
    let mut bytes = Vec::new();
    (0..3000).for_each(|sequence| exist(&mut bytes, sequence, format!("key {sequence}").as_bytes()));
    let (mut read, mut write) = stream.split();
    let mut replies = vec![0; 3000 * (RESPONSE_HEADER + 6)];
    let (written, received) = tokio::join!(write.write_all(&bytes), read.read_exact(&mut replies));
    written.unwrap();
    received.unwrap();
    for (sequence, reply) in replies.chunks(RESPONSE_HEADER + 6).enumerate() {
        assert_eq!(reply[4..8], (sequence as u32).to_le_bytes());
        assert_eq!(reply[16..], [0xd2, 0x00, 0xe8, 0x90, 1, 1]);
    }
    let started = service.started.lock().unwrap();
    assert_eq!(started.len(), 3000);
    for (sequence, key) in started.iter().enumerate() {
        assert_eq!(*key, format!("key {sequence}").into_bytes());
    }
}

#[tokio::test]
async fn a_request_may_arrive_byte_by_byte() {
    let running = start(&Scripted::new(), Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"slow");
    exist(&mut bytes, 2, b"slower");
    for byte in bytes {
        stream.write_all(&[byte]).await.unwrap();
        tokio::task::yield_now().await;
    }
    assert_eq!(sequences(&mut stream, 2).await, [1, 2]);
}

#[tokio::test]
async fn a_reply_waits_for_the_log_and_others_overtake_it() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    for (sequence, key) in [(1, "wait 20 a"), (2, "wait 10 b"), (3, "now"), (4, "wait 10 c")] {
        exist(&mut bytes, sequence, key.as_bytes());
    }
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut stream, 1).await, [3]);
    service.durable.send_replace(9);
    let mut next = Vec::new();
    exist(&mut next, 5, b"still open");
    stream.write_all(&next).await.unwrap();
    assert_eq!(sequences(&mut stream, 1).await, [5], "nothing is released by 9");
    service.durable.send_replace(10);
    assert_eq!(sequences(&mut stream, 2).await, [2, 4]);
    service.durable.send_replace(30);
    assert_eq!(sequences(&mut stream, 1).await, [1]);
    let mut last = Vec::new();
    exist(&mut last, 6, b"wait 30 durable already");
    stream.write_all(&last).await.unwrap();
    assert_eq!(sequences(&mut stream, 1).await, [6]);
}

#[tokio::test]
async fn a_busy_call_holds_back_the_calls_behind_it() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    [(1, "first"), (2, "busy"), (3, "third")]
        .into_iter()
        .for_each(|(sequence, key)| exist(&mut bytes, sequence, key.as_bytes()));
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut stream, 1).await, [1]);
    // Another connection is not held back.
    let other = Client::connect(running.address, Form::Short).await.unwrap();
    let request = KeyRequest { key: b"other", tenant_id: b"" };
    assert_eq!(other.call_typed::<rpc::ExistKey>(&request).await.unwrap().value(), Ok(Ok(true)));
    assert_eq!(*service.started.lock().unwrap(), [b"first".to_vec(), b"other".to_vec()]);
    service.capacity.send_replace(true);
    assert_eq!(sequences(&mut stream, 2).await, [2, 3]);
    assert_eq!(service.started.lock().unwrap()[2..], [b"busy".to_vec(), b"third".to_vec()]);
}

/// A connection with a call that waits for its turn.
async fn in_line(service: &Scripted, address: std::net::SocketAddr, key: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"first");
    exist(&mut bytes, 2, key.as_bytes());
    let started = service.started.lock().unwrap().len();
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut stream, 1).await, [1]);
    // Both came with one read; the other one is where the first left it.
    assert_eq!(service.started.lock().unwrap()[started..], [b"first".to_vec()]);
    stream
}

#[tokio::test]
async fn turns_are_taken_in_order_and_pass_on_behind_one_who_left() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let held = std::sync::Arc::clone(&service.turns).acquire_owned().await.unwrap();
    // Whoever waits does not read, so its call is made although nobody waits for it any more.
    let gone = in_line(&service, running.address, "turn of one who left").await;
    let mut second = in_line(&service, running.address, "turn b").await;
    let mut third = in_line(&service, running.address, "turn c").await;
    drop(gone);
    drop(held);
    assert_eq!(sequences(&mut second, 1).await, [2]);
    assert_eq!(sequences(&mut third, 1).await, [2]);
    let started = service.started.lock().unwrap();
    let place = |key: &str| started.iter().position(|other| other == key.as_bytes());
    assert!(place("turn of one who left") < place("turn b"), "{started:?}");
    assert!(place("turn b") < place("turn c"), "{started:?}");
}

#[tokio::test]
async fn a_turn_is_for_what_came_together_and_no_longer() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let held = std::sync::Arc::clone(&service.turns).acquire_owned().await.unwrap();
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"first");
    exist(&mut bytes, 2, b"turn a");
    exist(&mut bytes, 3, b"turn b");
    let mut first = TcpStream::connect(running.address).await.unwrap();
    first.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut first, 1).await, [1]);
    let mut second = in_line(&service, running.address, "turn c").await;
    drop(held);
    assert_eq!(sequences(&mut first, 2).await, [2, 3]);
    assert_eq!(sequences(&mut second, 1).await, [2]);
    assert_eq!(service.started.lock().unwrap()[2..], [&b"turn a"[..], b"turn b", b"turn c"]);
    // Both are still connected, and neither has it.
    drop(service.turns.try_acquire().unwrap());
    // What comes later waits in line again.
    let _held = service.turns.acquire().await.unwrap();
    bytes.clear();
    exist(&mut bytes, 4, b"then");
    exist(&mut bytes, 5, b"turn d");
    first.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut first, 1).await, [4]);
    assert_eq!(service.started.lock().unwrap().last().unwrap(), b"then");
}

#[tokio::test]
async fn a_client_that_does_not_read_does_not_keep_its_turn() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let held = std::sync::Arc::clone(&service.turns).acquire_owned().await.unwrap();
    // It has a reply to read that no socket takes whole.
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"later 33554432");
    exist(&mut bytes, 2, b"first");
    exist(&mut bytes, 3, b"turn a");
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    idle.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut idle, 1).await, [2]);
    let mut other = in_line(&service, running.address, "turn b").await;
    service.later.send_replace(true);
    // Something of that reply has come, so the connection has it.
    idle.peek(&mut [0]).await.unwrap();
    drop(held);
    assert_eq!(sequences(&mut other, 1).await, [2]);
    assert_eq!(sequences(&mut idle, 2).await, [1, 3], "when it reads, it is served");
}

#[tokio::test]
async fn a_call_that_goes_on_elsewhere_does_not_hold_back_others() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    // More of them than a connection may have under way at once.
    (0..100).for_each(|sequence| exist(&mut bytes, sequence, b"later"));
    exist(&mut bytes, 100, b"behind them");
    let mut first = Vec::new();
    exist(&mut first, 200, b"later");
    exist(&mut first, 201, b"at once");
    stream.write_all(&first).await.unwrap();
    assert_eq!(sequences(&mut stream, 1).await, [201]);
    stream.write_all(&bytes).await.unwrap();
    service.later.send_replace(true);
    let mut seen = sequences(&mut stream, 102).await;
    seen.sort_unstable();
    assert_eq!(seen, (0..=100).chain([200]).collect::<Vec<u32>>());
    assert_eq!(service.started.lock().unwrap().last().unwrap(), b"behind them");
}

/// Waits until so many calls are offloaded.
async fn at_work(service: &Scripted, count: usize) {
    let reached = async {
        while service.at_work.load(Ordering::Relaxed) != count {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), reached).await.expect("so many never were at work");
}

#[tokio::test]
async fn a_change_that_goes_on_elsewhere_holds_back_the_calls_behind_it() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    for (sequence, key) in [(1, "later"), (2, "change"), (3, "behind"), (4, "last")] {
        exist(&mut bytes, sequence, key.as_bytes());
    }
    stream.write_all(&bytes).await.unwrap();
    at_work(&service, 2).await;
    // Another connection is not held back.
    let other = Client::connect(running.address, Form::Short).await.unwrap();
    assert_eq!(other.call(Function::ExistKey, &key_body(b"other")).await.unwrap().error, 0);
    assert_eq!(*service.started.lock().unwrap(), [&b"later"[..], b"change", b"other"]);
    service.later.send_replace(true);
    let mut seen = sequences(&mut stream, 4).await;
    seen.retain(|sequence| *sequence != 1);
    assert_eq!(seen, [2, 3, 4]);
}

#[tokio::test]
async fn all_connections_together_have_few_calls_at_work_aside() {
    let service = Scripted::new();
    let running = start(&service, Settings { max_aside: 2, ..Settings::default() });
    let mut streams = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        let mut bytes = Vec::new();
        (1..=5).for_each(|sequence| exist(&mut bytes, sequence, b"later"));
        exist(&mut bytes, 6, b"behind them");
        stream.write_all(&bytes).await.unwrap();
        streams.push(stream);
    }
    at_work(&service, 2).await;
    // One who waits for its place holds nobody else back, and one who leaves takes no place with it.
    drop(streams.pop());
    let other = Client::connect(running.address, Form::Short).await.unwrap();
    for _ in 0..100 {
        assert_eq!(other.call(Function::ExistKey, &key_body(b"other")).await.unwrap().error, 0);
        assert_eq!(service.at_work.load(Ordering::Relaxed), 2);
    }
    assert!(!service.started.lock().unwrap().contains(&b"behind them".to_vec()));
    service.later.send_replace(true);
    for stream in &mut streams {
        let mut seen = sequences(stream, 6).await;
        seen.sort_unstable();
        assert_eq!(seen, [1, 2, 3, 4, 5, 6]);
    }
}

#[tokio::test]
async fn errors_have_the_codes_of_the_reference_and_the_connection_stays() {
    let running = start(&Scripted::new(), Settings::default());
    let client = Client::connect(running.address, Form::Long).await.unwrap();
    let unknown = client.start(0x1234_5678, |_| {}).await.unwrap();
    assert_eq!(unknown.error, 11);
    assert_eq!(unknown.body, b"\x76\xfa\xcf\x9d\x1fthe rpc function not registered");
    let invalid = client.call(Function::ExistKey, &[]).await.unwrap();
    assert_eq!((invalid.error, &invalid.body[5..]), (4, b"invalid rpc arg".as_slice()));
    match client.call_typed::<rpc::ServiceReady>(&NoArguments).await {
        Err(ClientError::Rpc { code: 4, message }) => assert_eq!(message, "invalid rpc arg"),
        other => panic!("{other:?}"),
    }
    let request = KeyRequest { key: b"\xff\x00binary", tenant_id: b"" };
    assert_eq!(client.call_typed::<rpc::ExistKey>(&request).await.unwrap().value(), Ok(Ok(true)));
}

#[tokio::test]
async fn a_reply_larger_than_any_buffer_arrives_whole() {
    let running = start(&Scripted::new(), Settings::default());
    let client = Client::connect(running.address, Form::Short).await.unwrap();
    for length in [70_000usize, 20_000_000] {
        let text = length.to_string();
        let request = KeyRequest { key: text.as_bytes(), tenant_id: b"" };
        let answer = client.call_typed::<rpc::GetReplicaListByRegex>(&request).await.unwrap();
        let found = answer.value().unwrap().unwrap();
        assert_eq!(found.0[0].0.len(), length);
    }
}

#[tokio::test]
async fn an_attachment_is_skipped_and_a_large_request_is_taken() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"with attachment");
    bytes[16..20].copy_from_slice(&1000u32.to_le_bytes());
    bytes.extend(std::iter::repeat_n(0x15, 1000));
    let long = vec![b'x'; 5_000_000];
    exist(&mut bytes, 2, &long);
    exist(&mut bytes, 3, b"behind");
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(sequences(&mut stream, 3).await, [1, 2, 3]);
    assert_eq!(service.started.lock().unwrap()[1], long);
}

#[tokio::test]
async fn a_master_that_no_longer_leads_sends_nothing() {
    let service = Scripted::new();
    let running = start(&service, Settings::default());
    let mut stream = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"a");
    service.leads.store(false, Ordering::Relaxed);
    stream.write_all(&bytes).await.unwrap();
    assert_eq!(stream.read(&mut [0; 64]).await.unwrap(), 0);
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_places_come_back() {
    let running = start(&Scripted::new(), Settings { max_connections: 2, ..Settings::default() });
    let call = async |client: &Client| client.call(Function::ExistKey, &key_body(b"a")).await;
    let first = Client::connect(running.address, Form::Short).await.unwrap();
    let second = Client::connect(running.address, Form::Short).await.unwrap();
    assert!(call(&first).await.is_ok() && call(&second).await.is_ok());
    let third = Client::connect(running.address, Form::Short).await.unwrap();
    assert!(matches!(call(&third).await, Err(ClientError::Closed)));
    drop(first);
    // The server notices the end of the first one at some point; each attempt that is refused ends at once.
    let mut accepted = false;
    for _ in 0..1000 {
        let next = Client::connect(running.address, Form::Short).await.unwrap();
        accepted = call(&next).await.is_ok();
        if accepted {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(accepted, "the place of a closed connection is never given out again");
}

#[tokio::test]
async fn idle_connections_are_closed_when_the_settings_say_so() {
    let service = Scripted::new();
    let settings = Settings { idle_timeout: Some(Duration::from_millis(200)), ..Settings::default() };
    let running = start(&service, settings);
    let mut idle = TcpStream::connect(running.address).await.unwrap();
    let mut trickling = TcpStream::connect(running.address).await.unwrap();
    let mut waiting = TcpStream::connect(running.address).await.unwrap();
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, b"wait 5");
    waiting.write_all(&bytes).await.unwrap();
    // Bytes that never become a request do not count.
    let (mut read, mut write) = trickling.split();
    let trickle = async {
        for byte in bytes.iter().take(bytes.len() - 1).cycle() {
            if write.write_all(&[*byte]).await.is_err() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let mut buffer = [0; 64];
    tokio::select! {
        () = trickle => {}
        // A byte that was under way when the server closed turns the end into a reset.
        end = read.read(&mut buffer) => assert!(matches!(end, Ok(0) | Err(_)), "{end:?}"),
    }
    assert_eq!(idle.read(&mut [0; 64]).await.unwrap(), 0);
    // A client that waits for the log is not idle.
    tokio::time::sleep(Duration::from_millis(500)).await;
    service.durable.send_replace(5);
    assert_eq!(sequences(&mut waiting, 1).await, [1]);
}

#[tokio::test]
async fn stopping_closes_the_port_and_all_connections() {
    let Running { address, stop, task } = start(&Scripted::new(), Settings::default());
    let client = Client::connect(address, Form::Short).await.unwrap();
    assert_eq!(client.call(Function::ExistKey, &key_body(b"a")).await.unwrap().error, 0);
    stop.send_replace(true);
    task.await.unwrap();
    assert!(matches!(client.call(Function::ExistKey, &key_body(b"b")).await, Err(ClientError::Closed)));
    assert!(TcpStream::connect(address).await.is_err());
    let again = Server::bind(address, Settings::default()).unwrap();
    let error = Server::bind(address, Settings::default()).unwrap_err();
    assert!(error.to_string().starts_with(&format!("cannot listen on {address}: ")), "{error}");
    drop(again);
}

#[tokio::test]
async fn of_two_large_requests_that_the_common_budget_does_not_allow_one_goes_on() {
    let settings = Settings { max_pending_bytes: 1 << 20, ..Settings::default() };
    let running = start(&Scripted::new(), settings);
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, &vec![b'x'; 3 << 20]);
    // Without its last byte a request has to be held.
    let (start, last) = bytes.split_at(bytes.len() - 1);
    let hold = async || {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        // A connection that is closed while it sends shows it by an error.
        let sent = stream.write_all(start).await;
        (stream, sent.is_ok())
    };
    let ((mut first, first_sent), (mut second, second_sent)) = tokio::join!(hold(), hold());
    let (mut buffer, mut other_buffer) = ([0; 64], [0; 64]);
    let first_lives = tokio::select! {
        _ = first.read(&mut buffer) => false,
        _ = second.read(&mut other_buffer) => true,
    };
    assert!(first_sent || second_sent);
    let survivor = if first_lives { &mut first } else { &mut second };
    survivor.write_all(last).await.unwrap();
    assert_eq!(sequences(survivor, 1).await, [1]);
}

#[tokio::test]
async fn peers_that_stop_in_the_middle_of_a_request_cost_nobody_else_a_connection() {
    let settings = Settings { max_pending_bytes: 1 << 20, ..Settings::default() };
    let running = start(&Scripted::new(), settings);
    let mut bytes = Vec::new();
    exist(&mut bytes, 1, &vec![b'x'; 600 << 10]);
    let (start, last) = bytes.split_at(bytes.len() - 1);
    // More than the budget together, and each of them in nobody's way.
    let mut stopped = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(start).await.unwrap();
        stopped.push(stream);
    }
    // What they sent may still lie in their sockets. The server is on this thread and reads it when this one rests.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    for _ in 0..4 {
        let mut healthy = TcpStream::connect(running.address).await.unwrap();
        healthy.write_all(start).await.unwrap();
        tokio::time::sleep(Duration::from_millis(5)).await;
        healthy.write_all(last).await.unwrap();
        assert_eq!(sequences(&mut healthy, 1).await, [1]);
    }
    // The last of those who stopped may still be there, the first is not.
    let end = stopped[0].read(&mut [0; 64]).await;
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}

#[tokio::test]
async fn peers_that_do_not_read_cost_nobody_else_a_connection() {
    let settings = Settings { max_unread_bytes: 1 << 20, ..Settings::default() };
    let running = start(&Scripted::new(), settings);
    let mut bytes = Vec::new();
    let ask = |out: &mut Vec<u8>| out.extend_from_slice(&key_body(b"20000000"));
    append_request(&mut bytes, 1, Function::GetReplicaListByRegex.id(), ask);
    let mut idle = Vec::new();
    for _ in 0..3 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        stream.write_all(&bytes).await.unwrap();
        // Something of the reply has come, so the rest of it waits.
        stream.peek(&mut [0]).await.unwrap();
        idle.push(stream);
    }
    let client = Client::connect(running.address, Form::Short).await.unwrap();
    for _ in 0..3 {
        let request = KeyRequest { key: b"20000000", tenant_id: b"" };
        let answer = client.call_typed::<rpc::GetReplicaListByRegex>(&request).await.unwrap();
        assert_eq!(answer.value().unwrap().unwrap().0[0].0.len(), 20_000_000);
    }
}
