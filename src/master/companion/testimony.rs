//! What a companion tells the other masters when its own has ended, so that the new primary holds for a shorter time what
//! the old one may have promised (R6, docs/decisions/008).

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep};

use crate::master::peer::witness::{EndedProcess, report_end};

/// Time for one attempt.
const WITHIN: Duration = Duration::from_secs(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(100);
/// A report that comes later is of no use: another master has been primary for long.
const GIVE_UP: Duration = Duration::from_secs(10);

/// What there is to tell, and to which masters. The master keeps it up to date while it lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Testimony {
    /// The process whose end is told, and what proves it.
    pub ended: EndedProcess,
    /// Peer addresses of the other masters.
    pub peers: Vec<String>,
}

impl Testimony {
    /// Tells it, again to those that did not acknowledge it. The process must have ended.
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
