//! Serving Mooncake clients: the open port, the handlers behind it, and the upkeep. It lasts while a master is primary,
//! or as long as the process if the master is alone.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::engine::types::Term;
use crate::master::fd_limit;
use crate::master::handlers::{Handlers, Told};
use crate::master::live_state::AnswerGate;
use crate::master::metadata_server::entries_of;
use crate::master::metrics::Metrics;
use crate::master::rpc_service::{LogContext, MasterService};
use crate::master::settings::Settings;
use crate::master::upkeep::Upkeep;
use crate::replication::liveness::Liveness;
use crate::replication::term_guard::TermGuards;
use crate::replication::time::RunningClock;
use crate::replication::upkeep::Chores;
use crate::wire::server::{self, BindError, Server};

/// How long work that began before the port was closed may go on. Long work is cancelled between its chunks, so nearly
/// always all of it ends at once.
const STRAGGLERS: Duration = Duration::from_secs(2);

/// Everything that serving takes and that does not depend on the term.
#[derive(Debug)]
pub struct ServeConfig {
    /// The address to listen on for clients.
    pub address: SocketAddr,
    pub server: server::Settings,
    /// Settings that clients are told.
    pub told: Told,
    /// How long a client may be silent, in milliseconds.
    pub client_ttl: u64,
    /// Time for a client of the previous primary to be heard from, in milliseconds.
    pub inherited_client_ttl: u64,
    /// Whether an expired client's entries in the metadata server are removed.
    pub forget_metadata: bool,
    /// How often live leases are written to the log.
    pub lease_sync: Duration,
    pub metrics: Arc<Metrics>,
    /// The deadlines of clients in the last term that was served. A hand-over that is given up opens the port again in
    /// the same term, and clients keep their deadlines.
    pub deadlines: Option<(Term, Arc<Liveness>)>,
}

/// A running server with its clients.
#[derive(Debug)]
pub struct Serving {
    stop: watch::Sender<bool>,
    tasks: JoinSet<Option<TcpListener>>,
    guards: TermGuards,
    liveness: Arc<Liveness>,
    clock: RunningClock,
    /// The address that the server listens on.
    pub address: SocketAddr,
    /// Number of connected clients.
    pub connections: Arc<AtomicUsize>,
    /// Another descriptor of the port, for the companion. The port closes when both are closed.
    pub socket: Option<OwnedFd>,
}

impl ServeConfig {
    /// Takes the settings for this address.
    #[must_use]
    pub fn new(settings: &Settings, address: SocketAddr, metrics: Arc<Metrics>) -> Self {
        let ms = |duration: Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
        let client_ttl = ms(settings.objects.client_ttl);
        let most = server::Settings::default().max_connections;
        let max_connections = fd_limit::connections(fd_limit::limit(), most);
        if max_connections < most {
            tracing::warn!(
                max_connections,
                "the limit of open files (ulimit -n) allows this many clients only"
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
            deadlines: None,
        }
    }

    /// Opens the port, unless `listener` is given, and serves from this state in this term.
    pub fn open(
        &mut self,
        listener: Option<std::net::TcpListener>,
        engine: Arc<Engine>,
        clock: RunningClock,
        replication: Option<LogContext>,
        term: Term,
    ) -> Result<Serving, BindError> {
        let server = match listener {
            Some(listener) => Server::on(listener, self.address, self.server.clone())?,
            None => Server::bind(self.address, self.server.clone())?,
        };
        let (address, connections) = (server.local_address(), server.connections());
        let socket = server.socket().ok();
        tracing::info!(%address, "serving mooncake clients");
        engine.sequencer(clock.now()).seed_rng(clock.now().0);
        let liveness = self.deadlines_of(term);
        liveness.resume(engine.known_clients(), clock.now(), self.inherited_client_ttl);
        // Work of an earlier opening that has not ended yet stays counted, and stays cancelled.
        let guards =
            replication.as_ref().map_or_else(TermGuards::default, |log| log.incarnation.guards.clone());
        guards.open();
        let answer_gate =
            AnswerGate(replication.as_ref().map(|log| (Arc::clone(&log.incarnation), log.clock)));
        let handlers = Handlers {
            engine: Arc::clone(&engine),
            clock,
            liveness: Arc::clone(&liveness),
            metrics: Arc::clone(&self.metrics),
            told: self.told.clone(),
            answer_gate: answer_gate.clone(),
            guards: guards.clone(),
        };
        let upkeep = Upkeep {
            engine,
            clock,
            liveness: Arc::clone(&liveness),
            metrics: Arc::clone(&self.metrics),
            chores: Chores { metadata_of: self.forget_metadata.then_some(|name| entries_of(name).collect()) },
            lease_sync: self.lease_sync,
            answer_gate,
        };
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let service = Arc::new(MasterService::new(handlers, replication));
        if let Some(guard) = guards.guard() {
            tasks.spawn(upkeep.run(guard, stopped.clone()));
        }
        tasks.spawn(Arc::clone(&service).try_parked_puts(stopped.clone()));
        // One guard for all connections: the server ends only when each of their tasks has ended.
        if let Some(guard) = guards.guard() {
            tasks.spawn(async move {
                let listener = server.serve(service, stopped).await;
                drop(guard);
                Some(listener)
            });
        }
        Ok(Serving { stop, tasks, guards, liveness, clock, address, connections, socket })
    }

    /// Returns the deadlines of clients in this term.
    fn deadlines_of(&mut self, term: Term) -> Arc<Liveness> {
        match &self.deadlines {
            Some((of, liveness)) if *of == term => Arc::clone(liveness),
            _ => {
                let liveness = Arc::new(Liveness::new(self.client_ttl));
                self.deadlines = Some((term, Arc::clone(&liveness)));
                liveness
            }
        }
    }
}

impl Serving {
    /// Closes all connections and cancels long work. Returns whether no reader and no change of the state is left, and
    /// the port, which closes when it is dropped. Takes at most two seconds.
    pub async fn close(self) -> (bool, Option<TcpListener>) {
        let Self { stop, mut tasks, guards, liveness, clock, .. } = self;
        guards.close();
        let _ = stop.send(true);
        liveness.pause(clock.now());
        let give_up = tokio::time::Instant::now() + STRAGGLERS;
        let mut port = None;
        while let Ok(Some(ended)) = tokio::time::timeout_at(give_up, tasks.join_next()).await {
            port = port.or(ended.ok().flatten());
        }
        // A server that has not ended keeps its guard: aborting it would report that its connections are gone.
        tasks.detach_all();
        let left = give_up.saturating_duration_since(tokio::time::Instant::now());
        (guards.drained(left).await, port)
    }
}
