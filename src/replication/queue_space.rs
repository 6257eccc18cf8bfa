//! Space in the queue of records, in bytes. It is acquired before the sequencer is entered (R2), first come, first
//! served: a caller that finds none draws a ticket, and freed space goes to tickets in their order, so that a large
//! request is not overtaken for ever by small ones.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Bytes that callers reserved, and bytes of records that are queued or being written.
#[derive(Debug)]
pub struct QueueSpace {
    limit: usize,
    taken: AtomicUsize,
    /// Length of the line, so that it need not be locked while no caller waits.
    waiting: AtomicUsize,
    line: Mutex<VecDeque<Arc<Waiter>>>,
}

#[derive(Debug)]
struct Waiter {
    bytes: usize,
    granted: AtomicBool,
    woken: Notify,
}

/// Space for the records of one call or chunk. Released on drop, when the records are queued and count by their own
/// bytes.
#[derive(Debug)]
pub struct Permit<'s> {
    space: &'s QueueSpace,
    bytes: usize,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.space.release(self.bytes);
    }
}

impl Permit<'_> {
    /// Turns this permit into one that can be moved to another task.
    pub(super) fn into_owned(self, space: &Arc<QueueSpace>) -> OwnedPermit {
        debug_assert!(std::ptr::eq(self.space, &raw const **space), "a permit of another queue");
        let bytes = self.bytes;
        // The space is not released: the owned permit takes it over.
        std::mem::forget(self);
        OwnedPermit { space: Arc::clone(space), bytes }
    }
}

/// A permit that owns its share of the queue, for work on another task.
#[derive(Debug)]
pub struct OwnedPermit {
    space: Arc<QueueSpace>,
    bytes: usize,
}

impl Drop for OwnedPermit {
    fn drop(&mut self) {
        self.space.release(self.bytes);
    }
}

/// A position in the line of callers that wait for space.
#[derive(Debug)]
pub struct Ticket {
    space: Arc<QueueSpace>,
    waiter: Arc<Waiter>,
}

impl QueueSpace {
    /// Creates space of `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { limit, taken: AtomicUsize::new(0), waiting: AtomicUsize::new(0), line: Mutex::default() }
    }

    /// Returns the capacity in bytes. A caller that needs more gets it when all other space is free.
    #[must_use]
    pub fn limit(&self) -> usize {
        self.limit
    }

    /// Returns the bytes that are reserved, queued or being written.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Acquires space for so many bytes if there is any and no other caller waits.
    pub fn try_acquire(&self, bytes: usize) -> Option<Permit<'_>> {
        planted!(DropWhenFull => { self.add(bytes); return Some(Permit { space: self, bytes }); });
        let free = self.waiting.load(Ordering::SeqCst) == 0 && self.reserve(bytes);
        // Created only if there is space: dropping a permit releases it.
        free.then(|| Permit { space: self, bytes })
    }

    /// Joins the line and returns a ticket.
    #[must_use]
    pub fn wait(self: &Arc<Self>, bytes: usize) -> Ticket {
        let waiter = Arc::new(Waiter { bytes, granted: AtomicBool::new(false), woken: Notify::new() });
        {
            let mut line = self.line.lock();
            line.push_back(Arc::clone(&waiter));
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        // Space that was released before this ticket was in line was not offered to it.
        self.grant();
        Ticket { space: Arc::clone(self), waiter }
    }

    /// Counts the bytes of queued records: those of a call, which had a permit, or the node's own, which have none.
    pub(super) fn add(&self, bytes: usize) {
        self.taken.fetch_add(bytes, Ordering::AcqRel);
    }

    /// Releases space. Sequentially consistent with the line: either this sees a new ticket, or the caller who joined
    /// the line sees the space.
    pub(super) fn release(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::SeqCst);
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.grant();
        }
    }

    // An empty queue accepts even more than its capacity, else a large request would wait for ever.
    fn reserve(&self, bytes: usize) -> bool {
        let fits = |taken: usize| {
            (taken == 0 || taken.saturating_add(bytes) <= self.limit).then_some(taken.saturating_add(bytes))
        };
        self.taken.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok()
    }

    /// Grants free space to the first ticket in line, and to the next ones as far as it goes.
    fn grant(&self) {
        let mut line = self.line.lock();
        while line.front().is_some_and(|first| self.reserve(first.bytes)) {
            let Some(first) = line.pop_front() else { return };
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            first.granted.store(true, Ordering::Release);
            first.woken.notify_one();
        }
    }
}

