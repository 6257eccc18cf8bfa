//! How many connections the peer port has, and which one makes way for another.
//!
//! Connections that have not proven themselves are counted apart from those that have, so that no number of strangers
//! keeps a master out. A new stranger is always let in, in the place of the oldest one from the same source or, when all
//! places are taken, from the source that has most: a handshake takes a millisecond, so the oldest stranger is the least
//! likely to be a master. A connection that has proven itself may still be of a process that etcd does not name; when all
//! places are taken, the oldest of those makes way, so that no number of names keeps a member out.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::server::Members;

/// Most connections that have not proven themselves yet.
const MAX_STRANGERS: usize = 64;

/// Most of them from one source.
const MAX_STRANGERS_PER_SOURCE: usize = 16;

/// Most connections that have: some for each of up to seven masters, and plenty to spare.
const MAX_PEERS: usize = 64;

/// Most of them of one member: its process, one before that whose end was not noticed, and its attempts to reconnect.
const MAX_PEERS_PER_NAME: usize = 4;

/// The connections of a peer port. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    /// In the order of their arrival.
    strangers: Vec<Held<IpAddr>>,
    peers: Vec<Held<String>>,
}

/// A place that is taken. Without its sender the connection ends.
#[derive(Debug)]
struct Held<K> {
    id: u64,
    by: K,
    evict: oneshot::Sender<()>,
}

/// The place of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    slots: Slots,
    id: u64,
}

impl Slots {
    /// A place for a connection from this address, and what resolves when it has to go.
    pub(super) fn take(&self, source: IpAddr) -> (Slot, oneshot::Receiver<()>) {
        let source = network(source);
        let (evict, evicted) = oneshot::channel();
        let mut table = self.0.lock();
        table.make_way(source);
        let id = table.next;
        table.next += 1;
        table.strangers.push(Held { id, by: source, evict });
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
    /// The connection has proven to be of a process with this name. False if it had to go a moment before, or if there are
    /// too many.
    pub(super) fn prove(&self, name: &str, members: &Members) -> bool {
        let mut table = self.slots.0.lock();
        let Some(at) = table.strangers.iter().position(|held| held.id == self.id) else { return false };
        let Held { id, evict, .. } = table.strangers.remove(at);
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
        table.peers.push(Held { id, by: name.to_owned(), evict });
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

/// What counts as one source: an address, or of IPv6 a network, since a host has all addresses of one.
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
        // The one that had to go can no longer prove anything, the one in its place can.
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
        // Those that etcd knows stay, and then there is no place for any other.
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
