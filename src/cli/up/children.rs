//! The masters as child processes: started, watched, restarted when they die, stopped in order.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::plan::{Common, MasterPlan};
use crate::cli::die_with_parent;

/// Delay before a master is restarted. The standbys know that a process is dead when its port refuses connections; a
/// new process on the port at once would make them wait for the lease to run out.
const PAUSE: Duration = Duration::from_secs(1);

/// A master that ends by itself within this time counts as unable to start.
const QUICK: Duration = Duration::from_secs(3);

/// Give up after this many failed starts in a row.
const TOO_MANY: u32 = 3;

/// Time for a master to stop by itself.
const STOPPING: Duration = Duration::from_secs(10);

/// Lines of a log that are shown when its master cannot start.
const LAST_LINES: usize = 8;

/// Exit of a child process.
#[derive(Debug)]
pub(super) struct Exit {
    at: usize,
    status: io::Result<ExitStatus>,
}

/// What happens to a master that ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It will be restarted; the text reports that.
    Again(String),
    /// It cannot start; the text contains the reason.
    Hopeless(String),
}

#[derive(Debug)]
struct Child {
    plan: MasterPlan,
    pid: Option<u32>,
    started: Instant,
    restart: Option<Instant>,
    quick_deaths: u32,
}

/// The masters as child processes, with their restarts.
#[derive(Debug)]
pub(super) struct Children {
    program: PathBuf,
    common: Common,
    children: Vec<Child>,
    exits: mpsc::Receiver<Exit>,
    ended: mpsc::Sender<Exit>,
}

impl Children {
    /// Creates the children without starting them.
    pub(super) fn new(program: PathBuf, common: Common, plans: Vec<MasterPlan>) -> Self {
        let (ended, exits) = mpsc::channel(64);
        let now = Instant::now();
        let child = |plan| Child { plan, pid: None, started: now, restart: Some(now), quick_deaths: 0 };
        Self { program, common, children: plans.into_iter().map(child).collect(), exits, ended }
    }

    /// Returns the plan of each master, with the pid if it runs.
    pub(super) fn running(&self) -> impl Iterator<Item = (&MasterPlan, Option<u32>)> {
        self.children.iter().map(|child| (&child.plan, child.pid))
    }

    /// Starts the masters that are due. Must be called from the first thread of this process: the kernel takes the end
    /// of the thread that started a child for the end of its parent.
    pub(super) fn start_due(&mut self) -> io::Result<()> {
        let now = Instant::now();
        for at in 0..self.children.len() {
            if self.children[at].restart.is_some_and(|due| due <= now) {
                self.start(at)?;
            }
        }
        Ok(())
    }

    /// Returns when the next master is due.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.children.iter().filter_map(|child| child.restart).min()
    }

    fn start(&mut self, at: usize) -> io::Result<()> {
        let plan = &self.children[at].plan;
        let failed = |path: &Path, why: io::Error| {
            io::Error::new(why.kind(), format!("cannot use {}: {why}", path.display()))
        };
        let log = OpenOptions::new().create(true).append(true).open(&plan.log);
        let log = log.map_err(|why| failed(&plan.log, why))?;
        let mut process = Command::new(&self.program)
            .args(plan.arguments(&self.common))
            .env(die_with_parent::VARIABLE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            // A terminal's ctrl-c must reach this process only, which decides the order in which masters stop.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|why| failed(&self.program, why))?;
        let child = &mut self.children[at];
        child.pid = process.id();
        child.started = Instant::now();
        child.restart = None;
        let ended = self.ended.clone();
        tokio::spawn(async move {
            let status = process.wait().await;
            // The receiver is gone when everything stops.
            let _ = ended.send(Exit { at, status }).await;
        });
        Ok(())
    }

    /// Waits for the next process that ends.
    pub(super) async fn next_exit(&mut self) -> Option<Exit> {
        self.exits.recv().await
    }

    /// Decides what happens to a master that ended without being asked to.
    pub(super) fn bury(&mut self, exit: &Exit) -> Fate {
        let child = &mut self.children[exit.at];
        let pid = child.pid.take().unwrap_or_default();
        // A master that was killed could have gone on; one that ends by itself so soon will do so again.
        let by_itself = !exit.status.as_ref().is_ok_and(|status| status.signal().is_some());
        let quick = by_itself && child.started.elapsed() < QUICK;
        child.quick_deaths = if quick { child.quick_deaths + 1 } else { 0 };
        let what = format!("{} (pid {pid}) {}", child.plan.name, describe(&exit.status));
        if child.quick_deaths >= TOO_MANY {
            return Fate::Hopeless(format!(
                "{what} and does not start; the end of its log:\n{}",
                tail(&child.plan.log)
            ));
        }
        let pause = PAUSE.saturating_mul(1 << child.quick_deaths);
        child.restart = Some(Instant::now() + pause);
        Fate::Again(format!("{what}; restarting it in {} s", pause.as_secs()))
    }

    /// Stops all masters, the one called `last` only after the others, so that no standby takes over meanwhile. Masters
    /// that do not stop in time, and all that are left when `hurry` resolves, are killed.
    pub(super) async fn stop(&mut self, last: Option<&str>, hurry: impl Future<Output = ()>) {
        tokio::select! {
            () = self.stop_in_order(last) => {}
            () = hurry => {}
        }
        self.signal(Signal::KILL, |_| true);
        self.wait_for(Instant::now() + STOPPING, |_| true).await;
    }

    async fn stop_in_order(&mut self, last: Option<&str>) {
        let is_last = |child: &Child| last == Some(child.plan.name.as_str());
        for turn in [false, true] {
            self.signal(Signal::TERM, |child| is_last(child) == turn);
            self.wait_for(Instant::now() + STOPPING, |child| is_last(child) == turn).await;
        }
    }

    fn signal(&self, signal: Signal, which: impl Fn(&Child) -> bool) {
        for child in self.children.iter().filter(|child| which(child)) {
            let pid = child.pid.and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
            if let Some(pid) = pid {
                // It may have ended by itself.
                let _ = kill_process(pid, signal);
            }
        }
    }

    async fn wait_for(&mut self, until: Instant, which: impl Fn(&Child) -> bool) {
        while self.children.iter().any(|child| which(child) && child.pid.is_some()) {
            match timeout_at(until, self.exits.recv()).await {
                Ok(Some(exit)) => self.children[exit.at].pid = None,
                _ => return,
            }
        }
    }
}

