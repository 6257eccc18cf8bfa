//! Keep-alive as question and answer. etcd has it as a stream, on which an answer names only the lease: a late one
//! would pass for that of the next question, and the lease would be counted from too late a moment. So a stream is
//! taken out of its place for each question, and put back only with the answer in hand.

use etcd_client::{Error, LeaseKeepAliveStream, LeaseKeeper};

use crate::coordination::etcd::connection::Connection;
use crate::coordination::etcd::failures::Fault;
use crate::coordination::types::LeaseId;

/// A stream of keep-alives of one lease, on which nothing is outstanding.
pub(super) struct Keeper {
    lease: LeaseId,
    questions: LeaseKeeper,
    answers: LeaseKeepAliveStream,
}

impl Keeper {
    async fn ask(&mut self) -> Result<i64, Error> {
        self.questions.keep_alive().await?;
        match self.answers.message().await? {
            Some(answer) if answer.id() == self.lease.0 => Ok(answer.ttl()),
            Some(_) => Err(Error::LeaseKeepAliveError("an answer about another lease".to_owned())),
            None => Err(Error::LeaseKeepAliveError("the stream ended".to_owned())),
        }
    }
}

impl Connection {
    /// Starts a lease anew; its time to live, zero or less if there is no such lease. The answer is to a question that
    /// was sent after the call.
    pub(super) async fn keep_alive(&self, lease: LeaseId) -> Result<i64, Fault> {
        let free = self.keeper.lock().take();
        if let Some(mut keeper) = free.filter(|keeper| keeper.lease == lease)
            && let Ok(ttl_seconds) = keeper.ask().await
        {
            self.keeper.lock().replace(keeper);
            return Ok(ttl_seconds);
        }
        let (questions, answers) = match self.lease.clone().keep_alive(lease.0).await {
            Ok(stream) => stream,
            // How the crate says that the first answer was a time to live of zero.
            Err(Error::LeaseKeepAliveError(why)) if why == "lease not found" => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        // The crate keeps the first answer for itself, so there is a second question.
        let mut keeper = Keeper { lease, questions, answers };
        let ttl_seconds = keeper.ask().await?;
        self.keeper.lock().replace(keeper);
        Ok(ttl_seconds)
    }
}
