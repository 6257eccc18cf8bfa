//! Runs parts of a test in processes of their own, so that their memory can be measured and each has its own limit
//! of open files.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

/// The variable that tells a process which part of the test it is.
const ROLE: &str = "MOONKEEPER_TEST_ROLE";
/// The variable that hands it an argument.
const ARGUMENT: &str = "MOONKEEPER_TEST_ARGUMENT";
/// Open files that such a process may have.
const FILES: u32 = 11_000;

/// Which part this process plays, and its argument; nothing in the test itself.
pub fn role() -> Option<(String, String)> {
    Some((std::env::var(ROLE).ok()?, std::env::var(ARGUMENT).unwrap_or_default()))
}

/// Says a line to the test that started this process.
pub fn say(line: &str) {
    let mut stdout = std::io::stdout();
    writeln!(stdout, "SAYS {line}").unwrap();
    stdout.flush().unwrap();
}

/// Waits until the test that started this process has had enough, or has died.
pub fn wait_for_end() {
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Another process that plays a part of the same test. It ends when this is dropped.
pub struct Part {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Part {
    /// Starts it.
    pub fn start(test: &str, role: &str, argument: &str) -> Self {
        let mut child = Command::new("sh")
            .args(["-c", &format!("ulimit -n {FILES} && exec \"$0\" \"$@\"")])
            .arg(std::env::current_exe().unwrap())
            .args([test, "--exact", "--nocapture", "--test-threads=1"])
            // As the program sets its allocator, for tests that measure with the same one.
            .env("_RJEM_MALLOC_CONF", "background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0")
            .env(ROLE, role)
            .env(ARGUMENT, argument)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// The next line that it says.
    pub fn listen(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "a part of the test ended early");
            // The test harness may have begun the line with the name of the test.
            if let Some((_, said)) = line.split_once("SAYS ") {
                return said.trim().to_owned();
            }
        }
    }

    /// Waits until it has ended, and returns the signal that ended it, if it was one.
    #[allow(dead_code, reason = "not every test ends a part")]
    pub fn ended_by(&mut self) -> Option<i32> {
        self.child.wait().unwrap().signal()
    }

    /// A field of its memory status, in bytes: `VmRSS` now, `VmHWM` at its highest.
    pub fn memory(&self, field: &str) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
        let kibibytes = line.trim_start_matches(':').trim().trim_end_matches("kB").trim();
        kibibytes.parse::<u64>().unwrap() * 1024
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