/// Describes how a process ended.
fn describe(status: &io::Result<ExitStatus>) -> String {
    match status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("ended with code {code}"),
            (None, Some(9)) => "was killed (SIGKILL)".to_owned(),
            (None, Some(signal)) => format!("was ended by signal {signal}"),
            (None, None) => "ended".to_owned(),
        },
        Err(why) => format!("cannot be waited for: {why}"),
    }
}

/// Returns the last lines of a log.
fn tail(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    let from = lines.len().saturating_sub(LAST_LINES);
    format!("  {}\n  (from {})", lines[from..].join("\n  "), path.display())
}

#[cfg(test)]
mod tests {
    use super::super::plan::Ports;
    use super::*;

    /// Creates masters that a script plays; it gets their arguments.
    fn children(name: &str, script: &str, count: usize) -> (Children, PathBuf) {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("moonkeeper-up-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let program = folder.join("program");
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).unwrap();
        let plan = |at: usize| MasterPlan {
            name: format!("m-{at}"),
            ports: Ports { rpc: 1, http: 2, admin: 3, peer: 4 },
            log: folder.join(format!("m-{at}.log")),
        };
        let common = Common {
            cluster_id: "demo".into(),
            endpoints: "127.0.0.1:1".into(),
            etcd: vec![],
            token_file: folder.join("token"),
            data_dir: None,
            snapshot_copies: 2,
            more: vec![],
        };
        (Children::new(program, common, (0..count).map(plan).collect()), folder)
    }

    async fn next_exit(children: &mut Children) -> Exit {
        tokio::time::timeout(Duration::from_secs(60), children.next_exit()).await.unwrap().unwrap()
    }

    #[tokio::test]
    async fn one_that_cannot_start_is_given_up_with_its_last_words() {
        let (mut children, folder) = children("hopeless", "echo no such flag; exit 3", 1);
        for death in 1..=TOO_MANY {
            children.children[0].restart = Some(Instant::now());
            children.start_due().unwrap();
            let exit = next_exit(&mut children).await;
            match children.bury(&exit) {
                Fate::Again(text) => {
                    assert!(death < TOO_MANY && text.contains("ended with code 3"), "{text}");
                    assert!(children.next_due().unwrap() > Instant::now());
                }
                Fate::Hopeless(text) => {
                    assert!(death == TOO_MANY && text.contains("no such flag"), "{text}");
                }
            }
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn one_that_is_killed_starts_again_later() {
        let (mut children, folder) = children("killed", "exec sleep 100", 2);
        children.start_due().unwrap();
        assert_eq!(children.next_due(), None);
        let first: Vec<u32> = children.running().filter_map(|(_, pid)| pid).collect();
        children.signal(Signal::KILL, |child| child.plan.name == "m-1");
        let exit = next_exit(&mut children).await;
        let Fate::Again(text) = children.bury(&exit) else { panic!() };
        assert!(text.starts_with(&format!("m-1 (pid {}) was killed", first[1])), "{text}");
        // The restart has to wait until the other masters can have noticed the end.
        children.start_due().unwrap();
        assert_eq!(children.running().filter(|(_, pid)| pid.is_some()).count(), 1);
        tokio::time::sleep_until(children.next_due().unwrap()).await;
        children.start_due().unwrap();
        let second: Vec<u32> = children.running().filter_map(|(_, pid)| pid).collect();
        assert_eq!((second[0], second.len()), (first[0], 2));
        children.stop(None, std::future::pending()).await;
        assert_eq!(children.running().filter(|(_, pid)| pid.is_some()).count(), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[tokio::test]
    async fn the_primary_stops_last_and_who_will_not_stop_is_killed() {
        // Each records when it was asked to stop; m-2 ignores that.
        let script = "for flag; do case $flag in --member_name=*) name=${flag#*=};; esac; done\n\
                      folder=$(dirname \"$0\")\n\
                      if [ \"$name\" = m-2 ]; then trap '' TERM; else\n\
                      trap 'echo $name >> \"$folder/order\"; exit 0' TERM; fi\n\
                      touch \"$folder/$name.ready\"\n\
                      while :; do sleep 0.01; done";
        let (mut children, folder) = children("order", script, 2);
        children.start_due().unwrap();
        let ready = |name: &str| folder.join(format!("{name}.ready")).exists();
        while !(ready("m-0") && ready("m-1")) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        children.stop(Some("m-0"), std::future::pending()).await;
        assert_eq!(std::fs::read_to_string(folder.join("order")).unwrap(), "m-1\nm-0\n");

        children.children[1].plan.name = "m-2".into();
        children.children[1].restart = Some(Instant::now());
        children.start_due().unwrap();
        while !ready("m-2") {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        children.stop(None, std::future::ready(())).await;
        assert_eq!(children.running().filter(|(_, pid)| pid.is_some()).count(), 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
