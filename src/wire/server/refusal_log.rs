//! The log line about a request whose arguments cannot be decoded.

use crate::wire::client_version::Refusal;
use crate::wire::functions::Function;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// Rate limit of one line a second for each reason, so that a peer which sends garbage cannot fill the disk. Each
/// reason has its own limit, because garbage from one peer must not hide that another is of the wrong generation.
#[derive(Default)]
struct Lines {
    generation: AtomicU64,
    code: AtomicU64,
    malformed: AtomicU64,
}

impl Lines {
    /// Returns whether a line may be written in this second after the epoch.
    fn allow(&self, reason: Refusal, second: u64) -> bool {
        let last = match reason {
            Refusal::OtherGeneration(_) => &self.generation,
            Refusal::UnknownCode(_) => &self.code,
            Refusal::Malformed => &self.malformed,
        };
        last.swap(second, Ordering::Relaxed) != second
    }
}

/// Logs why a request was refused.
#[cold]
pub(super) fn report(function: Function, reason: Refusal, peer: impl FnOnce() -> io::Result<SocketAddr>) {
    static LINES: Lines =
        Lines { generation: AtomicU64::new(0), code: AtomicU64::new(0), malformed: AtomicU64::new(0) };
    let second = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    if LINES.allow(reason, second) {
        let peer = peer().map_or_else(|_| "gone".to_owned(), |peer| peer.to_string());
        let function = function.name();
        tracing::warn!(peer, function, %reason, "refused a request whose arguments cannot be read");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonsense_does_not_hide_the_wrong_generation() {
        let lines = Lines::default();
        assert!(lines.allow(Refusal::Malformed, 7));
        assert!(!lines.allow(Refusal::Malformed, 7));
        assert!(lines.allow(Refusal::UnknownCode(1), 7));
        assert!(lines.allow(Refusal::OtherGeneration("0.3.12"), 7));
        assert!(!lines.allow(Refusal::OtherGeneration("0.3.12"), 7));
        assert!(lines.allow(Refusal::OtherGeneration("0.3.12"), 8));
    }
}
