//! `moonkeeper up`: several masters on this machine in one command, to try out what happens when one of them dies.
//!
//! The masters are processes of their own, so that one can be killed; the log is in an embedded store in this process,
//! or in an external etcd. When this process ends, for whatever reason, so do they.

mod banner;
mod children;
mod folder;
mod plan;
mod screen;
mod store;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use super::ask::{Question, TlsFiles, ask};
use super::etcd_options::EtcdOptions;
use crate::cluster::keys::Keys;
use crate::cluster::role::Role;
use crate::cluster::status::Status;
use crate::coordination::embedded::OpenError;
use crate::master::settings::ha::EndpointsError;
use children::{Children, Fate};
use folder::Folder;
use plan::{Common, MasterPlan, PortChooser, PortsError, is_free};
use screen::{MasterSeen, Screen};
use store::Embedded;

/// Time between two requests for the masters' status.
const LOOK: Duration = Duration::from_millis(250);

/// Timeout of a request for a status.
const STATUS_PATIENCE: Duration = Duration::from_secs(1);

/// How long the start-up text waits for a first primary.
const FIRST_PRIMARY: Duration = Duration::from_secs(20);

/// Starts several masters on this machine, to try them out
#[derive(Debug, Parser)]
#[command(name = "moonkeeper up", after_help = EXAMPLES)]
struct Arguments {
    /// How many masters
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u16).range(1..=9), value_name = "N")]
    masters: u16,
    #[command(flatten)]
    etcd: EtcdOptions,
    /// The cluster; clients have it in MC_STORE_CLUSTER_ID
    #[arg(
        long = "cluster_id",
        alias = "cluster-id",
        default_value = "mooncake_cluster",
        value_name = "NAME"
    )]
    cluster_id: String,
    /// Folder for the embedded store and the logs; with it, the next `up` goes on where this one ends
    #[arg(long = "data-dir", alias = "data_dir", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    /// Port of the embedded store; 0 for a free one [default: 2379, or a free one]
    #[arg(long = "etcd-port", alias = "etcd_port", value_name = "PORT")]
    etcd_port: Option<u16>,
    /// First port for Mooncake clients, the other masters have the next ones but 50052, the default of mooncake_client; 0 for
    /// free ones [default: 50051, or free ones]
    #[arg(long = "rpc-port-base", alias = "rpc_port_base", value_name = "PORT")]
    rpc_port_base: Option<u16>,
    /// First HTTP port, with admin and peer port behind it, the other masters ten later each; 0 for free ones
    /// [default: 9003, or free ones]
    #[arg(long = "http-port-base", alias = "http_port_base", value_name = "PORT")]
    http_port_base: Option<u16>,
    /// More flags for every master, behind --
    #[arg(last = true, value_name = "FLAGS")]
    more: Vec<String>,
}

const EXAMPLES: &str = "\
Examples:
  moonkeeper up                                       three masters, log in memory
  moonkeeper up --data-dir ./store                    the index is still there after a restart
  moonkeeper up --masters 2 --etcd-endpoints 127.0.0.1:2379
  moonkeeper up -- --default_kv_lease_ttl=5s          with a flag for every master

The embedded store is for trials: production needs a real etcd.";

