//! Decodes every captured frame through the typed function table and encodes it again, byte for byte.

use crate::captured::{Captured, captured};
use moonkeeper::wire::frame::{RESPONSE_HEADER, RequestHeader, ResponseHeader};
use moonkeeper::wire::functions::{Function, Rpc, Visitor, rpc};
use moonkeeper::wire::messages::*;
use moonkeeper::wire::struct_pack::{DecodeError, Form, decode, encode};
use moonkeeper::wire::types::*;
use std::collections::HashSet;

/// Decodes a body and gives it back in both forms: long, and short read again and written long.
struct ThereAndBack<'f>(&'f Captured);

impl Visitor for ThereAndBack<'_> {
    type Output = Result<[Vec<u8>; 2], DecodeError>;

    fn visit<F: Rpc>(self) -> Self::Output {
        let body = &self.0.body;
        let (mut long, mut short, mut again) = (Vec::new(), Vec::new(), Vec::new());
        if self.0.is_request {
            let value: F::Request<'_> = decode(body)?;
            encode(&value, Form::Long, &mut long);
            encode(&value, Form::Short, &mut short);
            encode(&decode::<F::Request<'_>>(&short)?, Form::Long, &mut again);
        } else {
            let value: F::Response<'_> = decode(body)?;
            encode(&value, Form::Long, &mut long);
            encode(&value, Form::Short, &mut short);
            encode(&decode::<F::Response<'_>>(&short)?, Form::Long, &mut again);
        }
        Ok([long, again])
    }
}

#[test]
fn every_captured_body_goes_there_and_back() {
    let frames = captured();
    for frame in &frames {
        let name = frame.function.name();
        let kind = if frame.is_request { "request" } else { "response" };
        let bodies = frame
            .function
            .visit(ThereAndBack(frame))
            .unwrap_or_else(|error| panic!("{name} {kind}: {error}"));
        for body in bodies {
            assert!(body == frame.body, "{name} {kind}:\n{body:02x?}\n{:02x?}", frame.body);
        }
    }
    let directions: HashSet<_> = frames.iter().map(|frame| (frame.function, frame.is_request)).collect();
    assert_eq!(directions.len(), 64, "32 functions in both directions");
    assert!(frames.len() >= 150, "only {} frames", frames.len());
}

#[test]
fn every_captured_header_goes_there_and_back() {
    for Captured { function, is_request, header, body } in captured() {
        if is_request {
            let parsed = RequestHeader::parse(&header).unwrap().unwrap();
            assert_eq!(parsed.function_id, function.id());
            assert_eq!(parsed.length as usize, body.len());
            assert_eq!(parsed.to_bytes()[..], header[..]);
        } else {
            let parsed = ResponseHeader::parse(header.first_chunk::<RESPONSE_HEADER>().unwrap()).unwrap();
            assert_eq!(parsed.length as usize, body.len());
            assert_eq!(parsed.to_bytes()[..], header[..]);
        }
    }
}

/// The bodies of the first request and the first response of a function.
fn first(function: Function) -> (Vec<u8>, Vec<u8>) {
    let frames = captured();
    let find = |is_request| {
        let frame = frames.iter().find(|frame| frame.function == function && frame.is_request == is_request);
        frame.unwrap().body.clone()
    };
    (find(true), find(false))
}

fn uuid(first: u64, second: u64) -> Uuid {
    Uuid { first, second }
}

fn memory(id: u64, address: u64, endpoint: &[u8], status: ReplicaStatus) -> ReplicaDescriptor<'_> {
    let buffer = BufferDescriptor { size: 2000, address, protocol: b"tcp", transport_endpoint: endpoint };
    ReplicaDescriptor { id, location: ReplicaLocation::Memory(MemoryDescriptor { buffer }), status }
}

/// Fields of one type could change places without any code or byte showing it: values tell.
#[test]
fn fields_of_one_type_are_where_the_reference_has_them() {
    let client_id = uuid(17528666385284291181, 13607602485175494272);
    let (segment, other) = (b"127.0.0.1:12832".as_slice(), b"127.0.0.1:12813".as_slice());

    let (request, response) = first(Function::MoveStart);
    let expected = MoveStartRequest {
        client_id,
        key: b"mv",
        tenant_id: b"default",
        src_segment: segment,
        tgt_segment: other,
    };
    assert_eq!(decode::<<rpc::MoveStart as Rpc>::Request<'_>>(&request), Ok(expected));
    let expected = MoveStartResponse {
        source: memory(35, 140266484796416, b"127.0.0.1:15526", ReplicaStatus::COMPLETE),
        target: Some(memory(36, 140265947925504, b"127.0.0.1:15007", ReplicaStatus::PROCESSING)),
    };
    assert_eq!(decode::<<rpc::MoveStart as Rpc>::Response<'_>>(&response), Ok(Ok(expected)));

    let (request, _) = first(Function::CopyStart);
    let expected = CopyStartRequest {
        client_id,
        key: b"one",
        tenant_id: b"default",
        src_segment: segment,
        tgt_segments: vec![other],
    };
    assert_eq!(decode::<<rpc::CopyStart as Rpc>::Request<'_>>(&request), Ok(expected));

    let (request, _) = first(Function::CreateMoveTask);
    let expected =
        CreateMoveTaskRequest { key: b"mv", tenant_id: b"default", source: segment, target: other };
    assert_eq!(decode::<<rpc::CreateMoveTask as Rpc>::Request<'_>>(&request), Ok(expected));

    let (request, response) = first(Function::QueryTask);
    let id = uuid(3191420768060236545, 6244470280421398447);
    assert_eq!(decode::<Uuid>(&request), Ok(id));
    let expected = QueryTaskResponse {
        id,
        kind: TaskType::REPLICA_COPY,
        status: TaskStatus::PENDING,
        created_at_ms: 1794784587566,
        last_updated_at_ms: 1794784587566,
        assigned_client: client_id,
        message: b"",
    };
    assert_eq!(decode::<<rpc::QueryTask as Rpc>::Response<'_>>(&response), Ok(Ok(expected)));

    let (segment_id, client_id) =
        (uuid(10828231896100050958, 4784548426052037557), uuid(4773903980726815460, 14201178253827870860));
    let (request, _) = first(Function::MountSegment);
    let expected = Segment {
        id: segment_id,
        name: b"127.0.0.1:13167",
        base: 139695086370816,
        size: 67108864,
        te_endpoint: b"127.0.0.1:15034",
        protocol: b"tcp",
        host_id: b"",
    };
    let decoded = decode::<<rpc::MountSegment as Rpc>::Request<'_>>(&request);
    assert_eq!(decoded, Ok(MountSegmentRequest { segment: expected, client_id }));

    let (request, _) = first(Function::UnmountSegment);
    let decoded = decode::<<rpc::UnmountSegment as Rpc>::Request<'_>>(&request);
    assert_eq!(decoded, Ok(UnmountSegmentRequest { segment_id, client_id }));
}
