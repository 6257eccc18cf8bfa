//! Loopback ports for processes that listen on them later.

use std::net::TcpListener;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU16, Ordering};

/// Below the ports that the kernel gives to outgoing connections and to listeners that ask for any: those of other tests
/// could take one before the process listens.
const FIRST: u16 = 18_000;
const COUNT: u16 = 14_000;

/// A port that no process listens on, and that was not handed out before.
pub fn free_port() -> u16 {
    static START: OnceLock<u16> = OnceLock::new();
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let start = *START.get_or_init(|| (getrandom::u32().unwrap() % u32::from(COUNT)) as u16);
    let mut candidates =
        (0..COUNT).map(|_| FIRST + (start + NEXT.fetch_add(1, Ordering::Relaxed) % COUNT) % COUNT);
    candidates.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok()).unwrap()
}
