//! A stream of keep-alives, as a connection keeps it between two requests.

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};

use crate::coordination::types::LeaseId;

/// A stream of keep-alives of one lease, on which no request is outstanding.
pub(super) struct Keeper {
    pub(super) lease: LeaseId,
    pub(super) questions: LeaseKeeper,
    pub(super) answers: LeaseKeepAliveStream,
}

impl Keeper {
    /// Sends a keep-alive and returns the time to live in its answer.
    pub(super) async fn ask(&mut self) -> Result<i64, Error> {
        self.questions.keep_alive().await?;
        match self.answers.message().await? {
            Some(answer) if answer.id() == self.lease.0 => Ok(answer.ttl()),
            Some(_) => Err(Error::LeaseKeepAliveError("an answer about another lease".to_owned())),
            None => Err(Error::LeaseKeepAliveError("the stream ended".to_owned())),
        }
    }
}
