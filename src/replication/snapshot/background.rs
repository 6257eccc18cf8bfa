//! Work at a low priority, in a thread of its own: a thread cannot get its priority back.

use std::thread;

/// Niceness of the work. With both cores busy it gets a tenth of one: enough to come to an end.
const NICENESS: i32 = 10;

/// Does something at a low priority and waits for it. The work must not take a lock that other threads wait for: they
/// would wait for as long as the work waits for a processor.
pub(super) fn run<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    beside(|| (), work).1
}

/// Does something in this thread, and something else beside it at a low priority. Waits for both.
pub(super) fn beside<A, B: Send>(here: impl FnOnce() -> A, work: impl FnOnce() -> B + Send) -> (A, B) {
    thread::scope(|scope| {
        let work = scope.spawn(|| {
            // For Linux the calling process is the calling thread. If it is refused, the work is done as it is.
            let _ = rustix::process::setpriority_process(None, NICENESS);
            work()
        });
        let here = here();
        match work.join() {
            Ok(done) => (here, done),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    })
}
