//! Start-up code shared by a master that is alone and one that replicates.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::coordination::etcd::SettingsError;
use crate::engine::settings::{EngineSettings, Expired, Strategy};
use crate::master::admin_api::AdminError;
use crate::master::data_dir::DataDirError;
use crate::master::etcd_health::EtcdHealthState;
use crate::master::flags::interface_address;
use crate::master::http::HttpBackend;
use crate::master::http_backend::{MasterBackend, MetadataLimits};
use crate::master::live_state::LiveStateReceiver;
use crate::master::metadata_server;
use crate::master::metrics::{Metrics, report};
use crate::master::settings::{AllocationStrategy, Settings, ha};
use crate::net::{http_server, listen};
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
    /// The settings of etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] SettingsError),
    /// The data directory cannot be used.
    #[error(transparent)]
    DataDir(#[from] DataDirError),
    /// The credentials of the peer port cannot be read.
    #[error("cannot open the peer port: {0}")]
    PeerCredentials(#[from] crate::master::peer::PeerCredentialsError),
    /// The system's random source failed.
    #[error("cannot get random numbers: {0}")]
    Random(getrandom::Error),
    /// A host name or interface cannot be resolved.
    #[error("cannot listen on {host}: {source}")]
    Address {
        host: String,
        /// Why it cannot be resolved.
        source: std::io::Error,
    },
}

/// Builds the view of the state for the HTTP routes.
pub(super) fn admin(
    settings: &Settings,
    current: LiveStateReceiver,
    etcd_health: EtcdHealthState,
    metrics: &Arc<Metrics>,
) -> Arc<MasterBackend> {
    let metadata_limits = settings.metadata_server.as_ref().map_or(MetadataLimits::default(), |metadata| {
        MetadataLimits { entries: metadata.max_entries, bytes: metadata.max_bytes }
    });
    let metrics = Arc::clone(metrics);
    Arc::new(MasterBackend { current, metrics, etcd_health, metadata_limits, removal: Arc::default() })
}

/// Starts the HTTP servers, which run in every role.
pub(super) async fn serve_http(
    settings: &Settings,
    listener: TcpListener,
    router: Router,
    admin: &Arc<MasterBackend>,
    tasks: &mut JoinSet<()>,
    stop: &watch::Receiver<bool>,
) -> Result<(), StartError> {
    tracing::info!(address = %listener.local_addr()?, "serving metrics and queries over HTTP");
    tasks.spawn(http_server::serve(listener, router, settings.http.limits, stop.clone()));
    if let Some(metadata) = &settings.metadata_server {
        let listener = listen::bind(&metadata.host, metadata.port).await?;
        tracing::info!(address = %listener.local_addr()?, "serving metadata of transfer engines over HTTP");
        let router = metadata_server::router(admin.clone());
        tasks.spawn(http_server::serve(listener, router, metadata.limits, stop.clone()));
    }
    if let Some(every) = settings.metric_reporting {
        let reader = admin.clone();
        tasks.spawn(report(Arc::clone(&admin.metrics), move || reader.gauges(), every, stop.clone()));
    }
    Ok(())
}

/// Returns the address on which Mooncake clients are served.
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

/// Resolves a host name and port.
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::Address { host: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(failed)?;
    found.next().ok_or_else(|| failed(std::io::Error::other("the name has no address")))
}

pub(super) fn engine_settings(settings: &Settings) -> EngineSettings {
    let ms = |duration: std::time::Duration| u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let (objects, tasks) = (&settings.objects, &settings.tasks);
    EngineSettings {
        lease_ttl_ms: ms(objects.lease_ttl),
        soft_pin_ttl_ms: ms(objects.soft_pin_ttl),
        max_soft_pin_ttl_ms: ms(objects.max_soft_pin_ttl),
        evict_soft_pinned: settings.eviction.allow_soft_pinned,
        high_watermark: settings.eviction.high_watermark_ratio,
        eviction_ratio: settings.eviction.ratio,
        discard_timeout_ms: ms(objects.put_start_discard_timeout),
        release_timeout_ms: ms(objects.put_start_release_timeout),
        strategy: match settings.allocation_strategy {
            AllocationStrategy::Random => Strategy::Random,
            AllocationStrategy::FreeRatioFirst => Strategy::FreeRatioFirst,
            AllocationStrategy::LocalFirst => Strategy::LocalFirst,
        },
        max_pending_tasks: tasks.max_pending as usize,
        max_processing_tasks: tasks.max_processing as usize,
        max_finished_tasks: tasks.max_finished as usize,
        pending_task_timeout_ms: tasks.pending_timeout.map_or(0, ms),
        processing_task_timeout_ms: tasks.processing_timeout.map_or(0, ms),
        // A master without standbys never takes over from another one.
        expired: match settings.ha.as_ref().map(|ha| ha.expired) {
            None | Some(ha::Expired::Keep) => Expired::Keep,
            Some(ha::Expired::Evict) => Expired::Evict,
        },
    }
}
