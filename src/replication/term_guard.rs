//! Term guards: every reader that is promised something and every change of a master's state holds one. A master that
//! stops serving closes them, which also cancels long work, and waits until the last one is dropped.
//!
//! The count is absolute. It is never compared with what it was at some earlier time, and it spans all openings of the
//! port on one state: work that outlived one closing is still counted at the next.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Issues the guards of one state, and counts them.
#[derive(Clone, Debug, Default)]
pub struct TermGuards {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    drained: Notify,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// Becomes true when the present opening ends; `None` while the guards are closed.
    cancel: Option<Arc<AtomicBool>>,
}

impl State {
    fn is_drained(&self) -> bool {
        planted!(QuietLie => return self.cancel.is_none());
        self.cancel.is_none() && self.held == 0
    }
}

impl TermGuards {
    /// Returns guards that are open.
    #[must_use]
    pub fn opened() -> Self {
        let guards = Self::default();
        guards.open();
        guards
    }

    /// Lets guards be taken from here on. Guards of an earlier opening stay cancelled, and stay counted.
    pub fn open(&self) {
        self.shared.state.lock().cancel.get_or_insert_default();
    }

    /// Lets no guard be taken from here on, and cancels the work of those that are held.
    pub fn close(&self) {
        let cancel = self.shared.state.lock().cancel.take();
        if let Some(cancel) = cancel {
            cancel.store(true, Ordering::Release);
        }
        // If no guard is held, no drop will wake the waiting tasks.
        self.shared.drained.notify_waiters();
    }

    /// Returns a guard, or `None` if they are closed.
    #[must_use]
    pub fn guard(&self) -> Option<TermGuard> {
        let mut state = self.shared.state.lock();
        let cancelled = Arc::clone(state.cancel.as_ref()?);
        state.held += 1;
        drop(state);
        Some(TermGuard { shared: Arc::clone(&self.shared), cancelled })
    }

    /// Returns whether the guards are closed and none is held: then only the node reads and changes the state.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.shared.state.lock().is_drained()
    }

    /// Waits until [`Self::is_drained`], but no longer than `patience`. Returns whether it is.
    pub async fn drained(&self, patience: Duration) -> bool {
        let wait = async {
            loop {
                let gone = self.shared.drained.notified();
                tokio::pin!(gone);
                // Registered before the check, so that a drop in between is not missed.
                gone.as_mut().enable();
                if self.is_drained() {
                    return;
                }
                gone.await;
            }
        };
        tokio::time::timeout(patience, wait).await.is_ok()
    }
}

/// The right to read and change the state of a term. Held for as long as that takes.
#[derive(Debug)]
pub struct TermGuard {
    shared: Arc<Shared>,
    cancelled: Arc<AtomicBool>,
}

impl TermGuard {
    /// Returns whether long work has to stop, because its answer will never be sent. Checked between chunks.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Acquire)
    }
}

impl Drop for TermGuard {
    fn drop(&mut self) {
        let drained = {
            let mut state = self.shared.state.lock();
            state.held -= 1;
            state.is_drained()
        };
        if drained {
            self.shared.drained.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn guards_are_taken_only_while_open() {
        let guards = TermGuards::default();
        assert!(guards.guard().is_none() && guards.is_drained());
        guards.open();
        assert!(!guards.is_drained(), "guards may be taken at any time");
        let guard = guards.guard().unwrap();
        assert!(!guard.is_cancelled());
        guards.close();
        assert!(guard.is_cancelled() && guards.guard().is_none() && !guards.is_drained());
        drop(guard);
        assert!(guards.is_drained());
    }

    #[test]
    fn what_outlived_one_closing_is_counted_at_the_next() {
        let guards = TermGuards::opened();
        let straggler = guards.guard().unwrap();
        guards.close();
        guards.open();
        assert!(straggler.is_cancelled(), "a new opening does not revive cancelled work");
        let fresh = guards.guard().unwrap();
        assert!(!fresh.is_cancelled());
        drop(fresh);
        guards.close();
        assert!(!guards.is_drained());
        drop(straggler);
        assert!(guards.is_drained());
    }

    #[tokio::test]
    async fn the_wait_ends_with_the_last_guard_or_in_time() {
        let guards = TermGuards::opened();
        let (one, other) = (guards.guard().unwrap(), guards.guard().unwrap());
        assert!(!guards.drained(SHORT).await, "open guards are never drained");
        guards.close();
        assert!(!guards.drained(SHORT).await);
        drop(one);
        let waiting = tokio::spawn({
            let guards = guards.clone();
            async move { guards.drained(LONG).await }
        });
        tokio::task::yield_now().await;
        drop(other);
        assert!(waiting.await.unwrap());
        assert!(guards.drained(Duration::ZERO).await);
    }
}
