//! The floor: a server that parses headers and sends fixed replies. What a master costs above it is the master's own
//! cost.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::BenchError;
use crate::net::accept::Acceptor;
use crate::wire::frame::{RequestHeader, begin_response, finish_response};
use crate::wire::functions::{Function, encode_response, rpc};
use crate::wire::messages::{
    BufferDescriptor, GetReplicaListResponse, MemoryDescriptor, PingResponse, ReplicaDescriptor,
    ReplicaLocation,
};
use crate::wire::struct_pack::List;
use crate::wire::types::{ClientStatus, Expected, ReplicaStatus};

/// Least free capacity of the buffer for every read.
const READ: usize = 64 << 10;

/// Pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The body of each reply, as long as a master's.
struct Replies {
    bodies: Vec<(u32, Vec<u8>)>,
    /// For all functions that return nothing but success.
    done: Vec<u8>,
}

impl Replies {
    fn new(batch: usize) -> Self {
        let buffer = BufferDescriptor {
            size: 4096,
            address: 1 << 32,
            protocol: b"tcp",
            transport_endpoint: b"127.0.0.1:17001",
        };
        let location = ReplicaLocation::Memory(MemoryDescriptor { buffer });
        let replica = |status| [ReplicaDescriptor { id: 1, location, status }];
        let (started, complete) = (replica(ReplicaStatus::PROCESSING), replica(ReplicaStatus::COMPLETE));
        let started = || Ok(List::from(started.as_slice()));
        let list = || GetReplicaListResponse {
            replicas: List::from(complete.as_slice()),
            lease_ttl_ms: 10_000,
            object_checksum: None,
        };
        let done: Expected<()> = Ok(());
        let mut replies = Self { bodies: Vec::new(), done: Vec::new() };
        encode_response::<rpc::PutEnd, _>(&done, &mut replies.done);
        replies
            .add(Function::ExistKey, |out| encode_response::<rpc::ExistKey, Expected<bool>>(&Ok(true), out));
        replies.add(Function::GetReplicaList, |out| {
            encode_response::<rpc::GetReplicaList, Expected<_>>(&Ok(list()), out);
        });
        replies.add(Function::PutStart, |out| {
            encode_response::<rpc::PutStart, Expected<List<'_, _>>>(&started(), out);
        });
        replies.add(Function::BatchExistKey, |out| {
            encode_response::<rpc::BatchExistKey, Vec<Expected<bool>>>(&vec![Ok(true); batch], out);
        });
        replies.add(Function::BatchGetReplicaList, |out| {
            let all: Vec<Expected<_>> = (0..batch).map(|_| Ok(list())).collect();
            encode_response::<rpc::BatchGetReplicaList, _>(&all, out);
        });
        replies.add(Function::BatchPutStart, |out| {
            let all: Vec<Expected<List<'_, _>>> = (0..batch).map(|_| started()).collect();
            encode_response::<rpc::BatchPutStart, _>(&all, out);
        });
        replies.add(Function::BatchPutEnd, |out| {
            encode_response::<rpc::BatchPutEnd, _>(&vec![done; batch], out);
        });
        replies.add(Function::Ping, |out| {
            let pong = PingResponse { view_version: 0, client_status: ClientStatus::OK };
            encode_response::<rpc::Ping, Expected<_>>(&Ok(pong), out);
        });
        replies.add(Function::RemoveAll, |out| encode_response::<rpc::RemoveAll, _>(&0i64, out));
        replies
    }

    fn add(&mut self, function: Function, body: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = Vec::new();
        body(&mut bytes);
        self.bodies.push((function.id(), bytes));
    }

    fn body(&self, function: u32) -> &[u8] {
        self.bodies.iter().find(|(id, _)| *id == function).map_or(&self.done, |(_, body)| body)
    }
}

/// Listens, prints the address, and serves until the process is ended.
pub(super) async fn run(address: SocketAddr, batch: u32) -> Result<(), BenchError> {
    let io = |source| BenchError::Io { what: "cannot listen", source };
    let listener = TcpListener::bind(address).await.map_err(io)?;
    crate::cli::print(&format!("{}\n", listener.local_addr().map_err(io)?));
    serve(listener, batch).await;
    Ok(())
}

/// Answers all connections with prepared replies; never returns.
pub(super) async fn serve(listener: TcpListener, batch: u32) {
    let replies = Arc::new(Replies::new(batch as usize));
    let mut acceptor = Acceptor::quiet(ACCEPT_PAUSE);
    loop {
        let (stream, _) = acceptor.next(&listener).await;
        tokio::spawn(answer(stream, Arc::clone(&replies)));
    }
}

/// Answers everything that one read brought with one write, until the peer disconnects or violates the protocol.
async fn answer(mut stream: TcpStream, replies: Arc<Replies>) -> Option<()> {
    stream.set_nodelay(true).ok()?;
    let mut input = BytesMut::with_capacity(READ);
    let mut output = Vec::with_capacity(READ);
    loop {
        input.reserve(READ);
        if stream.read_buf(&mut input).await.ok()? == 0 {
            return None;
        }
        while let Some(header) = RequestHeader::parse(&input).ok()? {
            if input.len() < header.frame_length() {
                break;
            }
            input.advance(header.frame_length());
            let start = begin_response(&mut output);
            output.extend_from_slice(replies.body(header.function_id));
            finish_response(&mut output, start, header.sequence);
        }
        if !output.is_empty() {
            stream.write_all(&output).await.ok()?;
            output.clear();
        }
    }
}
