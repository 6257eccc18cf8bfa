//! Real etcd processes, which end with the test.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use moonkeeper::coordination::etcd::{Etcd, EtcdSettings};
use moonkeeper::coordination::types::{Get, KeyRange, Request};
use rustix::process::{Pid, Signal, kill_process};

use crate::ports::free_port;

/// Longer than anything takes; only a test that fails waits so long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// The real etcd that a variable names.
pub fn binary(variable: &str) -> PathBuf {
    let path = std::env::var_os(variable);
    path.unwrap_or_else(|| panic!("{variable} is not set; run: eval \"$(scripts/env)\"")).into()
}

/// A folder that is gone when it is dropped.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        let mut random = [0_u8; 8];
        getrandom::fill(&mut random).unwrap();
        let path = std::env::temp_dir().join(format!("moonkeeper-test-{:016x}", u64::from_le_bytes(random)));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A member of an etcd cluster.
pub struct EtcdProcess {
    binary: PathBuf,
    arguments: Vec<String>,
    child: Child,
    _folder: Folder,
    client_url: String,
}

impl EtcdProcess {
    /// A lone member that can be asked.
    pub async fn start(binary: PathBuf) -> Self {
        Self::start_with(binary, &[]).await
    }

    /// The same with further arguments.
    pub async fn start_with(binary: PathBuf, arguments: &[&str]) -> Self {
        // Another process may take the free ports first; then etcd ends at once, and gets others.
        for _ in 0..5 {
            let peer = format!("http://127.0.0.1:{}", free_port());
            let cluster = format!("lone={peer}");
            let mut process = Self::spawn(binary.clone(), "lone", &peer, &cluster, arguments);
            if process.can_be_asked().await {
                return process;
            }
        }
        panic!("etcd does not start")
    }

    /// Three members that can be asked.
    pub async fn start_three(binary: &Path) -> Vec<Self> {
        for _ in 0..5 {
            let peers: Vec<String> = (0..3).map(|_| format!("http://127.0.0.1:{}", free_port())).collect();
            let named: Vec<String> =
                peers.iter().enumerate().map(|(index, peer)| format!("m{index}={peer}")).collect();
            let cluster = named.join(",");
            let mut members: Vec<Self> = peers
                .iter()
                .enumerate()
                .map(|(index, peer)| {
                    Self::spawn(binary.to_owned(), &format!("m{index}"), peer, &cluster, &[])
                })
                .collect();
            let mut all = true;
            for member in &mut members {
                all &= member.can_be_asked().await;
            }
            if all {
                return members;
            }
        }
        panic!("three etcd members do not start")
    }

    fn spawn(binary: PathBuf, name: &str, peer: &str, cluster: &str, arguments: &[&str]) -> Self {
        let folder = Folder::new();
        let secure = arguments.iter().any(|argument| argument.starts_with("--cert-file"));
        let scheme = if secure { "https" } else { "http" };
        let client_url = format!("{scheme}://127.0.0.1:{}", free_port());
        let mut all = vec![
            format!("--name={name}"),
            format!("--data-dir={}", folder.path().join("data").display()),
            format!("--listen-client-urls={client_url}"),
            format!("--advertise-client-urls={client_url}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster={cluster}"),
        ];
        all.extend(arguments.iter().map(|&argument| argument.to_owned()));
        let child = run(&binary, &all);
        Self { binary, arguments: all, child, _folder: folder, client_url }
    }

    pub fn url(&self) -> &str {
        &self.client_url
    }

    pub fn client(&self) -> Etcd {
        Etcd::connect(EtcdSettings::new([self.url()])).unwrap()
    }

    /// Whether it answers; no longer waited for when the process has ended. One with certificates only has to live.
    async fn can_be_asked(&mut self) -> bool {
        let deadline = Instant::now() + PATIENCE;
        let probe = Request::Get(Get::all(KeyRange::key("probe")));
        while Instant::now() < deadline {
            if self.child.try_wait().unwrap().is_some() {
                return false;
            }
            let address = self.client_url.split("://").nth(1).unwrap().to_owned();
            let ready = if self.client_url.starts_with("https") {
                tokio::net::TcpStream::connect(address).await.is_ok()
            } else {
                self.client().call(probe.clone(), Duration::from_secs(1)).await.is_ok()
            };
            if ready {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).unwrap();
        if signal == Signal::STOP {
            self.wait_until_stopped();
        }
    }

    /// One of its threads has to take the signal before the others stop, and on a busy machine they answer meanwhile.
    fn wait_until_stopped(&self) {
        let deadline = Instant::now() + PATIENCE;
        let tasks = format!("/proc/{}/task", self.child.id());
        let stopped = || {
            std::fs::read_dir(&tasks).unwrap().flatten().all(|task| {
                let stat = std::fs::read_to_string(task.path().join("stat")).unwrap_or_default();
                // The state follows the name, which is in brackets; a thread that has just ended has none.
                stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
            })
        };
        while !stopped() {
            assert!(Instant::now() < deadline, "etcd does not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    pub fn kill(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }

    /// Starts again, on the same folder and ports, after it was killed.
    pub fn spawn_again(&mut self) {
        self.child = run(&self.binary, &self.arguments);
    }

    /// The same, and waits until it can be asked.
    pub async fn restart(&mut self) {
        self.spawn_again();
        assert!(self.can_be_asked().await, "etcd does not start again");
    }
}

impl Drop for EtcdProcess {
    fn drop(&mut self) {
        self.kill();
    }
}

fn run(binary: &Path, arguments: &[String]) -> Child {
    let mut command = Command::new(binary);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", binary.display()))
}