impl Ticket {
    /// Returns whether the space of this ticket is reserved.
    #[must_use]
    pub fn is_granted(&self) -> bool {
        self.waiter.granted.load(Ordering::Acquire)
    }

    /// Exchanges a granted ticket for its permit; returns the ticket if it is not granted yet.
    pub fn redeem(self, space: &QueueSpace) -> Result<Permit<'_>, Self> {
        debug_assert!(std::ptr::eq(space, &raw const *self.space), "a ticket of another queue");
        // Cleared, so that dropping the ticket does not release the space that the permit now has.
        if !self.waiter.granted.swap(false, Ordering::AcqRel) {
            return Err(self);
        }
        Ok(Permit { space, bytes: self.waiter.bytes })
    }

    /// Resolves when the space is reserved. The future does not keep the ticket in line; if the ticket is dropped
    /// before it was granted, the future never resolves.
    pub fn granted(&self) -> impl Future<Output = ()> + Send + 'static {
        let waiter = Arc::clone(&self.waiter);
        async move {
            while !waiter.granted.load(Ordering::Acquire) {
                waiter.woken.notified().await;
            }
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let left = {
            let mut line = self.space.line.lock();
            let place = line.iter().position(|waiter| Arc::ptr_eq(waiter, &self.waiter));
            if let Some(place) = place {
                line.remove(place);
                self.space.waiting.fetch_sub(1, Ordering::SeqCst);
            }
            place.is_some()
        };
        if left {
            // Smaller requests behind this one may fit.
            self.space.grant();
        } else if self.waiter.granted.load(Ordering::Acquire) {
            self.space.release(self.waiter.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn space() -> Arc<QueueSpace> {
        Arc::new(QueueSpace::new(100))
    }

    #[test]
    fn a_large_request_is_not_overtaken() {
        let space = space();
        let first = space.try_acquire(60).unwrap();
        assert!(space.try_acquire(60).is_none());
        // More than the capacity: granted when all other space is free.
        let large = space.wait(400);
        let small = space.wait(10);
        assert!(space.try_acquire(10).is_none(), "it came later");
        assert!(!large.is_granted() && !small.is_granted());
        drop(first);
        assert!(large.is_granted() && !small.is_granted());
        let permit = large.redeem(&space).unwrap();
        assert_eq!(space.taken(), 400);
        drop(permit);
        assert!(small.is_granted());
        drop(small);
        assert_eq!(space.taken(), 0);
        assert!(space.try_acquire(100).is_some());
    }

    #[test]
    fn freed_space_goes_to_as_many_as_it_fits() {
        let space = space();
        let first = space.try_acquire(100).unwrap();
        let tickets: Vec<Ticket> = (0..5).map(|_| space.wait(30)).collect();
        drop(first);
        let granted: Vec<bool> = tickets.iter().map(Ticket::is_granted).collect();
        assert_eq!(granted, [true, true, true, false, false]);
        drop(tickets);
        assert_eq!((space.taken(), space.waiting.load(Ordering::Relaxed)), (0, 0));
    }

    #[test]
    fn a_ticket_that_is_given_up_holds_up_no_other() {
        let space = space();
        let first = space.try_acquire(90).unwrap();
        let large = space.wait(90);
        let small = space.wait(10);
        assert!(!small.is_granted());
        drop(large);
        assert!(small.is_granted());
        drop((first, small));
        assert_eq!(space.taken(), 0);
    }

    #[tokio::test]
    async fn a_waiting_caller_is_woken() {
        let space = space();
        let first = space.try_acquire(100).unwrap();
        let ticket = space.wait(50);
        let woken = tokio::spawn(ticket.granted());
        tokio::task::yield_now().await;
        drop(first);
        woken.await.unwrap();
        assert!(ticket.redeem(&space).is_ok());
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let space = space();
        std::thread::scope(|scope| {
            for thread in 0..4_usize {
                let space = &space;
                scope.spawn(move || {
                    for round in 0..2_000_usize {
                        let bytes = 1 + (thread * 31 + round * 17) % 150;
                        let Some(permit) = space.try_acquire(bytes) else {
                            let mut ticket = space.wait(bytes);
                            // Every ticket is granted at some time, or this loop never ends.
                            loop {
                                match ticket.redeem(space) {
                                    Ok(permit) => break drop(permit),
                                    Err(waiting) => ticket = waiting,
                                }
                                std::thread::yield_now();
                            }
                            continue;
                        };
                        drop(permit);
                    }
                });
            }
        });
        assert_eq!((space.taken(), space.waiting.load(Ordering::Relaxed)), (0, 0));
    }
}
