//! The process: ports, the Lease, and the controller as long as the Lease is held.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{applier, controller};
use kube::{Client, Config};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_stream::{Stream, StreamExt};

use super::apply::Writer;
use super::caches::Caches;
use super::health::{self, Ready};
use super::lease::{Candidate, Right, Timing};
use super::metrics::Metrics;
use super::reconcile::{Context, after_failure, reconcile};
use super::scope::{Others, Scope};
use crate::api::MasterCluster;
use crate::api::names::FIELD_MANAGER;
use crate::master::http::server;
use crate::master::settings::HttpLimits;
use crate::master::settings::ha::Listen;

/// So many clusters are looked at at once. More wait for their turn; each takes some ten milliseconds.
const AT_ONCE: u16 = 32;

/// How long the API server has for each part of an answer. One that vanished without a word, with its machine or behind a
/// load balancer, is noticed so late; the next call goes through a new connection.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for watches, which are silent until something happens: longer than the API server keeps one.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// Pause after a failed read of the Leases of other operators.
const OTHERS_RETRY: Duration = Duration::from_secs(2);

/// What the operator is told.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace whose clusters it looks after; all if none is given.
    pub namespace: Option<String>,
    /// Where it runs itself, and keeps its Lease; what the kubeconfig says if none is given.
    pub own_namespace: Option<String>,
    /// Its name among operators.
    pub identity: String,
    /// Its own image, for masters whose spec names none.
    pub image: String,
    /// Whether it writes only while it holds the Lease.
    pub elect: bool,
    /// Where metrics are.
    pub metrics: Listen,
    /// Where health is.
    pub health: Listen,
}

