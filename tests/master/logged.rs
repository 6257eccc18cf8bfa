//! What a test's servers log, for tests that look at it.

use std::cell::RefCell;
use std::sync::Once;

thread_local! {
    /// Each test has a thread of its own, and its server runs there, too.
    static LOGGED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

struct Log;

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOGGED.with_borrow_mut(|logged| logged.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Collects what is logged from now on. To be called before a test's first server starts. There is one subscriber for the
/// whole process: with one for each test, tracing may cache from a thread without a subscriber that an event interests
/// none, and then drops it everywhere.
pub fn collect() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).finish();
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
}

/// Takes the lines with `part` in them that were logged on this thread since the last time.
pub fn take(part: &str) -> Vec<String> {
    let text = String::from_utf8(LOGGED.take()).unwrap();
    text.lines().filter(|line| line.contains(part)).map(str::to_owned).collect()
}
