//! coro_rpc frames: the headers of requests and responses, and the bodies of errors.

use super::struct_pack::{Form, encode};

/// The first byte of every header.
pub const MAGIC: u8 = 0x15;
/// The only version of the framing.
pub const VERSION: u8 = 0;
/// The only serialisation that is supported: struct_pack.
pub const SERIALIZE_TYPE: u8 = 0;
/// Bytes of a request's header.
pub const REQUEST_HEADER: usize = 20;
/// Bytes of a response's header.
pub const RESPONSE_HEADER: usize = 16;
/// Most bytes of body and attachment of a request together.
pub const MAX_REQUEST: u64 = 64 << 20;

/// RPC-level error: the call took too long.
pub const TIMED_OUT: u8 = 3;
/// RPC-level error: the arguments could not be decoded.
pub const INVALID_RPC_ARGUMENTS: u8 = 4;
/// RPC-level error: the handler failed.
pub const HANDLER_FAILED: u8 = 10;
/// RPC-level error: no function has this id.
pub const FUNCTION_NOT_REGISTERED: u8 = 11;
/// RPC-level error: the reply does not fit into a frame.
pub const MESSAGE_TOO_LARGE: u8 = 14;

/// Why a connection has to be closed. The protocol has no reply for these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The peer does not speak coro_rpc.
    #[error("the first byte is {0:#04x}, not {MAGIC:#04x}")]
    Magic(u8),
    /// The peer speaks a later version.
    #[error("framing version {0} is not supported")]
    Version(u8),
    /// The peer does not use struct_pack.
    #[error("serialization type {0} is not supported")]
    SerializeType(u8),
    /// Body and attachment are longer than [`MAX_REQUEST`].
    #[error("a request of {0} bytes is over the limit of {MAX_REQUEST}")]
    TooLarge(u64),
}

/// The header of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// Chosen by the client, echoed in the response.
    pub sequence: u32,
    /// The function that is called.
    pub function_id: u32,
    /// Length of the body, in bytes.
    pub length: u32,
    /// Length of the attachment after the body, in bytes.
    pub attachment_length: u32,
}

#[inline]
fn word(header: &[u8; REQUEST_HEADER], at: usize) -> u32 {
    u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
}

impl RequestHeader {
    /// Parses the header at the start of `input`; `None` if it is incomplete and correct so far.
    #[inline]
    pub fn parse(input: &[u8]) -> Result<Option<Self>, FrameError> {
        let Some(header) = input.first_chunk::<REQUEST_HEADER>() else {
            // An error is reported at the first wrong byte, so that a peer cannot hold a connection with half a header
            // of another protocol.
            return Self::check(input).map(|()| None);
        };
        if header[..3] != [MAGIC, VERSION, SERIALIZE_TYPE] {
            Self::check(header)?;
        }
        let parsed = Self {
            sequence: word(header, 4),
            function_id: word(header, 8),
            length: word(header, 12),
            attachment_length: word(header, 16),
        };
        let payload = u64::from(parsed.length) + u64::from(parsed.attachment_length);
        if payload > MAX_REQUEST {
            return Err(FrameError::TooLarge(payload));
        }
        Ok(Some(parsed))
    }

    fn check(input: &[u8]) -> Result<(), FrameError> {
        match *input {
            [magic, ..] if magic != MAGIC => Err(FrameError::Magic(magic)),
            [_, version, ..] if version != VERSION => Err(FrameError::Version(version)),
            [_, _, kind, ..] if kind != SERIALIZE_TYPE => Err(FrameError::SerializeType(kind)),
            _ => Ok(()),
        }
    }

    /// Returns the bytes of the whole frame.
    #[inline]
    pub fn frame_length(&self) -> usize {
        REQUEST_HEADER + self.length as usize + self.attachment_length as usize
    }

    /// Encodes the header, with numbers in little-endian order.
    pub fn to_bytes(self) -> [u8; REQUEST_HEADER] {
        let mut bytes = [0; REQUEST_HEADER];
        bytes[..4].copy_from_slice(&[MAGIC, VERSION, SERIALIZE_TYPE, 0]);
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.function_id.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.length.to_le_bytes());
        bytes[16..].copy_from_slice(&self.attachment_length.to_le_bytes());
        bytes
    }
}

/// The header of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResponseHeader {
    /// 0 for success; else the body is an error message.
    pub error: u8,
    /// Copied from the request, so that the client finds its call.
    pub sequence: u32,
    /// Length of the body, in bytes.
    pub length: u32,
    /// Length of the attachment after the body, in bytes.
    pub attachment_length: u32,
}

impl ResponseHeader {
    /// Parses a header; fails if the magic byte or the version is wrong.
    pub fn parse(header: &[u8; RESPONSE_HEADER]) -> Result<Self, FrameError> {
        if header[0] != MAGIC {
            return Err(FrameError::Magic(header[0]));
        }
        if header[1] != VERSION {
            return Err(FrameError::Version(header[1]));
        }
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        Ok(Self { error: header[2], sequence: word(4), length: word(8), attachment_length: word(12) })
    }

