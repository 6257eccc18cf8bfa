//! Limits of the connections to the peer port, and which connection is evicted for another one.
//!
//! Connections that are not authenticated (strangers) are counted apart from those that are, so that no number of
//! strangers keeps a master out. A new stranger is always let in. If its source has [`MAX_STRANGERS_PER_SOURCE`]
//! connections, it evicts the oldest of them; else, if all slots are taken, the oldest of the source that has most. A
//! handshake takes a millisecond, so the oldest stranger is the least likely to be a master. An authenticated
//! connection may still be of a process that etcd does not name; when all slots are taken, the oldest of those is
//! evicted, so that no number of names keeps a member out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::presence::Members;

/// Most connections that are not authenticated yet.
const MAX_STRANGERS: usize = 64;

/// Most of them from one source.
const MAX_STRANGERS_PER_SOURCE: usize = 16;

/// Most authenticated connections: some for each of up to seven masters, and plenty to spare.
const MAX_PEERS: usize = 64;

/// Most of them of one member: its process, a predecessor whose end was not noticed, and its attempts to reconnect.
const MAX_PEERS_PER_NAME: usize = 4;

/// The connections of a peer port. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order of arrival.
    strangers: Vec<Occupant<IpAddr>>,
    peers: Vec<Occupant<String>>,
}

/// A slot that is taken. Dropping its sender evicts the connection.
#[derive(Debug)]
struct Occupant<K> {
    id: u64,
    by: K,
    evict: oneshot::Sender<()>,
}

/// The slot of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    id: u64,
}

impl Slots {
    /// Takes a slot for a connection from this address. Returns it with a receiver that resolves when the connection is
    /// evicted.
    pub(super) fn take(&self, source: IpAddr) -> (Slot, oneshot::Receiver<()>) {
        let source = network(source);
        let (evict, evicted) = oneshot::channel();
        let mut table = self.0.lock();
        table.make_way(source);
        let id = table.next;
        table.next += 1;
        table.strangers.push(Occupant { id, by: source, evict });
        (Slot { slots: self.clone(), id }, evicted)
    }
}

impl Table {
    fn make_way(&mut self, source: IpAddr) {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for stranger in &self.strangers {
            *counts.entry(stranger.by).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or_default();
        let oldest = if counts.get(&source).is_some_and(|count| *count >= MAX_STRANGERS_PER_SOURCE) {
            self.strangers.iter().position(|stranger| stranger.by == source)
        } else if self.strangers.len() >= MAX_STRANGERS {
            self.strangers.iter().position(|stranger| counts.get(&stranger.by) == Some(&most))
        } else {
            None
        };
        if let Some(oldest) = oldest {
            self.strangers.remove(oldest);
        }
    }
}

impl Slot {
    /// Records that the connection is authenticated as a process with this name. Returns false if it was evicted a
    /// moment before, or if there are too many.
    pub(super) fn prove(&self, name: &str, members: &Members) -> bool {
        let mut table = self.slots.0.lock();
        let Some(at) = table.strangers.iter().position(|held| held.id == self.id) else { return false };
        let Occupant { id, evict, .. } = table.strangers.remove(at);
        let mut own = table.peers.iter().enumerate().filter(|(_, held)| held.by == name);
        let (oldest, count) = (own.next().map(|(at, _)| at), 1 + own.count());
        let makes_way = match oldest {
            Some(oldest) if count >= MAX_PEERS_PER_NAME => Some(oldest),
            _ if table.peers.len() < MAX_PEERS => None,
            _ => match table.peers.iter().position(|held| !members.contains_key(&held.by)) {
                Some(oldest) => Some(oldest),
                None => return false,
            },
        };
        if let Some(makes_way) = makes_way {
            table.peers.remove(makes_way);
        }
        table.peers.push(Occupant { id, by: name.to_owned(), evict });
        true
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut table = self.slots.0.lock();
        table.strangers.retain(|held| held.id != self.id);
        table.peers.retain(|held| held.id != self.id);
    }
}

/// Returns what counts as one source: an IPv4 address, or the /64 network of an IPv6 address, since one host has all of
/// it.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
        address => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(last: u8) -> IpAddr {
        IpAddr::from([10, 0, 0, last])
    }

