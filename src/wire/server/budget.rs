//! Limit of the memory that all connections together hold for slow peers.
//!
//! Each connection has a free share. What it holds beyond that is charged to a common budget, so that a thousand peers
//! which each stay within the limits of one cannot exhaust the memory of the master. When the budget is used up, the
//! connection that has moved no bytes for the longest time is closed: a peer that stopped in the middle, not one that
//! just connected.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Instant;
use tokio::sync::OwnedSemaphorePermit;

/// Permits of calls whose replies are charged for the first time.
pub(super) type Places = Vec<OwnedSemaphorePermit>;

/// A budget of bytes that all connections share.
#[derive(Debug)]
pub(super) struct Budget {
    /// Bytes that each connection may hold without being charged.
    free: usize,
    limit: usize,
    charged: Mutex<Charged>,
}

#[derive(Debug, Default)]
struct Charged {
    bytes: usize,
    last_id: u64,
    holders: HashMap<u64, Holder>,
    /// Permits held until the connection evicted for them has freed its memory.
    leaving: HashMap<u64, Places>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// When bytes last moved between this master and the peer.
    moved: Instant,
    waker: Waker,
}

impl Budget {
    /// Creates a budget of `limit` bytes, besides `free` bytes for each connection.
    pub(super) fn new(free: usize, limit: usize) -> Arc<Self> {
        Arc::new(Self { free, limit, charged: Mutex::default() })
    }
}

/// The charge of one connection; returned when it is dropped.
pub(super) struct Charge {
    budget: Arc<Budget>,
    /// Key in [`Charged::holders`]; `None` while nothing is charged.
    id: Option<u64>,
}

impl Charge {
    /// Starts without a charge, for a new connection.
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        Self { budget, id: None }
    }

    /// Charges a connection that holds `held` bytes; returns `false` if it has to be closed. `moved` means that bytes
    /// came from the peer or went to it, or that the connection does not wait for the peer. If this connection is
    /// evicted later, its task is woken. If other connections are evicted for it, they take over `places`.
    #[inline]
    pub(super) fn charge(&mut self, held: usize, moved: bool, places: &mut Places, cx: &Context<'_>) -> bool {
        if held <= self.budget.free && self.id.is_none() {
            return true;
        }
        self.recharge(held.saturating_sub(self.budget.free), moved, places, cx)
    }

    #[cold]
    fn recharge(&mut self, bytes: usize, moved: bool, places: &mut Places, cx: &Context<'_>) -> bool {
        let mut charged = self.budget.charged.lock();
        let charged = &mut *charged;
        let id = match self.id {
            // This connection was evicted for another one.
            Some(id) if !charged.holders.contains_key(&id) => return false,
            Some(id) => id,
            None => {
                charged.last_id += 1;
                charged.last_id
            }
        };
        if bytes == 0 {
            charged.remove(id);
            self.id = None;
            return true;
        }
        self.id = Some(id);
        let now = Instant::now();
        let holder = charged.holders.entry(id).or_insert_with(|| Holder {
            bytes: 0,
            moved: now,
            waker: cx.waker().clone(),
        });
        if moved {
            holder.moved = now;
        }
        holder.waker.clone_from(cx.waker());
        charged.bytes = charged.bytes - holder.bytes + bytes;
        holder.bytes = bytes;
        // A single holder may stay: a healthy client may request one reply larger than the budget.
        while charged.bytes > self.budget.limit && charged.holders.len() > 1 {
            let Some(slowest) = charged.slowest() else { break };
            if let Some(holder) = charged.remove(slowest) {
                holder.waker.wake();
            }
            if slowest == id {
                return false;
            }
            if !places.is_empty() {
                charged.leaving.insert(slowest, std::mem::take(places));
            }
        }
        true
    }
}

impl Charged {
    /// Returns the holder that has moved no bytes for the longest time.
    fn slowest(&self) -> Option<u64> {
        self.holders.iter().min_by_key(|(_, holder)| holder.moved).map(|(id, _)| *id)
    }

