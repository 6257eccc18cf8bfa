//! The status of the node as it is published to the rest of the process.

use std::sync::Arc;

use crate::cluster::member::MemberValue;
use crate::cluster::view;
use crate::replication::incarnation::Incarnation;
use crate::replication::node::Node;
use crate::replication::node::status::NodeStatus;
use crate::replication::time::{Monotonic, RunningClock};

/// Status of a node, for the rest of the process.
#[derive(Clone, Debug)]
pub(super) struct PublishedStatus {
    pub status: NodeStatus,
    /// Name of the primary; `None` if there is none.
    pub leader: Option<String>,
    /// The address that clients are sent to, and the revision that created that key.
    pub master_view: Option<view::Serving>,
    /// All members that the node knows of.
    pub members: Vec<MemberValue>,
    pub incarnation: Arc<Incarnation>,
    /// Log time; `None` while this master does not lead.
    pub clock: Option<RunningClock>,
    /// When this was published.
    pub at: Monotonic,
    /// When etcd last answered.
    pub etcd_heard: Option<Monotonic>,
}

impl PublishedStatus {
    pub(super) fn new(node: &Node, now: Monotonic) -> Self {
        let view = node.seen_keys();
        Self {
            status: node.status(now),
            leader: view.leader().map(|leader| leader.value.name.clone()),
            master_view: view.serving().cloned(),
            members: view.members().cloned().collect(),
            incarnation: Arc::clone(node.incarnation()),
            clock: None,
            at: now,
            etcd_heard: view.read_at(),
        }
    }
}
