//! The operator process: ports, the Lease, and the controller while the Lease is held.

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
use super::lease::{Candidate, Timing, WriteRight};
use super::metrics::Metrics;
use super::reconcile::{Context, PASS_DEADLINE, after_failure, reconcile};
use super::scope::{Others, Scope};
use crate::api::MasterCluster;
use crate::api::names::FIELD_MANAGER;
use crate::net::http_server::{self, HttpLimits};
use crate::net::listen::{self, Listen};
use crate::net::stop::stopped;

/// Concurrent passes. Further clusters wait; a pass takes some ten milliseconds.
const AT_ONCE: u16 = 32;

/// Timeout of each part of an answer of the API server. A server that vanished silently, with its machine or behind a
/// load balancer, is noticed after this time; the next call uses a new connection.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for watches, which are silent until something changes: longer than the API server keeps one.
const WATCH_TIMEOUT: Duration = Duration::from_secs(30);

/// The API group that OpenShift has and no other Kubernetes.
const OPENSHIFT_GROUP: &str = "security.openshift.io";

/// Pause after a failed read of the Leases of other operators, or of the API groups.
const OTHERS_RETRY: Duration = Duration::from_secs(2);

/// Settings of the operator.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The namespace whose clusters it reconciles; all if `None`.
    pub namespace: Option<String>,
    /// The namespace in which it runs and keeps its Lease; that of the kubeconfig if `None`.
    pub own_namespace: Option<String>,
    /// Its name as holder of the Lease.
    pub identity: String,
    /// Its own image, for masters whose spec names none.
    pub image: String,
    /// Whether it writes only while it holds the Lease.
    pub elect: bool,
    pub metrics: Listen,
    pub health: Listen,
}