    fn remove(&mut self, id: u64) -> Option<Holder> {
        let holder = self.holders.remove(&id)?;
        self.bytes -= holder.bytes;
        Some(holder)
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            let mut charged = self.budget.charged.lock();
            charged.remove(id);
            charged.leaving.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Budget, Charge};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Wake, Waker};
    use tokio::sync::Semaphore;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn only_what_is_beyond_the_free_share_is_charged_and_all_of_it_comes_back() {
        let (budget, cx) = (Budget::new(100, 1000), Context::from_waker(Waker::noop()));
        let mut first = Charge::new(budget.clone());
        let mut second = Charge::new(budget.clone());
        assert!(first.charge(100, true, &mut Vec::new(), &cx));
        assert_eq!(budget.charged.lock().bytes, 0);
        assert!(first.charge(100 + 600, true, &mut Vec::new(), &cx));
        assert!(second.charge(100 + 400, true, &mut Vec::new(), &cx));
        assert_eq!(budget.charged.lock().bytes, 1000);
        drop(second);
        assert!(first.charge(100 + 2000, true, &mut Vec::new(), &cx), "nobody else is charged");
        assert!(first.charge(10, false, &mut Vec::new(), &cx));
        let charged = budget.charged.lock();
        assert_eq!((charged.bytes, charged.holders.len()), (0, 0));
    }

    #[test]
    fn who_moves_nothing_goes_and_who_comes_stays() {
        let budget = Budget::new(100, 1000);
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(woken.clone());
        let (stuck_cx, cx) = (Context::from_waker(&waker), Context::from_waker(Waker::noop()));
        let mut stuck = Charge::new(budget.clone());
        let mut moving = Charge::new(budget.clone());
        let mut new = Charge::new(budget.clone());
        assert!(stuck.charge(100 + 500, true, &mut Vec::new(), &stuck_cx));
        assert!(moving.charge(100 + 500, true, &mut Vec::new(), &cx));
        assert!(stuck.charge(100 + 500, false, &mut Vec::new(), &stuck_cx));
        assert!(moving.charge(100 + 500, true, &mut Vec::new(), &cx));
        assert!(new.charge(100 + 300, true, &mut Vec::new(), &cx));
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(!stuck.charge(100 + 500, true, &mut Vec::new(), &stuck_cx), "it is told when it wakes");
        assert!(moving.charge(100 + 500, false, &mut Vec::new(), &cx));
        drop((stuck, moving, new));
        assert_eq!(budget.charged.lock().bytes, 0);
    }

    #[test]
    fn whoever_grows_beyond_the_budget_without_moving_goes_itself() {
        let (budget, cx) = (Budget::new(0, 1000), Context::from_waker(Waker::noop()));
        let mut stuck = Charge::new(budget.clone());
        let mut other = Charge::new(budget.clone());
        assert!(stuck.charge(500, true, &mut Vec::new(), &cx));
        assert!(other.charge(500, true, &mut Vec::new(), &cx));
        assert!(!stuck.charge(501, false, &mut Vec::new(), &cx));
        assert!(other.charge(1000, false, &mut Vec::new(), &cx));
    }

    #[test]
    fn a_place_comes_back_when_the_one_is_gone_that_had_to_make_room() {
        let (budget, cx) = (Budget::new(0, 1000), Context::from_waker(Waker::noop()));
        let places = Arc::new(Semaphore::new(1));
        let mut stuck = Charge::new(budget.clone());
        let mut new = Charge::new(budget.clone());
        assert!(stuck.charge(800, true, &mut Vec::new(), &cx));
        let mut place = vec![Arc::clone(&places).try_acquire_owned().unwrap()];
        assert!(new.charge(800, true, &mut place, &cx));
        assert_eq!((place.len(), places.available_permits()), (0, 0));
        assert!(!stuck.charge(800, false, &mut Vec::new(), &cx));
        drop(stuck);
        assert_eq!(places.available_permits(), 1);
    }
}
