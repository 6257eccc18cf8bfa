//! Of etcd's maintenance API the calls that make sense for a store with a single member: status and defragmentation.

use etcd_client::proto::{
    PbAlarmRequest, PbAlarmResponse, PbDefragmentRequest, PbDefragmentResponse, PbDowngradeRequest,
    PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest, PbHashResponse,
    PbMaintenanceService, PbMoveLeaderRequest, PbMoveLeaderResponse, PbSnapshotRequest, PbSnapshotResponse,
    PbStatusRequest, PbStatusResponse,
};
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

use crate::coordination::embedded::server::convert::{MEMBER_ID, RAFT_TERM, header, signed, status};
use crate::coordination::embedded::store::{QUOTA_BYTES, Store};

/// The version of etcd whose answers the model gives.
const VERSION: &str = "3.6.0";

pub(super) struct Maintenance {
    store: Store,
}

impl Maintenance {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }
}

fn unimplemented() -> Status {
    Status::unimplemented("not served by the embedded store")
}

#[tonic::async_trait]
impl PbMaintenanceService for Maintenance {
    async fn status(&self, _: Request<PbStatusRequest>) -> Result<Response<PbStatusResponse>, Status> {
        let (revision, size) = self.store.size().map_err(status)?;
        // The alarm ends by itself, because the store accepts puts again when there is space.
        let alarm = format!("memberID:{MEMBER_ID} alarm:NOSPACE");
        let errors = size.full.then_some(alarm).into_iter().collect();
        Ok(Response::new(PbStatusResponse {
            header: header(revision),
            version: VERSION.to_owned(),
            db_size: signed(size.bytes),
            leader: MEMBER_ID,
            raft_index: revision,
            raft_term: RAFT_TERM,
            raft_applied_index: revision,
            db_size_in_use: signed(size.in_use_bytes),
            db_size_quota: signed(QUOTA_BYTES as u64),
            errors,
            ..PbStatusResponse::default()
        }))
    }

    async fn alarm(&self, _: Request<PbAlarmRequest>) -> Result<Response<PbAlarmResponse>, Status> {
        Err(unimplemented())
    }

    async fn defragment(
        &self,
        _: Request<PbDefragmentRequest>,
    ) -> Result<Response<PbDefragmentResponse>, Status> {
        // Without a file there is nothing to do.
        match self.store.rewrite().await.map_err(status)? {
            None => Ok(Response::new(PbDefragmentResponse { header: None })),
            Some(why) => Err(Status::internal(format!("the file cannot be rewritten: {why}"))),
        }
    }

    async fn hash(&self, _: Request<PbHashRequest>) -> Result<Response<PbHashResponse>, Status> {
        Err(unimplemented())
    }

    async fn hash_kv(&self, _: Request<PbHashKvRequest>) -> Result<Response<PbHashKvResponse>, Status> {
        Err(unimplemented())
    }

    type SnapshotStream = Empty<Result<PbSnapshotResponse, Status>>;

    async fn snapshot(
        &self,
        _: Request<PbSnapshotRequest>,
    ) -> Result<Response<Self::SnapshotStream>, Status> {
        Err(unimplemented())
    }

    async fn move_leader(
        &self,
        _: Request<PbMoveLeaderRequest>,
    ) -> Result<Response<PbMoveLeaderResponse>, Status> {
        Err(unimplemented())
    }

    async fn downgrade(
        &self,
        _: Request<PbDowngradeRequest>,
    ) -> Result<Response<PbDowngradeResponse>, Status> {
        Err(unimplemented())
    }
}