/// Why the operator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// It does not know where Kubernetes is.
    #[error("cannot find Kubernetes: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// It cannot speak to it.
    #[error("cannot speak to Kubernetes: {0}")]
    Client(#[from] kube::Error),
    /// A port could not be opened.
    #[error(transparent)]
    Bind(#[from] io::Error),
    /// Two metrics have one name.
    #[error("cannot count: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs until `stop` turns true, then gives the Lease back.
///
/// # Errors
///
/// If it cannot begin.
pub async fn run(settings: &Settings, mut stop: watch::Receiver<bool>) -> Result<(), RunError> {
    let metrics = Metrics::new()?;
    let ready = Ready::default();
    let health = server::bind(&settings.health.host, settings.health.port).await?;
    let numbers = server::bind(&settings.metrics.host, settings.metrics.port).await?;
    tracing::info!(health = %health.local_addr()?, metrics = %numbers.local_addr()?, "listening");
    let mut config = Config::infer().await?;
    let own_namespace = settings.own_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    config.connect_timeout = Some(CALL_TIMEOUT);
    config.write_timeout = Some(CALL_TIMEOUT);
    config.read_timeout = Some(WATCH_TIMEOUT);
    let watching = Client::try_from(config.clone())?;
    config.read_timeout = Some(CALL_TIMEOUT);
    let client = Client::try_from(config)?;

    let mut tasks = JoinSet::new();
    // Kubernetes and Prometheus, and a person now and then.
    let limits = HttpLimits { max_connections: 64, header_timeout: Duration::from_secs(5) };
    tasks.spawn(server::serve(health, health::health(&ready, &metrics), limits, stop.clone()));
    tasks.spawn(server::serve(numbers, health::metrics(&metrics), limits, stop.clone()));
    let (stop_lease, lease_stopped) = watch::channel(false);
    // Held as long as this runs, so that a right without a Lease never ends.
    let (_forever, mut right) = if settings.elect {
        let candidate = Candidate::new(
            client.clone(),
            &own_namespace,
            &Scope::of(settings.namespace.as_deref()),
            &settings.identity,
            Timing::default(),
            metrics.clone(),
        );
        let (right, keeping) = candidate.start(lease_stopped);
        tasks.spawn(keeping);
        (None, right)
    } else {
        metrics.leads(true);
        let (sender, right) = Right::unconditional();
        (Some(sender), right)
    };
    let operator = Operator {
        client,
        watching,
        namespace: settings.namespace.clone(),
        own_namespace,
        identity: settings.identity.clone(),
        image: settings.image.clone(),
        metrics,
        ready,
    };
    loop {
        // One that waits for the Lease is as ready as it can be, also if it lost it before its caches were filled.
        operator.ready.set(true);
        tokio::select! {
            () = right.gained() => {}
            () = stopped(&mut stop) => break,
        }
        operator.lead(right.clone(), stop.clone()).await;
        if *stop.borrow() {
            break;
        }
        // What runs out is renewed or taken by another within the time that this leaves.
        right.lost().await;
    }
    // Only when nothing is written any more.
    stop_lease.send_replace(true);
    tasks.join_all().await;
    Ok(())
}

async fn stopped(stop: &mut watch::Receiver<bool>) {
    // An error means that whoever could say so is gone: the same word.
    let _ = stop.wait_for(|stop| *stop).await;
}

struct Operator {
    client: Client,
    /// For watches.
    watching: Client,
    namespace: Option<String>,
    own_namespace: String,
    identity: String,
    image: String,
    metrics: Metrics,
    ready: Ready,
}

impl Operator {
    /// Looks after clusters until the right to is lost or the process is to stop.
    async fn lead(&self, right: Right, mut stop: watch::Receiver<bool>) {
        self.ready.set(false);
        let (wake, woken) = mpsc::unbounded_channel();
        // Everything in here ends when this returns.
        let mut watches = JoinSet::new();
        let caches = Caches::start(&self.watching, self.namespace.as_deref(), &wake, &mut watches);
        let mut lost = right.clone();
        let others = Arc::new(Others::new(&self.own_namespace));
        tokio::select! {
            () = async { tokio::join!(caches.are_filled(), self.find_others(&others)); } => {}
            () = lost.lost() => return,
            () = stopped(&mut stop) => return,
        }
        self.ready.set(true);
        if self.namespace.is_none() {
            let (others, client) = (Arc::clone(&others), self.client.clone());
            watches.spawn(async move { others.follow(client).await });
        }
        let reporter =
            Reporter { controller: FIELD_MANAGER.to_owned(), instance: Some(self.identity.clone()) };
        let clusters = caches.clusters.store();
        let context = Arc::new(Context {
            writer: Arc::new(Writer::new(self.client.clone(), right, self.metrics.clone())),
            caches,
            wake,
            recorder: Recorder::new(self.client.clone(), reporter),
            namespace: self.own_namespace.clone(),
            others,
            left: Mutex::default(),
            since: Instant::now(),
            image: self.image.clone(),
            attendants: Mutex::new(HashMap::new()),
            written: Mutex::new(HashMap::new()),
            failures: Mutex::new(HashMap::new()),
        });
        let passes = applier(
            |cluster, context| Box::pin(reconcile(cluster, context)),
            after_failure,
            context,
            clusters,
            until_stopped(woken, stop, &mut watches),
            controller::Config::default().concurrency(AT_ONCE),
        );
        let mut passes = std::pin::pin!(passes);
        loop {
            tokio::select! {
                // Failures were told where they were met; and who is woken for a cluster that is gone sleeps on.
                pass = passes.next() => if pass.is_none() {
                    return;
                },
                () = lost.lost() => {
                    tracing::warn!("no longer looking after clusters");
                    return;
                }
            }
        }
    }
}

impl Operator {
    /// Waits until it is known which other operators there are. One for a single namespace has no right to know, and
    /// need not: its Lease is the only one there, and operators for all namespaces give way.
    async fn find_others(&self, others: &Others) {
        while self.namespace.is_none() {
            match others.read(&self.client).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "cannot read the leases of other operators"),
            }
            tokio::time::sleep(OTHERS_RETRY).await;
        }
    }
}

/// Who is woken, until the process is to stop: then no pass begins any more, and those under way come to their end.
fn until_stopped(
    mut woken: mpsc::UnboundedReceiver<ObjectRef<MasterCluster>>,
    mut stop: watch::Receiver<bool>,
    tasks: &mut JoinSet<()>,
) -> impl Stream<Item = Result<ObjectRef<MasterCluster>, Infallible>> + use<> {
    let (sender, receiver) = mpsc::unbounded_channel();
    tasks.spawn(async move {
        loop {
            let next = tokio::select! {
                next = woken.recv() => next,
                () = stopped(&mut stop) => return,
            };
            if next.is_none_or(|next| sender.send(Ok(next)).is_err()) {
                return;
            }
        }
    });
    UnboundedReceiverStream::new(receiver)
}
