//! Decodes every captured frame through the typed function table and encodes it again, byte for byte.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod protocol;

use moonkeeper::wire::frame::{RESPONSE_HEADER, RequestHeader, ResponseHeader};
use moonkeeper::wire::functions::{Rpc, Visitor};
use moonkeeper::wire::struct_pack::{DecodeError, Form, decode, encode};
use protocol::{Captured, captured};
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
