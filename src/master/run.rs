//! Wiring: settings in, a running master out.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::engine::Engine;
use crate::engine::types::Term;
use crate::master::etcd_health::no_etcd;
use crate::master::http;
use crate::master::live_state::LiveState;
use crate::master::metrics::Metrics;
use crate::master::replicated;
use crate::master::rpc_server::ServeConfig;
use crate::master::settings::Settings;
use crate::master::startup::{StartError, admin, engine_settings, rpc_address, serve_http};
use crate::net::listen;
use crate::net::stop::stopped;
use crate::replication::time::RunningClock;

/// Runs a master until `stop` turns true.
pub async fn run(settings: &Settings, stop: watch::Receiver<bool>) -> Result<(), StartError> {
    match &settings.ha {
        None => alone(settings, stop).await,
        Some(ha) => replicated::run(settings, ha, stop).await,
    }
}

/// Runs a master without replication.
async fn alone(settings: &Settings, mut stop: watch::Receiver<bool>) -> Result<(), StartError> {
    let clock = RunningClock::start();
    let metrics = Metrics::new();
    let engine = Arc::new(Engine::new(engine_settings(settings)));
    let mut service = ServeConfig::new(settings, rpc_address(settings).await?, Arc::clone(&metrics));
    let http = listen::bind(&settings.http.host, settings.http.port).await?;
    let serving = service.open(None, Arc::clone(&engine), clock, None, Term(0))?;
    let (_state, current) = watch::channel(LiveState::alone(engine, clock, Arc::clone(&serving.connections)));
    let admin = admin(settings, current, no_etcd(), &metrics);
    let mut tasks = JoinSet::new();
    let router = http::router(admin.clone(), Arc::clone(&metrics));
    serve_http(settings, http, router, &admin, &mut tasks, &stop).await?;
    stopped(&mut stop).await;
    serving.close().await;
    // The same signal stops them.
    tasks.join_all().await;
    tracing::info!("stopped");
    Ok(())
}
