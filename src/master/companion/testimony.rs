//! The report of a companion to the other masters that its own has ended, which shortens the hold of the new primary
//! (R6, docs/decisions/008).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::master::peer::witness::{EndedProcess, report_end};

/// Timeout of one attempt to report to the masters.
const WITHIN: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// A later report is of no use: the new primary has been serving for long.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The report, and the masters that receive it. The master keeps it up to date while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// The process whose end is reported, and what proves it.
    pub ended: EndedProcess,
    /// Peer addresses of the other masters.
    pub peers: Vec<String>,
}

impl Testimony {
    /// Sends the report, and retries for the masters that did not acknowledge it. The process must have ended.
    pub(super) async fn give(self) {
        let Self { ended, mut peers } = self;
        let until = Instant::now() + GIVE_UP;
        while !peers.is_empty() && Instant::now() < until {
            let told = report_end(&ended, &peers, WITHIN).await;
            peers = told.into_iter().filter(|(_, done)| done.is_err()).map(|(peer, _)| peer).collect();
            sleep(PAUSE).await;
        }
    }
}