    #[test]
    fn a_stranger_is_always_let_in_and_the_oldest_of_a_crowd_goes() {
        let slots = Slots::default();
        let (_quiet, mut quiet) = slots.take(source(1));
        let mut crowd: Vec<_> = (0..MAX_STRANGERS_PER_SOURCE).map(|_| slots.take(source(2))).collect();
        assert!(crowd.iter_mut().all(|(_, evicted)| evicted.try_recv() == Err(EMPTY)));
        let (late, _evicted) = slots.take(source(2));
        assert_eq!(crowd[0].1.try_recv(), Err(CLOSED));
        assert_eq!(crowd[1].1.try_recv(), Err(EMPTY));
        // The evicted stranger can no longer authenticate, the one in its slot can.
        let members = Members::new();
        assert!(!crowd[0].0.prove("m-1", &members) && late.prove("m-1", &members));
        let mut more: Vec<_> = (0..=u8::MAX).map(|last| slots.take(IpAddr::from([10, 1, 0, last]))).collect();
        let looks = more.iter_mut().map(|(_, evicted)| evicted.try_recv());
        let open = looks.filter(|look| *look == Err(EMPTY)).count();
        assert!(open <= MAX_STRANGERS && more[255].1.try_recv() == Err(EMPTY), "{open}");
        assert_eq!(quiet.try_recv(), Err(CLOSED), "all sources had one, and it was the oldest");
    }

    #[test]
    fn a_member_has_few_connections_and_the_newest_stay() {
        let slots = Slots::default();
        let mut own: Vec<_> = (0..=MAX_PEERS_PER_NAME).map(|_| slots.take(source(1))).collect();
        let members = Members::new();
        assert!(own.iter().all(|(slot, _)| slot.prove("m-1", &members)));
        assert_eq!(own[0].1.try_recv(), Err(CLOSED));
        assert!(own[1..].iter_mut().all(|(_, evicted)| evicted.try_recv() == Err(EMPTY)));
        drop(own);
        let table = slots.0.lock();
        assert!(table.peers.is_empty() && table.strangers.is_empty());
    }

    #[test]
    fn a_name_that_etcd_does_not_know_makes_way() {
        let slots = Slots::default();
        let members: Members = (0..MAX_PEERS).map(|number| (format!("m-{number}"), "b".to_owned())).collect();
        let prove = |name: &str| {
            let (slot, evicted) = slots.take(source(1));
            slot.prove(name, &members).then_some((slot, evicted))
        };
        let mut member = prove("m-0").unwrap();
        let mut made_up: Vec<_> =
            (1..MAX_PEERS).map(|number| prove(&format!("x-{number}")).unwrap()).collect();
        let mut later: Vec<_> = (1..MAX_PEERS).map(|number| prove(&format!("m-{number}")).unwrap()).collect();
        assert!(made_up.iter_mut().all(|(_, evicted)| evicted.try_recv() == Err(CLOSED)));
        // Members that etcd knows keep their slots, and then there is none for any other.
        assert!(prove("x-1").is_none() && prove("m-1").is_none());
        let members = std::iter::once(&mut member).chain(&mut later);
        assert!(members.into_iter().all(|(_, evicted)| evicted.try_recv() == Err(EMPTY)));
    }

    const EMPTY: oneshot::error::TryRecvError = oneshot::error::TryRecvError::Empty;
    const CLOSED: oneshot::error::TryRecvError = oneshot::error::TryRecvError::Closed;

    #[test]
    fn a_host_has_a_whole_network() {
        let [one, other, third] =
            ["2001:db8::1", "2001:db8::2", "2001:db8:1::1"].map(|text| text.parse().unwrap());
        assert_eq!(network(one), network(other));
        assert_ne!(network(one), network(third));
        assert_eq!(network("::ffff:10.0.0.1".parse().unwrap()), source(1));
    }
}
