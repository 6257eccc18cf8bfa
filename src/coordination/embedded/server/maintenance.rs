//! The status call of etcd's maintenance API; no other call of it makes sense for a single member.

use etcd_client::proto::{
    PbAlarmRequest, PbAlarmResponse, PbDefragmentRequest, PbDefragmentResponse, PbDowngradeRequest,
    PbDowngradeResponse, PbHashKvRequest, PbHashKvResponse, PbHashRequest, PbHashResponse,
    PbMaintenanceService, PbMoveLeaderRequest, PbMoveLeaderResponse, PbSnapshotRequest, PbSnapshotResponse,
    PbStatusRequest, PbStatusResponse,
};
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

use crate::coordination::embedded::server::convert::{MEMBER_ID, RAFT_TERM, header, status};
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
        let looked = self.store.look(|model| (model.revision(), model.history().bytes())).map_err(status)?;
        let (revision, bytes) = looked;
        // The alarm ends by itself, because the store accepts puts again when there is space.
        let alarm = format!("memberID:{MEMBER_ID} alarm:NOSPACE");
        let errors = (bytes > QUOTA_BYTES).then_some(alarm).into_iter().collect();
        // The database is in memory, so all of it is in use. The journal is not part of it, as etcd's is not.
        let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
        Ok(Response::new(PbStatusResponse {
            header: header(revision),
            version: VERSION.to_owned(),
            db_size: signed(bytes),
            leader: MEMBER_ID,
            raft_index: revision,
            raft_term: RAFT_TERM,
            raft_applied_index: revision,
            db_size_in_use: signed(bytes),
            db_size_quota: signed(QUOTA_BYTES),
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
        Err(unimplemented())
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
