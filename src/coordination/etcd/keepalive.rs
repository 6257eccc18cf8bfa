//! Keep-alive as request and answer. etcd has it as a stream, on which an answer names only the lease: a late answer
//! would be taken for that of the next request, and the lease would be counted from too late a moment. So a stream is
//! taken out of its slot for each request, and put back only after the answer has come.

use etcd_client::Error;

use crate::coordination::etcd::connection::Connection;
use crate::coordination::etcd::failures::Fault;
use crate::coordination::etcd::keeper::Keeper;
use crate::coordination::types::LeaseId;

impl Connection {
    /// Renews a lease and returns its time to live, zero or less if there is no such lease. The answer is to a request
    /// that was sent after this call began.
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
            // The crate reports a first answer with a time to live of zero like this.
            Err(Error::LeaseKeepAliveError(why)) if why == "lease not found" => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        // The crate consumes the first answer, so a second request is needed.
        let mut keeper = Keeper { lease, questions, answers };
        let ttl_seconds = keeper.ask().await?;
        self.keeper.lock().replace(keeper);
        Ok(ttl_seconds)
    }
}
