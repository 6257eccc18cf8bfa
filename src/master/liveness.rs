//! When clients were last heard from. This is what one master saw, not state: when a client has been silent for too
//! long, a record says so.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::engine::types::{LogTime, Uuid};

/// Clients that are remembered at the same time; who pings with ever new names gets an error, not our memory.
const MAX_CLIENTS: usize = 1 << 20;

/// When clients were last heard from.
#[derive(Debug, Default)]
pub struct Liveness {
    last_heard: Mutex<HashMap<Uuid, LogTime>>,
}

impl Liveness {
    /// A client was heard from. False if there are too many to remember another one.
    pub fn heard(&self, client: Uuid, now: LogTime) -> bool {
        let mut last_heard = self.last_heard.lock();
        if last_heard.len() >= MAX_CLIENTS && !last_heard.contains_key(&client) {
            return false;
        }
        last_heard.insert(client, now);
        true
    }

    /// Forgets the clients that were silent for longer than `ttl_ms`, and returns them.
    pub fn take_silent(&self, now: LogTime, ttl_ms: u64) -> Vec<Uuid> {
        let mut silent = Vec::new();
        self.last_heard.lock().retain(|client, heard| {
            let alive = heard.plus(ttl_ms) >= now;
            if !alive {
                silent.push(*client);
            }
            alive
        });
        silent
    }

    /// How many clients were heard from lately.
    #[must_use]
    pub fn len(&self) -> usize {
        self.last_heard.lock().len()
    }

    /// Whether no client was heard from lately.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_silent_are_taken_once() {
        let liveness = Liveness::default();
        let (a, b) = (Uuid { first: 1, second: 1 }, Uuid { first: 2, second: 2 });
        liveness.heard(a, LogTime(1000));
        liveness.heard(b, LogTime(9000));
        assert_eq!(liveness.take_silent(LogTime(11_000), 10_000), vec![]);
        assert_eq!(liveness.take_silent(LogTime(11_001), 10_000), vec![a]);
        assert_eq!(liveness.take_silent(LogTime(12_000), 10_000), vec![]);
        assert_eq!(liveness.len(), 1);
    }
}
