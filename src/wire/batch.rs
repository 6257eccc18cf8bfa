//! Writes the reply to a batch item by item.
//!
//! A batch handler visits one object after the other, each under its own lock. With [`BatchReply`] it writes every item
//! straight into the reply while it holds what the item borrows from, and nothing is collected in between. All lengths
//! of a message have the same width: if an item needs a wider one than the items before it, those are rewritten. That
//! is rare, and the handler need not know.

use super::frame;
use super::functions::Rpc;
use super::struct_pack::{Decode, DecodeError, Encode, Form, Reader, Width, Wire, Writer, append_head};
use std::marker::PhantomData;

/// Why the reply to a batch is incomplete: the handler or the codec has a bug; the request is never the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The handler wrote another number of items than it announced.
    #[error("{pushed} items were written where {announced} were announced")]
    Count {
        /// The number that `begin` was given.
        announced: usize,
        /// The number that was written.
        pushed: usize,
    },
    /// The items before could not be decoded again.
    #[error("cannot widen the answer: {0}")]
    Widen(#[from] DecodeError),
}

/// A reply longer than this, the longest request, takes no further large items: a request may name a short key a
/// million times, and each time the reply describes its replicas.
const FULL: usize = frame::MAX_REQUEST as usize;

/// The reply to a batch function while it is being written.
#[derive(Debug)]
pub struct BatchReply<'o, F> {
    out: &'o mut Vec<u8>,
    start: usize,
    width: Width,
    announced: usize,
    pushed: usize,
    function: PhantomData<F>,
}

impl<'o, F: Rpc> BatchReply<'o, F> {
    /// Starts a reply of `announced` items at the end of `out`.
    pub fn begin(out: &'o mut Vec<u8>, announced: usize) -> Self {
        let (start, width) = (out.len(), Width::for_length(announced));
        Self::append_start(out, width, announced);
        Self { out, start, width, announced, pushed: 0, function: PhantomData }
    }

    fn append_start(out: &mut Vec<u8>, width: Width, count: usize) {
        append_head(<F::Response<'static> as Wire>::SHAPE, Form::Short, width, out);
        Writer::new(out, width).length(count);
    }

    /// Appends the next item. One that is not an element of the function's response does not compile.
    #[inline]
    pub fn push<T: Encode>(&mut self, item: &T) -> Result<(), BatchError> {
        const {
            let response = <F::Response<'static> as Wire>::SHAPE.code;
            assert!(Vec::<T>::SHAPE.code == response, "not an element of the function's response");
        }
        let needed = Width::for_length(item.largest());
        if needed > self.width {
            self.widen(needed)?;
        }
        item.encode(&mut Writer::new(self.out, self.width));
        self.pushed += 1;
        Ok(())
    }

    /// Returns whether only errors may still be added.
    #[must_use]
    #[inline]
    pub fn is_full(&self) -> bool {
        self.out.len() - self.start > FULL
    }

    /// Checks that as many items were written as announced.
    pub fn finish(self) -> Result<(), BatchError> {
        let Self { announced, pushed, .. } = self;
        if announced == pushed { Ok(()) } else { Err(BatchError::Count { announced, pushed }) }
    }

    /// Rewrites the items so far with wider lengths.
    #[cold]
    fn widen(&mut self, width: Width) -> Result<(), BatchError> {
        let written = self.out.split_off(self.start);
        // The number of items so far goes in front, so that the payload decodes as a complete response.
        let mut head = Vec::new();
        Self::append_start(&mut head, self.width, self.announced);
        let mut payload = Vec::with_capacity(written.len());
        Writer::new(&mut payload, self.width).length(self.pushed);
        payload.extend_from_slice(&written[head.len()..]);
        let response = F::Response::decode(&mut Reader::new(&payload, self.width, usize::MAX))?;

        let mut rewritten = Vec::with_capacity(2 * payload.len());
        let mut writer = Writer::new(&mut rewritten, width);
        response.encode(&mut writer);
        let mut length = Vec::new();
        Writer::new(&mut length, width).length(self.pushed);
        Self::append_start(self.out, width, self.announced);
        self.out.extend_from_slice(&rewritten[length.len()..]);
        self.width = width;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{BatchError, BatchReply};
    use crate::wire::functions::rpc;
    use crate::wire::messages::*;
    use crate::wire::struct_pack::{decode, encode};
    use crate::wire::types::{ErrorCode, Expected, ReplicaStatus};

    fn found(endpoint: &[u8]) -> Expected<GetReplicaListResponse<'_>> {
        let buffer = BufferDescriptor { size: 1, address: 2, protocol: b"tcp", transport_endpoint: endpoint };
        let location = ReplicaLocation::Memory(MemoryDescriptor { buffer });
        let replica = ReplicaDescriptor { id: 3, location, status: ReplicaStatus::COMPLETE };
        Ok(GetReplicaListResponse {
            replicas: vec![replica].into(),
            lease_ttl_ms: 4,
            object_checksum: Some(5),
        })
    }

    /// Checks that a batch written item by item has the same bytes as one written at once.
    fn check(items: &[Expected<GetReplicaListResponse<'_>>]) {
        let mut out = b"before".to_vec();
        let mut reply = BatchReply::<rpc::BatchGetReplicaList>::begin(&mut out, items.len());
        for item in items {
            reply.push(item).unwrap();
        }
        reply.finish().unwrap();
        let mut expected = b"before".to_vec();
        encode(&items.to_vec(), Default::default(), &mut expected);
        assert_eq!(out, expected);
        let read_again = decode::<Vec<Expected<GetReplicaListResponse<'_>>>>(&out[6..]);
        assert_eq!(read_again.as_deref(), Ok(items));
    }

    #[test]
    fn items_come_out_as_a_list() {
        check(&[]);
        check(&[found(b"a"), Err(ErrorCode::OBJECT_NOT_FOUND), found(b"b")]);
        check(&vec![found(b"many"); 300]);
    }

    #[test]
    fn an_item_that_needs_more_width_changes_those_before_it() {
        let (long, longer) = (vec![b'x'; 300], vec![b'y'; 70_000]);
        check(&[found(&long), found(b"a")]);
        check(&[
            found(b"a"),
            Err(ErrorCode::OBJECT_NOT_FOUND),
            found(&long),
            found(b"b"),
            found(&longer),
            found(b"c"),
        ]);
    }

    #[test]
    fn an_answer_is_full_when_it_is_longer_than_any_request() {
        let mut out = vec![0; 100 << 20];
        let long = vec![b'x'; 60_000];
        let mut reply = BatchReply::<rpc::BatchGetReplicaList>::begin(&mut out, 2000);
        let fitting = (0..2000).take_while(|_| !reply.is_full() && reply.push(&found(&long)).is_ok()).count();
        assert_eq!(fitting, (64 << 20) / (60_000 + 50) + 1);
    }

    #[test]
    fn a_missing_item_is_noticed() {
        let mut out = Vec::new();
        let mut reply = BatchReply::<rpc::BatchExistKey>::begin(&mut out, 2);
        reply.push(&Expected::Ok(true)).unwrap();
        assert_eq!(reply.finish(), Err(BatchError::Count { announced: 2, pushed: 1 }));
    }
}