    /// Encodes the header, with numbers in little-endian order.
    #[inline]
    pub fn to_bytes(self) -> [u8; RESPONSE_HEADER] {
        let mut bytes = [0; RESPONSE_HEADER];
        bytes[..4].copy_from_slice(&[MAGIC, VERSION, self.error, 0]);
        bytes[4..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_le_bytes());
        bytes[12..].copy_from_slice(&self.attachment_length.to_le_bytes());
        bytes
    }
}

/// Appends a whole request to `out`; `body` appends the body.
pub fn append_request(out: &mut Vec<u8>, sequence: u32, function_id: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; REQUEST_HEADER]);
    body(out);
    let length = (out.len() - start - REQUEST_HEADER) as u32;
    let header = RequestHeader { sequence, function_id, length, attachment_length: 0 };
    out[start..start + REQUEST_HEADER].copy_from_slice(&header.to_bytes());
}

/// Reserves a response's header at the end of `out` and returns where the frame starts.
#[inline]
pub fn begin_response(out: &mut Vec<u8>) -> usize {
    let start = out.len();
    out.extend_from_slice(&[0; RESPONSE_HEADER]);
    start
}

/// Fills in the header of the response that starts at `start` and ends at the end of `out`.
#[inline]
pub fn finish_response(out: &mut Vec<u8>, start: usize, sequence: u32) {
    let Ok(length) = u32::try_from(out.len() - start - RESPONSE_HEADER) else {
        out.truncate(start);
        return append_error(out, sequence, MESSAGE_TOO_LARGE, "the response is too large");
    };
    write_header(out, start, ResponseHeader { error: 0, sequence, length, attachment_length: 0 });
}

/// Appends a whole response that is an RPC-level error.
pub fn append_error(out: &mut Vec<u8>, sequence: u32, error: u8, message: &str) {
    let start = begin_response(out);
    encode(&message.as_bytes(), Form::Short, out);
    let length = (out.len() - start - RESPONSE_HEADER) as u32;
    write_header(out, start, ResponseHeader { error, sequence, length, attachment_length: 0 });
}

#[inline]
fn write_header(out: &mut [u8], start: usize, header: ResponseHeader) {
    out[start..start + RESPONSE_HEADER].copy_from_slice(&header.to_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_goes_there_and_back() {
        let header =
            RequestHeader { sequence: 7, function_id: 0xd6c2_dae5, length: 20, attachment_length: 3 };
        assert_eq!(RequestHeader::parse(&header.to_bytes()), Ok(Some(header)));
        assert_eq!(header.frame_length(), 43);
        let header = ResponseHeader { error: 11, sequence: 9, length: 36, attachment_length: 0 };
        assert_eq!(ResponseHeader::parse(&header.to_bytes()), Ok(header));
    }

    #[test]
    fn the_first_wrong_byte_is_enough() {
        assert_eq!(RequestHeader::parse(&[]), Ok(None));
        assert_eq!(RequestHeader::parse(&[0x15, 0, 0, 9]), Ok(None));
        assert_eq!(RequestHeader::parse(b"G"), Err(FrameError::Magic(b'G')));
        assert_eq!(RequestHeader::parse(&[0x15, 1]), Err(FrameError::Version(1)));
        assert_eq!(RequestHeader::parse(&[0x15, 0, 2]), Err(FrameError::SerializeType(2)));
        assert_eq!(RequestHeader::parse(&[0xff; 20]), Err(FrameError::Magic(0xff)));
    }

    #[test]
    fn the_limit_counts_body_and_attachment() {
        let header = |length, attachment_length| RequestHeader {
            sequence: 0,
            function_id: 0,
            length,
            attachment_length,
        };
        let limit = MAX_REQUEST as u32;
        assert!(RequestHeader::parse(&header(limit, 0).to_bytes()).is_ok());
        assert_eq!(
            RequestHeader::parse(&header(limit, 1).to_bytes()),
            Err(FrameError::TooLarge(MAX_REQUEST + 1))
        );
        assert_eq!(
            RequestHeader::parse(&header(u32::MAX, u32::MAX).to_bytes()),
            Err(FrameError::TooLarge(2 * u64::from(u32::MAX)))
        );
    }

    #[test]
    fn an_error_is_a_string_of_the_reference() {
        let mut out = Vec::new();
        append_error(&mut out, 1, FUNCTION_NOT_REGISTERED, "the rpc function not registered");
        let body = b"\x76\xfa\xcf\x9d\x1fthe rpc function not registered";
        assert_eq!(out[..16], [0x15, 0, 11, 0, 1, 0, 0, 0, 36, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(out[16..], body[..]);
    }
}