/// Why the operator cannot run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// There is neither a kubeconfig nor an in-cluster configuration.
    #[error("cannot find the API server of Kubernetes: {0}")]
    Config(#[from] kube::config::InferConfigError),
    /// The client for Kubernetes cannot be created.
    #[error("cannot create a client for Kubernetes: {0}")]
    Client(#[from] kube::Error),
    /// A port could not be opened.
    #[error(transparent)]
    Bind(#[from] io::Error),
    /// Two metrics have the same name.
    #[error("cannot create the metrics: {0}")]
    Metrics(#[from] prometheus::Error),
}

/// Runs the operator until `stop` turns true, then releases the Lease.
///
/// # Errors
///
/// If it cannot start.
pub async fn run(settings: &Settings, mut stop: watch::Receiver<bool>) -> Result<(), RunError> {
    let metrics = Metrics::new()?;
    let ready = Ready::default();
    let health = listen::bind(&settings.health.host, settings.health.port).await?;
    let numbers = listen::bind(&settings.metrics.host, settings.metrics.port).await?;
    tracing::info!(health = %health.local_addr()?, metrics = %numbers.local_addr()?, "listening");
    let config = Config::infer().await?;
    let own_namespace = settings.own_namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
    let (client, watching) = clients(config)?;

    let mut tasks = JoinSet::new();
    // Enough for kubelet and Prometheus, and a person now and then.
    let limits = HttpLimits { max_connections: 64, header_timeout: Duration::from_secs(5) };
    tasks.spawn(http_server::serve(health, health::health(&ready, &metrics), limits, stop.clone()));
    tasks.spawn(http_server::serve(numbers, health::metrics(&metrics), limits, stop.clone()));
    let (stop_lease, lease_stopped) = watch::channel(false);
    // Kept until this function returns: without the sender `lost` would return at once.
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
        let (sender, right) = WriteRight::unconditional();
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
    lead_in_turns(&mut right, &mut stop, async |turn| {
        match turn {
            // An operator that waits for the Lease is ready, also if it lost the Lease before its caches were filled.
            LeadStep::Waits => operator.ready.set(true),
            LeadStep::Leads(right, stop) => operator.lead(right, stop).await,
        }
    })
    .await;
    // Only now the Lease is released, because nothing is written any more.
    stop_lease.send_replace(true);
    tasks.join_all().await;
    Ok(())
}

/// Creates two clients of the API server: one for calls, and one for watches, which are silent for longer.
fn clients(mut config: Config) -> Result<(Client, Client), RunError> {
    config.connect_timeout = Some(CALL_TIMEOUT);
    config.write_timeout = Some(CALL_TIMEOUT);
    config.read_timeout = Some(WATCH_TIMEOUT);
    let watching = Client::try_from(config.clone())?;
    config.read_timeout = Some(CALL_TIMEOUT);
    Ok((Client::try_from(config)?, watching))
}

/// What a process that may lead does next.
enum LeadStep {
    Waits,
    Leads(WriteRight, watch::Receiver<bool>),
}

/// Leads whenever this process has the right, until it shall stop. A right that ran out may be renewed before `act` has
/// returned: then it leads again at once. To wait for the loss of the right here would leave a holder of the Lease idle.
async fn lead_in_turns(
    right: &mut WriteRight,
    stop: &mut watch::Receiver<bool>,
    act: impl AsyncFn(LeadStep),
) {
    loop {
        act(LeadStep::Waits).await;
        tokio::select! {
            () = right.gained() => {}
            () = stopped(stop) => return,
        }
        act(LeadStep::Leads(right.clone(), stop.clone())).await;
        if *stop.borrow() {
            return;
        }
    }
}

struct Operator {
    client: Client,
    /// Client for watches, with a longer read timeout.
    watching: Client,
    namespace: Option<String>,
    own_namespace: String,
    identity: String,
    image: String,
    metrics: Metrics,
    ready: Ready,
}

impl Operator {
    /// Reconciles clusters until the right to write is lost or the process is stopped.
    async fn lead(&self, right: WriteRight, mut stop: watch::Receiver<bool>) {
        self.ready.set(false);
        let (wake, woken) = mpsc::unbounded_channel();
        // Dropped when this function returns, which aborts all watches.
        let mut watches = JoinSet::new();
        let caches = Caches::start(&self.watching, self.namespace.as_deref(), &wake, &mut watches);
        let mut lost = right.clone();
        let others = Arc::new(Others::new(&self.own_namespace));
        let platform_sets_group = tokio::select! {
            group = self.look_around(&caches, &others) => group,
            () = lost.lost() => return,
            () = stopped(&mut stop) => return,
        };
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
            deadline: PASS_DEADLINE,
            image: self.image.clone(),
            platform_sets_group,
            etcd_sessions: Mutex::new(HashMap::new()),
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
                // Failures were logged by `after_failure`; a wake-up for a cluster that is gone needs no pass.
                pass = passes.next() => if pass.is_none() {
                    return;
                },
                () = lost.lost() => {
                    tracing::warn!("this operator no longer manages clusters");
                    return;
                }
            }
        }
    }
}

impl Operator {
    /// Waits until the Leases of other operators are known. An operator for a single namespace has no right to list
    /// them, and need not: its Lease is the only one there, and operators for all namespaces leave that namespace to
    /// it.
    async fn find_others(&self, others: &Others) {
        while self.namespace.is_none() {
            match others.read(&self.client).await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, "cannot read the leases of other operators"),
            }
            tokio::time::sleep(OTHERS_RETRY).await;
        }
    }

    /// Waits until everything is known that passes need. Returns whether the platform sets the group of volumes.
    async fn look_around(&self, caches: &Caches, others: &Others) -> bool {
        let ((), (), group) =
            tokio::join!(caches.are_filled(), self.find_others(others), self.platform_sets_group());
        group
    }

    /// Waits until it is known whether this is OpenShift, which assigns the group of volumes and refuses any other.
    async fn platform_sets_group(&self) -> bool {
        loop {
            match self.client.list_api_groups().await {
                Ok(found) => return found.groups.iter().any(|group| group.name == OPENSHIFT_GROUP),
                Err(error) => tracing::warn!(%error, "cannot read the API groups of this Kubernetes"),
            }
            tokio::time::sleep(OTHERS_RETRY).await;
        }
    }
}

/// Forwards wake-ups until the process is stopped: then no pass begins any more, and those under way finish.
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_right_that_is_renewed_while_the_last_turn_ends_is_used_again() {
        let (sender, mut right) = WriteRight::unconditional();
        let (stop, mut stopped) = watch::channel(false);
        let turns = AtomicU32::new(0);
        let leading = lead_in_turns(&mut right, &mut stopped, async |turn| {
            let LeadStep::Leads(mut right, _) = turn else { return };
            if turns.fetch_add(1, Ordering::Relaxed) == 1 {
                stop.send_replace(true);
                return;
            }
            sender.send_replace(None);
            right.lost().await;
            sender.send_replace(Some(Instant::now() + Duration::from_secs(3600)));
        });
        tokio::time::timeout(Duration::from_secs(60), leading)
            .await
            .expect("it holds the Lease and does nothing");
        assert_eq!(turns.load(Ordering::Relaxed), 2);
    }
}
