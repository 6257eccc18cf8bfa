//! The connection in use, and how the next one is made when it is given up.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, KvClient, LeaseClient, MaintenanceClient, WatchClient};
use parking_lot::Mutex;
use tonic::transport::Endpoint;

use crate::coordination::etcd::dialer::Dialer;
use crate::coordination::etcd::failures::Fault;
use crate::coordination::etcd::keeper::Keeper;
use crate::coordination::etcd::settings::{EtcdSettings, Login, SettingsError};

/// Upper bound of an answer: a page of the log is far smaller, and etcd itself writes nothing above 2 MiB.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// HTTP/2 pings detect a peer that disappeared without closing the connection. etcd closes connections that ping more
/// often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// Flow-control windows of HTTP/2: how many bytes may be in flight to us unread. hyper's default of 64 KiB would cost a
/// large answer many round trips; adaptive windows would ping more often than etcd permits.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// A connection to one endpoint.
pub(super) struct Connection {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) watch: WatchClient,
    pub(super) maintenance: MaintenanceClient,
    /// The keep-alive stream that was answered last and has no request outstanding.
    pub(super) keeper: Mutex<Option<Keeper>>,
    endpoint: usize,
}

/// Opens connections, one at a time.
pub(super) struct Connections {
    settings: Arc<EtcdSettings>,
    urls: Vec<String>,
    state: tokio::sync::Mutex<State>,
}

#[derive(Default)]
struct State {
    current: Option<Arc<Connection>>,
    /// The endpoint to try next.
    next: usize,
}

impl Connections {
    pub(super) fn new(settings: Arc<EtcdSettings>) -> Result<Self, SettingsError> {
        if settings.endpoints.is_empty() {
            return Err(SettingsError::NoEndpoint);
        }
        let urls: Vec<String> = settings.endpoints.iter().map(|endpoint| url(endpoint, &settings)).collect();
        let connections = Self { settings, urls, state: tokio::sync::Mutex::default() };
        // Errors in the settings are reported now, not when the first call is made.
        for index in 0..connections.urls.len() {
            connections.endpoint(index)?;
        }
        connections.settings.login.as_ref().map(Login::load).transpose()?;
        Ok(connections)
    }

    /// Returns the connection in use, or a new one to the first endpoint that can be reached.
    pub(super) async fn get(&self) -> Result<Arc<Connection>, Fault> {
        // A caller that comes while a connection is being opened waits for it, until its own timeout.
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.current {
            return Ok(Arc::clone(connection));
        }
        let mut reasons = Vec::new();
        for _ in 0..self.urls.len() {
            let index = state.next;
            // Advanced before the attempt: if the caller times out during it, the next call tries another endpoint.
            state.next = (index + 1) % self.urls.len();
            let attempt = tokio::time::timeout(self.settings.connect_timeout, self.open(index));
            match attempt.await {
                Ok(Ok(connection)) => {
                    let connection = Arc::new(connection);
                    state.current = Some(Arc::clone(&connection));
                    tracing::debug!(endpoint = self.urls[index], "connected to etcd");
                    return Ok(connection);
                }
                Ok(Err(why)) => reasons.push(format!("{}: {why}", self.urls[index])),
                Err(_) => reasons.push(format!("{}: no connection in time", self.urls[index])),
            }
        }
        Err(Fault::broken(reasons.join("; ")))
    }

    /// Stops using a connection for new calls; calls in flight on it may still complete.
    pub(super) async fn give_up(&self, connection: &Arc<Connection>) {
        let mut state = self.state.lock().await;
        if state.current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            tracing::debug!(endpoint = self.urls[connection.endpoint], "gave up a connection to etcd");
            state.current = None;
        }
    }

    async fn open(&self, index: usize) -> Result<Connection, String> {
        let endpoint = self.endpoint(index).map_err(|error| error.to_string())?;
        let channel = match self.settings.lookups.get(endpoint.uri().host().unwrap_or_default()) {
            Some(names) => endpoint.connect_with_connector(Dialer(names.clone())).await,
            None => endpoint.connect().await,
        };
        let channel = channel.map_err(|error| with_causes(&error))?;
        let mut options = ConnectOptions::new()
            .with_require_leader(self.settings.require_leader)
            .with_auto_token_refresh(true);
        // The files are read again for every connection: after a refused login the connection is given up, and the next
        // one has the new password.
        let login = self.settings.login.as_ref().map(Login::load).transpose();
        if let Some(user) = login.map_err(|error| error.to_string())? {
            options = options.with_user(&user.name, &user.password);
        }
        let client = Client::from_channel(Channel::Tonic(channel), Some(options));
        let client = client.await.map_err(|error| format!("cannot log in: {error}"))?;
        Ok(Connection {
            kv: client.kv_client().max_decoding_message_size(MAX_MESSAGE_BYTES),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(MAX_MESSAGE_BYTES),
            maintenance: client.maintenance_client(),
            keeper: Mutex::default(),
            endpoint: index,
        })
    }

    fn endpoint(&self, index: usize) -> Result<Endpoint, SettingsError> {
        let url = &self.urls[index];
        let unusable = |why: &dyn std::error::Error| SettingsError::Endpoint {
            endpoint: url.clone(),
            why: with_causes(why),
        };
        let mut endpoint = Endpoint::from_shared(url.clone()).map_err(|error| unusable(&error))?;
        if url.starts_with("https://") {
            let Some(tls) = &self.settings.tls else {
                let why = "https needs the certificate of a CA".to_owned();
                return Err(SettingsError::Endpoint { endpoint: url.clone(), why });
            };
            endpoint = endpoint.tls_config(tls.load()?).map_err(|error| unusable(&error))?;
        }
        Ok(endpoint
            .connect_timeout(self.settings.connect_timeout)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(PING_TIMEOUT)
            // etcd counts pings on a connection without calls as abuse.
            .keep_alive_while_idle(false)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW))
    }
}

fn url(endpoint: &str, settings: &EtcdSettings) -> String {
    match endpoint.contains("://") {
        true => endpoint.to_owned(),
        false if settings.tls.is_some() => format!("https://{endpoint}"),
        false => format!("http://{endpoint}"),
    }
}

/// Returns an error with its causes: tonic's message is only "transport error", the reason is in its source.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
