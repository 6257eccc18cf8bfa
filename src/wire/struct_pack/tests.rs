use super::{DecodeError, Form, MAX_ELEMENTS, Map, decode, encode};
use crate::wire::messages::{KeysRequest, MoveStartResponse, ReplicaLocation};
use crate::wire::types::{ErrorCode, Expected, Uuid};

fn short<T: super::Encode>(value: &T) -> Vec<u8> {
    let mut out = Vec::new();
    encode(value, Form::Short, &mut out);
    out
}

/// Builds a body with the header of `T`, a metainfo byte for a width, and this payload.
fn body<T: super::Wire>(size_type: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = (T::SHAPE.code | 1).to_le_bytes().to_vec();
    out.push(size_type << 3);
    out.extend_from_slice(payload);
    out
}

#[test]
fn every_width_is_read() {
    let text = b"abc".as_slice();
    for (size_type, length) in
        [(0, vec![3]), (1, vec![3, 0]), (2, vec![3, 0, 0, 0]), (3, vec![3, 0, 0, 0, 0, 0, 0, 0])]
    {
        let payload = [length, text.to_vec()].concat();
        assert_eq!(decode::<&[u8]>(&body::<&[u8]>(size_type, &payload)), Ok(text), "size type {size_type}");
    }
}

#[test]
fn the_widest_length_decides_for_all() {
    let long = vec![b'x'; 300];
    let request = KeysRequest { keys: vec![b"a", &long], tenant_id: b"" };
    let encoded = short(&request);
    assert_eq!(encoded[4], 1 << 3, "two bytes for each length");
    assert_eq!(encoded[5..10], [2, 0, 1, 0, b'a']);
    assert_eq!(decode(&encoded), Ok(request));
    let longer = vec![b'y'; 70_000];
    assert_eq!(short(&longer.as_slice())[4], 2 << 3, "four bytes");
}

#[test]
fn lengths_that_lie_are_refused_before_anything_is_allocated() {
    // Four billion keys, or as many as a usize can express, in a body of a few bytes.
    assert_eq!(decode::<Vec<u64>>(&body::<Vec<u64>>(2, &[0xff; 40])), Err(DecodeError::Truncated));
    assert_eq!(decode::<Vec<&[u8]>>(&body::<Vec<&[u8]>>(3, &[0xff; 40])), Err(DecodeError::Truncated));
    assert_eq!(decode::<&[u8]>(&body::<&[u8]>(3, &[0xff; 40])), Err(DecodeError::Truncated));
    // One element more than there are bytes for.
    let payload = [&[3][..], &[0; 23]].concat();
    assert_eq!(decode::<Vec<u64>>(&body::<Vec<u64>>(0, &payload)), Err(DecodeError::Truncated));
}

#[test]
fn elements_are_limited_over_the_whole_message() {
    let many = |count: usize| {
        let mut payload = (count as u32).to_le_bytes().to_vec();
        payload.resize(4 + 4 * count, 0);
        body::<Vec<&[u8]>>(2, &payload)
    };
    assert_eq!(decode::<Vec<&[u8]>>(&many(MAX_ELEMENTS)).map(|keys| keys.len()), Ok(MAX_ELEMENTS));
    assert_eq!(decode::<Vec<&[u8]>>(&many(MAX_ELEMENTS + 1)), Err(DecodeError::TooManyElements));
}

#[test]
fn another_literal_with_the_right_code_is_refused() {
    let mut out = Vec::new();
    encode(&true, Form::Long, &mut out);
    assert_eq!(decode::<bool>(&out), Ok(true));
    out[5] ^= 1;
    assert_eq!(decode::<bool>(&out), Err(DecodeError::WrongLiteral));
    out[5] ^= 1;
    out[6] = 1;
    assert_eq!(decode::<bool>(&out), Err(DecodeError::WrongLiteral), "the NUL is part of it");
}

#[test]
fn another_code_is_named() {
    let found = Uuid { first: 1, second: 2 };
    assert_eq!(
        decode::<bool>(&short(&found)),
        Err(DecodeError::WrongCode { found: 0x3c6d_83e0, expected: 0x13c8_ffd8 })
    );
}

#[test]
fn a_total_length_is_skipped_and_trailing_bytes_are_ignored() {
    for (width, skipped) in [(1, 2), (2, 4), (3, 8)] {
        let mut out = (0x13c8_ffd8u32 | 1).to_le_bytes().to_vec();
        out.push(width);
        out.extend(std::iter::repeat_n(0xaa, skipped));
        out.extend_from_slice(&[1, 9, 9, 9]);
        assert_eq!(decode::<bool>(&out), Ok(true));
    }
}

#[test]
fn every_prefix_of_a_body_is_truncated() {
    let map = Map(vec![(Uuid { first: 1, second: 2 }, vec![b"10.0.0.1".as_slice(), b""])]);
    let answer: Expected<Map<Uuid, Vec<&[u8]>>> = Ok(map);
    let encoded = short(&answer);
    assert_eq!(decode(&encoded), Ok(answer));
    for length in 0..encoded.len() {
        let decoded = decode::<Expected<Map<Uuid, Vec<&[u8]>>>>(&encoded[..length]);
        assert_eq!(decoded, Err(DecodeError::Truncated), "{length} bytes");
    }
}

#[test]
fn an_unknown_alternative_is_an_error() {
    type Answer<'a> = Expected<MoveStartResponse<'a>>;
    let body = body::<Answer<'_>>(0, &[&[1][..], &[0; 8], &[5], &[0; 40]].concat());
    assert_eq!(decode::<Answer<'_>>(&body), Err(DecodeError::UnknownAlternative(5)));
    assert_eq!(<ReplicaLocation<'_> as super::Wire>::MIN_SIZE, 1);
}

#[test]
fn errors_keep_their_number() {
    let failed: Expected<()> = Err(ErrorCode(-4711));
    assert_eq!(decode(&short(&failed)), Ok(failed));
}
