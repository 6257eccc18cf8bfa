//! Serving Mooncake clients: the open port, the handlers behind it, and the upkeep. It begins when a master becomes
//! primary and ends when it no longer is, or lasts as long as the process if there is but one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::master::clock::Clock;
use crate::master::files;
use crate::master::handlers::{Handlers, Told};
use crate::master::liveness::Liveness;
use crate::master::metrics::Metrics;
use crate::master::service::{MasterService, Replication};
use crate::master::settings::Settings;
use crate::master::upkeep::Upkeep;
use crate::wire::server::{self, BindError, Server};

/// How long somebody may go on who had begun before the port was closed.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// What serving takes, whatever the term.
#[derive(Clone, Debug)]
pub struct Service {
    /// Where to listen.
    pub address: SocketAddr,
    /// How.
    pub server: server::Settings,
    /// What clients are told.
    pub told: Told,
    /// How long a client may be silent, in milliseconds.
    pub client_ttl: u64,
    /// How long a client of the primary before has to be heard from, in milliseconds.
    pub inherited_client_ttl: u64,
    /// Whether what a silent client told the metadata server goes with it.
    pub forget_metadata: bool,
    /// How often promises to readers are written down.
    pub lease_sync: Duration,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// Clients being served.
#[derive(Debug)]
pub struct Serving {
    stop: watch::Sender<bool>,
    tasks: JoinSet<Option<TcpListener>>,
    engine: Arc<Engine>,
    /// How many others hold the state besides those who serve.
    others: usize,
    /// The address that is listened on.
    pub address: SocketAddr,
    /// How many clients are connected.
    pub connections: Arc<AtomicUsize>,
}

impl Service {
    /// What the settings say, for this address.
    #[must_use]
    pub fn new(settings: &Settings, address: SocketAddr, metrics: Arc<Metrics>) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let client_ttl = ms(settings.objects.client_ttl);
        let most = server::Settings::default().max_connections;
        let max_connections = files::connections(files::limit(), most);
        if max_connections < most {
            tracing::warn!(
                max_connections,
                "so few clients can be served because few files may be open (ulimit -n)"
            );
        }
        Self {
            address,
            server: server::Settings {
                max_connections,
                idle_timeout: settings.rpc.idle_timeout,
                no_delay: settings.rpc.tcp_no_delay,
                ..server::Settings::default()
            },
            told: Told {
                fsdir: Vec::new(),
                enable_disk_eviction: settings.storage_config.enable_disk_eviction,
                quota_bytes: settings.storage_config.quota_bytes,
                max_retry_attempts: settings.tasks.max_retry_attempts,
            },
            client_ttl,
            inherited_client_ttl: settings.ha.as_ref().map_or(client_ttl, |ha| ms(ha.inherited_client_ttl)),
            forget_metadata: settings
                .metadata_server
                .as_ref()
                .is_some_and(|metadata| metadata.cleanup_on_timeout),
            lease_sync: settings.ha.as_ref().map_or(Duration::from_secs(1), |ha| ha.lease_sync_interval),
            metrics,
        }
    }

    /// Opens the port, unless it is open already, and serves from this state.
    pub fn open(
        &self,
        listener: Option<std::net::TcpListener>,
        engine: Arc<Engine>,
        clock: Clock,
        replication: Option<Replication>,
    ) -> Result<Serving, BindError> {
        let others = Arc::strong_count(&engine);
        let server = match listener {
            Some(listener) => Server::on(listener, self.address, self.server.clone())?,
            None => Server::bind(self.address, self.server.clone())?,
        };
        let (address, connections) = (server.local_address(), server.connections());
        tracing::info!(%address, "serving mooncake clients");
        engine.sequencer(clock.now()).seed_chance(clock.now().0);
        let liveness = Arc::new(Liveness::new(self.client_ttl));
        liveness.inherit(engine.inherited(), clock.now(), self.inherited_client_ttl);
        let handlers = Handlers {
            engine: Arc::clone(&engine),
            clock,
            liveness: Arc::clone(&liveness),
            metrics: Arc::clone(&self.metrics),
            told: self.told.clone(),
        };
        let upkeep = Upkeep {
            engine: Arc::clone(&engine),
            clock,
            liveness,
            metrics: Arc::clone(&self.metrics),
            forget_metadata: self.forget_metadata,
            lease_sync: self.lease_sync,
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let may_serve = replication.as_ref().map(|replication| {
            let (replica, clock) = (Arc::clone(&replication.replica), replication.clock);
            move || replica.gate.may_answer(clock.now())
        });
        let serves = move || may_serve.as_ref().is_none_or(|may_serve| may_serve());
        let service = Arc::new(MasterService::new(handlers, replication));
        let upkeep = upkeep.run(stopped.clone(), serves);
        tasks.spawn(async move {
            upkeep.await;
            None
        });
        tasks.spawn(async move { Some(server.serve(service, stopped).await) });
        Ok(Serving { stop, tasks, engine, others, address, connections })
    }
}

impl Serving {
    /// Closes all connections. Says whether nobody is left who could change the state, and gives the port away, which
    /// closes when it is dropped.
    pub async fn close(self) -> (bool, Option<TcpListener>) {
        let Self { stop, tasks, engine, others, .. } = self;
        let _ = stop.send(true);
        let listener = tasks.join_all().await.into_iter().flatten().next();
        let quiet = async {
            // The one that is held here is not among the others.
            while Arc::strong_count(&engine) > others {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        (tokio::time::timeout(STRAGGLERS, quiet).await.is_ok(), listener)
    }
}
