//! A client of the master that mounts memory for the objects of a benchmark and stays alive while it runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinHandle;

use super::BenchError;
use super::calls::TENANT;
use crate::wire::client::Client;
use crate::wire::functions::rpc;
use crate::wire::messages::{
    MountSegmentRequest, ReMountSegmentRequest, RemoveAllRequest, RemoveRequest, Segment,
    UnmountSegmentRequest,
};
use crate::wire::struct_pack::Form;
use crate::wire::types::{ErrorCode, Uuid};

/// Interval of pings, as in real clients.
const PING: Duration = Duration::from_secs(1);

pub(super) struct Session {
    client: Arc<Client>,
    pub(super) id: Uuid,
    segment: Uuid,
    segment_name: String,
    pings: JoinHandle<()>,
}

impl Session {
    /// Mounts a segment of `size` bytes, registers the client, and keeps pinging.
    pub(super) async fn open(address: SocketAddr, size: u64) -> Result<Self, BenchError> {
        Self::open_one_of(address, size, 0).await
    }

    /// Does the same for one of several clients of this process.
    pub(super) async fn open_one_of(address: SocketAddr, size: u64, number: u16) -> Result<Self, BenchError> {
        let client = Arc::new(Client::connect(address, Form::Long).await?);
        let now = std::time::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_nanos() as u64);
        let id = Uuid { first: now, second: u64::from(std::process::id()) << 16 | u64::from(number) };
        let segment_id = Uuid { first: id.second, second: id.first };
        // Segments of two loads at the same time must not overlap, nor those of the clients of one load.
        let [high, low] = number.to_be_bytes();
        let endpoint = format!("127.{high}.{low}.1:{}", 10_000 + std::process::id() % 50_000);
        let segment_name = format!("moonkeeper-bench-{number}");
        let segment = Segment {
            id: segment_id,
            name: segment_name.as_bytes(),
            base: 1 << 32,
            size,
            te_endpoint: endpoint.as_bytes(),
            protocol: b"tcp",
            host_id: b"",
        };
        let mounted =
            client.call_typed::<rpc::MountSegment>(&MountSegmentRequest { segment, client_id: id }).await?;
        succeeded("MountSegment", mounted.value())?;
        let again = ReMountSegmentRequest { segments: vec![segment], client_id: id };
        let mounted = client.call_typed::<rpc::ReMountSegment>(&again).await?;
        succeeded("ReMountSegment", mounted.value())?;
        let pings = tokio::spawn(ping(Arc::clone(&client), id));
        Ok(Self { client, id, segment: segment_id, segment_name, pings })
    }

    /// Returns the name of its segment.
    pub(super) fn segment_name(&self) -> &[u8] {
        self.segment_name.as_bytes()
    }

    /// Removes every object of the master.
    pub(super) async fn remove_all(&self) -> Result<(), BenchError> {
        self.client
            .call_typed::<rpc::RemoveAll>(&RemoveAllRequest { force: true, tenant_id: TENANT })
            .await?;
        Ok(())
    }

    /// Removes the objects whose key matches a pattern, even those with a lease; returns how many.
    pub(super) async fn remove_by_regex(&self, pattern: &[u8]) -> Result<i64, BenchError> {
        let request = RemoveRequest { key: pattern, force: true, tenant_id: TENANT };
        let answer = self.client.call_typed::<rpc::RemoveByRegex>(&request).await?;
        match answer.value() {
            Ok(Ok(removed)) => Ok(removed),
            Ok(Err(code)) => Err(BenchError::Refused { call: "RemoveByRegex", code: code.0 }),
            Err(_) => Err(BenchError::Refused { call: "RemoveByRegex", code: ErrorCode::INTERNAL_ERROR.0 }),
        }
    }

    /// Removes all objects and the segment, so that the master is left as it was.
    pub(super) async fn close(self) -> Result<(), BenchError> {
        self.remove_all().await?;
        self.unmount().await
    }

    /// Unmounts the segment, with every object in it.
    pub(super) async fn unmount(&self) -> Result<(), BenchError> {
        let request = UnmountSegmentRequest { segment_id: self.segment, client_id: self.id };
        self.client.call_typed::<rpc::UnmountSegment>(&request).await?;
        Ok(())
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.pings.abort();
    }
}

fn succeeded<E>(call: &'static str, answer: Result<Result<(), ErrorCode>, E>) -> Result<(), BenchError> {
    match answer {
        Ok(Ok(())) => Ok(()),
        Ok(Err(code)) => Err(BenchError::Refused { call, code: code.0 }),
        Err(_) => Err(BenchError::Refused { call, code: ErrorCode::INTERNAL_ERROR.0 }),
    }
}

/// Pings until the connection ends; the load reports the errors that follow.
async fn ping(client: Arc<Client>, id: Uuid) {
    let mut ticks = tokio::time::interval(PING);
    loop {
        ticks.tick().await;
        if client.call_typed::<rpc::Ping>(&id).await.is_err() {
            return;
        }
    }
}
