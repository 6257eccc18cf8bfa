//! The load against the floor: every scenario, with every reply checked.

use super::calls::{Check, Template};
use super::*;
use crate::wire::frame::RequestHeader;
use crate::wire::functions::{Function, decode_request, encode_response, rpc};
use crate::wire::types::{ErrorCode, Expected, Uuid};
use clap::ValueEnum;

#[test]
fn a_template_carries_the_keys_it_is_told() {
    let client = Uuid { first: 3, second: 4 };
    let template = Template::new(Function::BatchPutStart, client, 128, 4096);
    let mut out = vec![0xff; 7];
    template.append(&mut out, 9, 0x1234);
    let frame = &out[7..];
    let header = RequestHeader::parse(frame).unwrap().unwrap();
    assert_eq!((header.sequence, header.frame_length()), (9, frame.len()));
    let request = decode_request::<rpc::BatchPutStart>(&frame[20..]).unwrap();
    assert_eq!((request.keys.len(), request.client_id), (128, client));
    assert!(
        request.keys[0].ends_with(b"0000000000001234") && request.keys[127].ends_with(b"00000000000012b3")
    );
    assert!(request.keys.iter().all(|key| key.len() == 64));
}

#[test]
fn a_start_can_prefer_a_segment() {
    let client = Uuid { first: 3, second: 4 };
    let template = Template::placed(Function::BatchPutStart, client, 2, 4096, Some(b"mine"));
    let mut out = Vec::new();
    template.append(&mut out, 1, 0);
    let request = decode_request::<rpc::BatchPutStart>(&out[20..]).unwrap();
    assert_eq!(request.config.preferred_segments, [b"mine".as_slice()]);
    assert_eq!(request.slice_lengths, [4096, 4096]);
}

#[test]
fn a_bad_answer_is_seen_among_good_ones() {
    let body = |answer: Expected<bool>| {
        let mut body = Vec::new();
        encode_response::<rpc::ExistKey, _>(&answer, &mut body);
        body
    };
    let mut check = Check::new(Function::ExistKey, 1);
    assert!(check.is_good(&body(Ok(true))));
    assert!(!check.is_good(&body(Ok(false))));
    assert!(!check.is_good(&body(Err(ErrorCode::OBJECT_NOT_FOUND))));
    assert!(check.is_good(&body(Ok(true))));
    let batch = |answers: Vec<Expected<()>>| {
        let mut body = Vec::new();
        encode_response::<rpc::BatchPutEnd, _>(&answers, &mut body);
        body
    };
    let mut check = Check::new(Function::BatchPutEnd, 2);
    assert!(check.is_good(&batch(vec![Ok(()), Ok(())])));
    assert!(!check.is_good(&batch(vec![Ok(()), Err(ErrorCode::OBJECT_NOT_FOUND)])));
    assert!(!check.is_good(&batch(vec![Ok(())])));
}

#[tokio::test]
async fn every_scenario_runs_against_the_floor() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let floor = tokio::spawn(floor::serve(listener, 16));
    for scenario in Scenario::value_variants() {
        let target = Target {
            address,
            pid: Some(std::process::id()),
            connections: 2,
            outstanding: 3,
            batch: 16,
            value_length: 4096,
            segment_gib: 1,
            threads: 1,
        };
        let arguments = LoadArguments {
            target,
            scenario: *scenario,
            keys: 100,
            filled: false,
            seconds: 0.1,
            warm_up: 0.0,
        };
        let report = load::measure(&arguments).await.unwrap();
        assert_eq!(report["errors"], 0, "{report}");
        assert!(report["calls"].as_u64().unwrap() > 0, "{report}");
        assert!(report["p50_us"].as_f64().unwrap() > 0.0, "{report}");
        assert_eq!(
            report["items"].as_u64().unwrap(),
            report["calls"].as_u64().unwrap() * scenario.items(16),
            "{report}"
        );
    }
    floor.abort();
}

// Two threads: `stop` blocks one while the floor answers the probes on the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn probes_count_the_calls_of_their_step() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let floor = tokio::spawn(floor::serve(listener, 16));
    let probes = probe::Probes::start(address, Some(address), Uuid { first: 1, second: 1 }, 1_000);
    probes.count().await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let report = probes.stop().unwrap();
    for name in ["exist_key", "ping", "put_start", "control"] {
        assert!(report[name]["calls"].as_u64().unwrap() > 0, "{report}");
        assert!(report[name]["longest_us"].as_u64().unwrap() > 0, "{report}");
    }
    floor.abort();
}
