//! Keeps up to date what the companion reports to the other masters when this one has ended.

use std::time::Duration;

use tokio::sync::watch;

use super::published_status::PublishedStatus;
use crate::master::companion::Testimony;
use crate::master::peer::witness::EndedProcess;
use crate::master::peer::{Identity, PeerCredentials};

/// Longest age of the testimony: tokens are replaced, and members come and go.
const REFRESH: Duration = Duration::from_secs(1);
/// Most masters that are named in it.
const MOST_PEERS: usize = 16;

/// Updates the testimony until there is no companion that receives it.
pub(super) async fn keep(
    own: Identity,
    credentials: PeerCredentials,
    statuses: watch::Receiver<PublishedStatus>,
    to: watch::Sender<Option<Testimony>>,
) {
    let mut refresh = tokio::time::interval(REFRESH);
    while !to.is_closed() {
        refresh.tick().await;
        // Without a token the report could not be authenticated.
        let Ok(ended) = EndedProcess::describe(&own, &credentials).await else { continue };
        let peers = {
            let members = &statuses.borrow().members;
            let others = members.iter().filter(|member| member.name != own.name);
            others.map(|member| member.addresses.peer.clone()).take(MOST_PEERS).collect()
        };
        let now = Some(Testimony { ended, peers });
        to.send_if_modified(|known| {
            let changed = *known != now;
            *known = now;
            changed
        });
    }
}