/// Why the masters do not run.
#[derive(Debug, thiserror::Error)]
enum UpError {
    #[error("--etcd-endpoints: {0}")]
    Endpoints(#[from] EndpointsError),
    #[error("'{0}' is not a cluster id: 1 to 63 of a-z, 0-9, - and _")]
    ClusterId(String),
    #[error("{0} is for the embedded store, and --etcd-endpoints names another store")]
    Embedded(&'static str),
    #[error(transparent)]
    Ports(#[from] PortsError),
    #[error(transparent)]
    Store(#[from] OpenError),
    #[error("{0}")]
    System(String),
    #[error("{0}")]
    Hopeless(String),
}

impl From<io::Error> for UpError {
    fn from(why: io::Error) -> Self {
        Self::System(why.to_string())
    }
}

/// Starts a cluster on this machine, and supervises it until a signal comes.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let arguments = match super::parse::<Arguments>("moonkeeper up", args) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    // This future starts the children, so their parent thread is the first one, which is the last to end.
    match runtime.map_err(UpError::from).and_then(|runtime| runtime.block_on(run(arguments))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("moonkeeper up: {why}");
            ExitCode::from(match why {
                UpError::Endpoints(_) | UpError::ClusterId(_) | UpError::Embedded(_) => super::USAGE,
                _ => 1,
            })
        }
    }
}

/// Starts everything, supervises it, and stops it.
async fn run(arguments: Arguments) -> Result<(), UpError> {
    if !Keys::is_cluster_id(&arguments.cluster_id) {
        return Err(UpError::ClusterId(arguments.cluster_id));
    }
    let mut ends = Ends::listen()?;
    let etcd = arguments.etcd.access()?;
    if etcd.is_some() && arguments.etcd_port.is_some() {
        return Err(UpError::Embedded("--etcd-port"));
    }
    let mut ports = PortChooser::new(is_free, std::process::id());
    let embedded_port = ports.one("etcd-port", arguments.etcd_port, 2379)?;
    let masters = ports.masters(arguments.masters, arguments.rpc_port_base, arguments.http_port_base)?;

    let folder = Folder::open(arguments.data_dir.as_deref())?;
    let (mut embedded, endpoints, store) = match &etcd {
        Some(access) => (None, access.endpoints.join(";"), "etcd".to_owned()),
        None => {
            let (embedded, store) = start_store(arguments.data_dir.as_deref(), embedded_port).await?;
            (Some(embedded), format!("127.0.0.1:{embedded_port}"), store)
        }
    };
    let common = Common {
        cluster_id: arguments.cluster_id.clone(),
        endpoints: endpoints.clone(),
        etcd: arguments.etcd.more_flags(),
        token_file: folder.token()?,
        data_dir: arguments.data_dir.clone(),
        snapshot_copies: masters.len().min(2),
        more: arguments.more.clone(),
    };
    let plans: Vec<MasterPlan> = masters
        .into_iter()
        .enumerate()
        .map(|(at, ports)| {
            let name = format!("m-{at}");
            MasterPlan { log: folder.log(&name), name, ports }
        })
        .collect();
    let sights = look_at(plans.clone());
    let mut up = Up {
        children: Children::new(std::env::current_exe()?, common.clone(), plans),
        screen: Screen::new(io::stdout().is_terminal()),
        seen: Vec::new(),
        about: About { common, store, endpoints, begun: Instant::now(), told: false },
    };
    let result = up.watch(sights, embedded.as_mut(), &mut ends).await;
    up.screen.clear();
    up.screen.say("stopping");
    let primary = up.primary();
    up.children.stop(primary.as_deref(), ends.next()).await;
    if let Some(embedded) = embedded {
        embedded.stop().await;
    }
    match result {
        Ok(()) => folder.close(),
        // The folder is kept after an error: its logs say more.
        Err(_) => drop(folder),
    }
    result
}

/// Starts the embedded store. Returns it with its description for the screen.
async fn start_store(data_dir: Option<&Path>, port: u16) -> Result<(Embedded, String), UpError> {
    let kept = data_dir.map(|data| data.join("coordination"));
    let store = match &kept {
        Some(path) => format!("the embedded store ({})", path.display()),
        None => "the embedded store (in memory, lost with this process)".to_owned(),
    };
    Ok((Embedded::start(kept.as_deref(), port).await?, store))
}

/// Signals that stop everything: SIGTERM and SIGINT.
struct Ends {
    terminate: Signal,
    interrupt: Signal,
}

impl Ends {
    fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Values for the start-up text.
struct About {
    common: Common,
    store: String,
    endpoints: String,
    begun: Instant,
    told: bool,
}

struct Up {
    children: Children,
    screen: Screen,
    seen: Vec<MasterSeen>,
    about: About,
}

impl Up {
    /// Supervises the masters until the user stops them, or until a master cannot start or the embedded store ends.
    async fn watch(
        &mut self,
        mut sights: watch::Receiver<Vec<Option<Status>>>,
        mut embedded: Option<&mut Embedded>,
        ends: &mut Ends,
    ) -> Result<(), UpError> {
        loop {
            self.children.start_due()?;
            let due = self.children.next_due();
            let start = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            let store_ends = async {
                match &mut embedded {
                    Some(store) => store.ended().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = ends.next() => return Ok(()),
                why = store_ends => return Err(why),
                () = start => {}
                Some(exit) = self.children.next_exit() => match self.children.bury(&exit) {
                    Fate::Again(text) => self.screen.say(&text),
                    Fate::Hopeless(text) => return Err(UpError::Hopeless(text)),
                },
                Ok(()) = sights.changed() => {
                    let statuses = sights.borrow_and_update().clone();
                    self.look(statuses);
                }
            }
        }
    }

    /// Shows the status of the masters, and the changes since the last one.
    fn look(&mut self, statuses: Vec<Option<Status>>) {
        let now: Vec<MasterSeen> = self
            .children
            .running()
            .zip(statuses)
            .map(|((plan, pid), status)| MasterSeen { name: plan.name.clone(), pid, status })
            .collect();
        for line in screen::changes(&self.seen, &now) {
            self.screen.say(&line);
        }
        // A master that misses one request has not changed its role, so its last status is kept for comparison.
        let remembered = now.iter().map(|fresh| {
            let old = self.seen.iter().find(|old| old.name == fresh.name).and_then(|old| old.status.clone());
            MasterSeen { status: fresh.status.clone().or(old), ..fresh.clone() }
        });
        self.seen = remembered.collect();
        let primary =
            now.iter().filter_map(|fresh| fresh.status.as_ref()).find(|it| it.role == Role::Primary);
        if !self.about.told && (primary.is_some() || self.about.begun.elapsed() > FIRST_PRIMARY) {
            self.about.told = true;
            let masters: Vec<(MasterPlan, Option<u32>)> =
                self.children.running().map(|(plan, pid)| (plan.clone(), pid)).collect();
            let text = banner::started(&banner::Started {
                cluster_id: &self.about.common.cluster_id,
                endpoints: &self.about.endpoints.replace("http://", ""),
                store: self.about.store.clone(),
                masters: &masters,
                primary: primary.map(|status| status.name.as_str()),
                token_file: &self.about.common.token_file,
            });
            self.screen.say(&format!("\n{text}"));
        }
        self.screen.show(&screen::line(&now));
    }

    /// Returns the name of the primary, as far as it was seen.
    fn primary(&self) -> Option<String> {
        let statuses = self.seen.iter().filter_map(|fresh| fresh.status.as_ref());
        let primaries = statuses.filter(|status| status.role == Role::Primary);
        primaries.max_by_key(|status| status.term).map(|status| status.name.clone())
    }
}

/// Requests the status of all masters periodically, in a task of its own.
fn look_at(plans: Vec<MasterPlan>) -> watch::Receiver<Vec<Option<Status>>> {
    let (sender, receiver) = watch::channel(vec![None; plans.len()]);
    tokio::spawn(async move {
        loop {
            let asking = plans.iter().map(|plan| tokio::spawn(status_of(plan.http_address())));
            let asking: Vec<_> = asking.collect();
            let mut statuses = Vec::new();
            for asked in asking {
                statuses.push(asked.await.unwrap_or_default());
            }
            if sender.send(statuses).is_err() {
                return;
            }
            tokio::time::sleep(LOOK).await;
        }
    });
    receiver
}

async fn status_of(address: String) -> Option<Status> {
    let question = Question::get(&address, "/api/v1/status", STATUS_PATIENCE);
    let (_, body) = ask(&question, &TlsFiles::default()).await.ok()?;
    serde_json::from_slice(&body).ok()
}
