//! The lease service of etcd's API.

use etcd_client::proto::{
    PbLeaseGrantRequest, PbLeaseGrantResponse, PbLeaseKeepAliveRequest, PbLeaseKeepAliveResponse,
    PbLeaseLeasesRequest, PbLeaseLeasesResponse, PbLeaseRevokeRequest, PbLeaseRevokeResponse, PbLeaseService,
    PbLeaseStatus, PbLeaseTimeToLiveRequest, PbLeaseTimeToLiveResponse,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::coordination::embedded::server::convert::{header, signed, status};
use crate::coordination::embedded::store::{Rejection, Store};
use crate::coordination::types::LeaseId;

pub(super) struct Leases {
    store: Store,
}

impl Leases {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }
}

#[tonic::async_trait]
impl PbLeaseService for Leases {
    async fn lease_grant(
        &self,
        request: Request<PbLeaseGrantRequest>,
    ) -> Result<Response<PbLeaseGrantResponse>, Status> {
        let request = request.into_inner();
        // Random, so that a lease that ended before a restart is not taken for a new one.
        let id = match request.id {
            0 => random_id()?,
            id => id,
        };
        let granted = self.store.change(move |state, now| {
            let (lease, ttl_seconds) = state.grant(now, LeaseId(id), request.ttl)?;
            Ok((state.model().revision(), lease, ttl_seconds))
        });
        let (revision, lease, ttl) = granted.await.map_err(status)?;
        Ok(Response::new(PbLeaseGrantResponse {
            header: header(revision),
            id: lease.0,
            ttl,
            error: String::new(),
        }))
    }

    async fn lease_revoke(
        &self,
        request: Request<PbLeaseRevokeRequest>,
    ) -> Result<Response<PbLeaseRevokeResponse>, Status> {
        let lease = LeaseId(request.into_inner().id);
        let revoked = self.store.change(move |state, _| {
            state.revoke(lease)?;
            Ok(state.model().revision())
        });
        let revision = revoked.await.map_err(status)?;
        Ok(Response::new(PbLeaseRevokeResponse { header: header(revision) }))
    }

    type LeaseKeepAliveStream = ReceiverStream<Result<PbLeaseKeepAliveResponse, Status>>;

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<PbLeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let mut questions = request.into_inner();
        let store = self.store.clone();
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(async move {
            loop {
                let question = tokio::select! {
                    question = questions.message() => question,
                    () = sender.closed() => return,
                };
                let Ok(Some(PbLeaseKeepAliveRequest { id })) = question else { return };
                let kept = store.change(move |state, now| {
                    let ttl = state.keep_alive(now, LeaseId(id)).unwrap_or(0);
                    Ok(PbLeaseKeepAliveResponse { header: header(state.model().revision()), id, ttl })
                });
                let answer = kept.await.map_err(status);
                let failed = answer.is_err();
                if sender.send(answer).await.is_err() || failed {
                    return;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<PbLeaseTimeToLiveRequest>,
    ) -> Result<Response<PbLeaseTimeToLiveResponse>, Status> {
        let request = request.into_inner();
        let now = self.store.now();
        let looked = self.store.look(|model| {
            let header = header(model.revision());
            let Some(lease) = model.leases().get(LeaseId(request.id)) else {
                return PbLeaseTimeToLiveResponse {
                    header,
                    id: request.id,
                    ttl: -1,
                    granted_ttl: 0,
                    keys: Vec::new(),
                };
            };
            let keys = lease.keys.iter().filter(|_| request.keys).map(|key| key.to_vec()).collect();
            let ttl = signed(lease.expires.saturating_sub(now).as_secs());
            PbLeaseTimeToLiveResponse { header, id: request.id, ttl, granted_ttl: lease.ttl_seconds, keys }
        });
        Ok(Response::new(looked.map_err(status)?))
    }

    async fn lease_leases(
        &self,
        _: Request<PbLeaseLeasesRequest>,
    ) -> Result<Response<PbLeaseLeasesResponse>, Status> {
        let looked = self.store.look(|model| {
            let leases = model.leases().ids().map(|lease| PbLeaseStatus { id: lease.0 }).collect();
            PbLeaseLeasesResponse { header: header(model.revision()), leases }
        });
        Ok(Response::new(looked.map_err(status)?))
    }
}

fn random_id() -> Result<i64, Status> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|_| status(Rejection::Failed))?;
    Ok((i64::from_le_bytes(bytes) & i64::MAX).max(1))
}
