//! Wiring: settings in, a running master out.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::coordination::etcd::SettingsError;
use crate::engine::Engine;
use crate::engine::rules::{Expired, Rules, Strategy};
use crate::engine::types::Term;
use crate::master::admin::{Admin, MetadataLimits};
use crate::master::admin_api::AdminError;
use crate::master::clock::Clock;
use crate::master::current::{Current, CurrentState};
use crate::master::data_dir::DataDirError;
use crate::master::flags::interface_address;
use crate::master::http::{self, AdminView};
use crate::master::metadata_server;
use crate::master::metrics::{Metrics, report};
use crate::master::role;
use crate::master::serving::Service;
use crate::master::settings::{AllocationStrategy, Settings, ha};
use crate::wire::server::BindError;

/// Why a master could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An HTTP port could not be opened.
    #[error(transparent)]
    Http(#[from] std::io::Error),
    /// The admin API could not be opened.
    #[error("cannot open the admin API: {0}")]
    Admin(#[from] AdminError),
    /// What was said about etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] SettingsError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// What masters prove themselves with to each other cannot be read.
    #[error("cannot open the peer port: {0}")]
    PeerCredentials(#[from] crate::master::peer::PeerCredentialsError),
    /// The system's random source failed.
    #[error("cannot get random numbers: {0}")]
    Chance(getrandom::Error),
    /// A host name or interface means nothing here.
    #[error("cannot listen on {host}: {source}")]
    Address {
        /// What was named.
        host: String,
        /// Why it means nothing.
        source: std::io::Error,
    },
}

/// Runs a master until `stop` says so.
pub async fn run(settings: &Settings, stop: watch::Receiver<bool>) -> Result<(), StartError> {
    match &settings.ha {
        None => alone(settings, stop).await,
        Some(ha) => role::run(settings, ha, stop).await,
    }
}

/// A master without others.
async fn alone(settings: &Settings, mut stop: watch::Receiver<bool>) -> Result<(), StartError> {
    let clock = Clock::start();
    let metrics = Metrics::new();
    let engine = Arc::new(Engine::new(rules(settings)));
    let mut service = Service::new(settings, rpc_address(settings).await?, Arc::clone(&metrics));
    let http = http::server::bind(&settings.http.host, settings.http.port).await?;
    let serving = service.open(None, Arc::clone(&engine), clock, None, Term(0))?;
    let (_state, current) = watch::channel(Current::alone(engine, clock, Arc::clone(&serving.connections)));
    let admin = admin(settings, current, &metrics);
    let mut tasks = JoinSet::new();
    let router = http::router(admin.clone(), Arc::clone(&metrics));
    serve_http(settings, http, router, &admin, &mut tasks, &stop).await?;
    // Whoever could say so is gone: the same word.
    let _ = stop.wait_for(|stop| *stop).await;
    serving.close().await;
    // They end by the same word.
    tasks.join_all().await;
    tracing::info!("stopped");
    Ok(())
}

/// The state as HTTP routes see it.
pub(super) fn admin(settings: &Settings, current: CurrentState, metrics: &Arc<Metrics>) -> Arc<Admin> {
    let metadata_limits = settings.metadata_server.as_ref().map_or(MetadataLimits::default(), |metadata| {
        MetadataLimits { entries: metadata.max_entries, bytes: metadata.max_bytes }
    });
    Arc::new(Admin { current, metrics: Arc::clone(metrics), metadata_limits, removal: Arc::default() })
}

/// Serves what is served over HTTP in every role.
pub(super) async fn serve_http(
    settings: &Settings,
    listener: TcpListener,
    router: Router,
    admin: &Arc<Admin>,
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    tracing::info!(address = %listener.local_addr()?, "serving metrics and queries over HTTP");
    tasks.spawn(http::server::serve(listener, router, settings.http.limits, stop.clone()));
    if let Some(metadata) = &settings.metadata_server {
        let listener = http::server::bind(&metadata.host, metadata.port).await?;
        tracing::info!(address = %listener.local_addr()?, "serving metadata of transfer engines over HTTP");
        let router = metadata_server::router(admin.clone());
        tasks.spawn(http::server::serve(listener, router, metadata.limits, stop.clone()));
    }
    if let Some(every) = settings.metric_reporting {
        let reader = admin.clone();
        tasks.spawn(report(Arc::clone(&admin.metrics), move || reader.gauges(), every, stop.clone()));
    }
    Ok(())
}

/// The address that Mooncake clients are served on.
pub(super) async fn rpc_address(settings: &Settings) -> Result<SocketAddr, StartError> {
    let host = match &settings.rpc.interface {
        None => settings.rpc.address.clone(),
        Some(name) => match interface_address(name) {
            Ok(address) => address.to_string(),
            Err(source) => return Err(StartError::Address { host: name.clone(), source }),
        },
    };
    resolve(&host, settings.rpc.port).await
}

/// The address that a host name and port stand for.
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::Address { host: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(failed)?;
    found.next().ok_or_else(|| failed(std::io::Error::other("the name has no address")))
}

pub(super) fn rules(settings: &Settings) -> Rules {
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (objects, tasks) = (&settings.objects, &settings.tasks);
    Rules {
        lease_ttl: ms(objects.lease_ttl),
        soft_pin_ttl: ms(objects.soft_pin_ttl),
        max_soft_pin_ttl: ms(objects.max_soft_pin_ttl),
        evict_soft_pinned: settings.eviction.allow_soft_pinned,
        high_watermark: settings.eviction.high_watermark_ratio,
        eviction_ratio: settings.eviction.ratio,
        discard_timeout: ms(objects.put_start_discard_timeout),
        release_timeout: ms(objects.put_start_release_timeout),
        strategy: match settings.allocation_strategy {
            AllocationStrategy::Random => Strategy::Random,
            AllocationStrategy::FreeRatioFirst => Strategy::FreeRatioFirst,
            AllocationStrategy::LocalFirst => Strategy::LocalFirst,
        },
        max_pending_tasks: tasks.max_pending as usize,
        max_processing_tasks: tasks.max_processing as usize,
        max_finished_tasks: tasks.max_finished as usize,
        pending_task_timeout: tasks.pending_timeout.map_or(0, ms),
        processing_task_timeout: tasks.processing_timeout.map_or(0, ms),
        // A master without standbys never takes over from another one.
        expired: match settings.ha.as_ref().map(|ha| ha.expired) {
            None | Some(ha::Expired::Keep) => Expired::Keep,
            Some(ha::Expired::Evict) => Expired::Evict,
        },
    }
}
