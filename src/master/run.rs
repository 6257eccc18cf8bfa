//! Wiring: settings in, a running master out.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::engine::rules::{Expired, Rules, Strategy};
use crate::master::admin::{Admin, MetadataLimits};
use crate::master::clock::Clock;
use crate::master::flags::interface_address;
use crate::master::handlers::{Handlers, Told};
use crate::master::http::{self, AdminView};
use crate::master::liveness::Liveness;
use crate::master::metadata_server;
use crate::master::metrics::{Metrics, report};
use crate::master::service::MasterService;
use crate::master::settings::{AllocationStrategy, Settings};
use crate::master::upkeep::Upkeep;
use crate::wire::server::{self, BindError, Server};

/// Why a master could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A port could not be opened.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// An HTTP port could not be opened.
    #[error(transparent)]
    Http(#[from] std::io::Error),
    /// A host name or interface means nothing here.
    #[error("cannot listen on {host}: {source}")]
    Address {
        /// What was named.
        host: String,
        /// Why it means nothing.
        source: std::io::Error,
    },
}

/// Serves until `stop` says so.
pub async fn run(settings: &Settings, stop: watch::Receiver<bool>) -> Result<(), StartError> {
    let clock = Clock::start();
    let engine = Arc::new(Engine::new(rules(settings)));
    engine.sequencer(clock.now()).seed_chance(clock.now().0);
    let client_ttl = settings.objects.client_ttl.as_millis() as u64;
    let liveness = Arc::new(Liveness::new(client_ttl));

    let rpc = &settings.rpc;
    let host = match &rpc.interface {
        None => rpc.address.clone(),
        Some(name) => match interface_address(name) {
            Ok(address) => address.to_string(),
            Err(source) => return Err(StartError::Address { host: name.clone(), source }),
        },
    };
    let address = resolve(&host, rpc.port).await?;
    let server_settings = server::Settings {
        idle_timeout: rpc.idle_timeout,
        no_delay: rpc.tcp_no_delay,
        ..server::Settings::default()
    };
    let server = Server::bind(address, server_settings)?;
    let http = http::server::bind(&settings.http.host, settings.http.port).await?;
    tracing::info!(address = %server.local_address(), "serving mooncake clients");
    tracing::info!(address = %http.local_addr()?, "serving metrics and queries over HTTP");

    let metrics = Metrics::new();
    let limits = settings.metadata_server.as_ref().map_or(MetadataLimits::default(), |metadata| {
        MetadataLimits { entries: metadata.max_entries, bytes: metadata.max_bytes }
    });
    let admin = Arc::new(Admin {
        engine: Arc::clone(&engine),
        clock,
        metrics: Arc::clone(&metrics),
        connections: server.connections(),
        metadata_limits: limits,
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(http::server::serve(
        http,
        http::router(admin.clone(), Arc::clone(&metrics)),
        settings.http.limits,
        stop.clone(),
    ));
    if let Some(metadata) = &settings.metadata_server {
        let listener = http::server::bind(&metadata.host, metadata.port).await?;
        tracing::info!(address = %listener.local_addr()?, "serving metadata of transfer engines over HTTP");
        let router = metadata_server::router(admin.clone());
        tasks.spawn(http::server::serve(listener, router, metadata.limits, stop.clone()));
    }
    if let Some(every) = settings.metric_reporting {
        let reader = admin.clone();
        tasks.spawn(report(Arc::clone(&metrics), move || reader.gauges(), every, stop.clone()));
    }

    let handlers = Handlers {
        engine: Arc::clone(&engine),
        clock,
        liveness: Arc::clone(&liveness),
        metrics: Arc::clone(&metrics),
        told: Told {
            fsdir: Vec::new(),
            enable_disk_eviction: settings.storage_config.enable_disk_eviction,
            quota_bytes: settings.storage_config.quota_bytes,
            max_retry_attempts: settings.tasks.max_retry_attempts,
        },
    };
    let forget_metadata =
        settings.metadata_server.as_ref().is_some_and(|metadata| metadata.cleanup_on_timeout);
    let upkeep = Upkeep { engine, clock, liveness, metrics, forget_metadata };
    tasks.spawn(upkeep.run(stop.clone(), || true));
    server.serve(Arc::new(MasterService::new(handlers)), stop).await;
    // They end by the same word.
    tasks.join_all().await;
    tracing::info!("stopped");
    Ok(())
}

/// The address that a host name and port stand for.
async fn resolve(host: &str, port: u16) -> Result<SocketAddr, StartError> {
    let failed = |source| StartError::Address { host: host.to_owned(), source };
    let mut found = tokio::net::lookup_host((host, port)).await.map_err(failed)?;
    found.next().ok_or_else(|| failed(std::io::Error::other("the name has no address")))
}

fn rules(settings: &Settings) -> Rules {
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
        expired: Expired::Keep,
    }
}
