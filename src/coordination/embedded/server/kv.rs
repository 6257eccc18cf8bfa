//! The KV service of etcd's API.

use etcd_client::proto::{
    PbCompactionRequest, PbCompactionResponse, PbDeleteRequest, PbDeleteResponse, PbKvService, PbPutRequest,
    PbPutResponse, PbRangeRequest, PbRangeResponse, PbRangeStreamResponse, PbTxnRequest, PbTxnResponse,
};
use tokio_stream::Empty;
use tonic::{Request, Response, Status};

use crate::coordination::embedded::server::convert::{
    delete, delete_answer, found, header, program, put, put_answer, read, status, txn_answer, unsigned,
};
use crate::coordination::embedded::store::{Rejection, Store};
use crate::coordination::model::steps::{Outcome, Program, Step};

pub(super) struct Kv {
    store: Store,
}

impl Kv {
    pub(super) fn new(store: Store) -> Self {
        Self { store }
    }

    async fn transact(&self, program: Program) -> Result<(u64, bool, Vec<Outcome>), Status> {
        let done = self.store.change(move |state, _| {
            let (succeeded, outcomes) = state.transact(&program)?;
            Ok((state.model().revision(), succeeded, outcomes))
        });
        done.await.map_err(status)
    }

    /// Carries out a transaction of one step.
    async fn step(&self, step: Step) -> Result<(u64, Outcome), Status> {
        let program = Program { success: vec![step], ..Program::default() };
        let (revision, _, outcomes) = self.transact(program).await?;
        let outcome =
            outcomes.into_iter().next().ok_or_else(|| Status::internal("a step without an outcome"))?;
        Ok((revision, outcome))
    }
}

#[tonic::async_trait]
impl PbKvService for Kv {
    async fn range(&self, request: Request<PbRangeRequest>) -> Result<Response<PbRangeResponse>, Status> {
        let read = read(request.into_inner())?;
        let looked = self.store.look(|model| (model.revision(), model.read(&read))).map_err(status)?;
        let (revision, read) = looked;
        let read = read.map_err(|refusal| status(Rejection::from(refusal)))?;
        Ok(Response::new(found(revision, read)?))
    }

    type RangeStreamStream = Empty<Result<PbRangeStreamResponse, Status>>;

    async fn range_stream(
        &self,
        _: Request<PbRangeRequest>,
    ) -> Result<Response<Self::RangeStreamStream>, Status> {
        Err(Status::unimplemented("not served by the embedded store"))
    }

    async fn put(&self, request: Request<PbPutRequest>) -> Result<Response<PbPutResponse>, Status> {
        let (revision, outcome) = self.step(Step::Put(put(request.into_inner())?)).await?;
        let Outcome::Put { previous } = outcome else { return Err(Status::internal("not a put")) };
        Ok(Response::new(put_answer(revision, previous)))
    }

    async fn delete_range(
        &self,
        request: Request<PbDeleteRequest>,
    ) -> Result<Response<PbDeleteResponse>, Status> {
        let (revision, outcome) = self.step(Step::Delete(delete(request.into_inner()))).await?;
        let Outcome::Deleted { count, previous } = outcome else {
            return Err(Status::internal("not a deletion"));
        };
        Ok(Response::new(delete_answer(revision, count, previous)))
    }

    async fn txn(&self, request: Request<PbTxnRequest>) -> Result<Response<PbTxnResponse>, Status> {
        let (revision, succeeded, outcomes) = self.transact(program(request.into_inner())?).await?;
        Ok(Response::new(txn_answer(revision, succeeded, outcomes)?))
    }

    async fn compact(
        &self,
        request: Request<PbCompactionRequest>,
    ) -> Result<Response<PbCompactionResponse>, Status> {
        let request = request.into_inner();
        let compact_to = unsigned(request.revision);
        let compacted = self.store.change(move |state, _| {
            state.compact(compact_to)?;
            Ok(state.model().revision())
        });
        let revision = compacted.await.map_err(status)?;
        if request.physical {
            self.store.discarded(compact_to).await.map_err(status)?;
        }
        Ok(Response::new(PbCompactionResponse { header: header(revision) }))
    }
}
