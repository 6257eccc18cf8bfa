//! The connection in use, and how the next one is made when it is given up.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{Channel, Client, ConnectOptions, KvClient, LeaseClient, MaintenanceClient, WatchClient};
use parking_lot::Mutex;
use tonic::transport::Endpoint;

use crate::coordination::etcd::dialer::Dialer;
use crate::coordination::etcd::failures::Fault;
use crate::coordination::etcd::keepalive::Keeper;
use crate::coordination::etcd::settings::{EtcdSettings, Login, SettingsError};

/// The largest answer that is taken: a page of the log is far smaller, and etcd itself writes nothing above 2 MiB.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// HTTP/2 pings find a peer that is gone without a word. etcd closes connections that ping more often than every 5 s.
const PING_INTERVAL: Duration = Duration::from_secs(6);
const PING_TIMEOUT: Duration = Duration::from_secs(3);

/// How much may be under way to us unread. hyper's own bound of 64 KiB would make a large answer wait for many round
/// trips; bounds that adapt would ping more often than etcd permits.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 8 << 20;

/// A connection to one endpoint.
pub(super) struct Connection {
    pub(super) kv: KvClient,
    pub(super) lease: LeaseClient,
    pub(super) watch: WatchClient,
    pub(super) maintenance: MaintenanceClient,
    /// The keep-alive stream that was answered last and is free.
    pub(super) keeper: Mutex<Option<Keeper>>,
    endpoint: usize,
}

/// Makes connections, one at a time.
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
        // What can be wrong with settings is said now, not when the first call is made.
        for index in 0..connections.urls.len() {
            connections.endpoint(index)?;
        }
        connections.settings.login.as_ref().map(Login::load).transpose()?;
        Ok(connections)
    }

    /// The connection in use, or a new one to the first endpoint that can be reached.
    pub(super) async fn get(&self) -> Result<Arc<Connection>, Fault> {
        // Whoever comes while a connection is being made waits for it, as long as its own deadline lets it.
        let mut state = self.state.lock().await;
        if let Some(connection) = &state.current {
            return Ok(Arc::clone(connection));
        }
        let mut reasons = Vec::new();
        for _ in 0..self.urls.len() {
            let index = state.next;
            // Moved on before the attempt: the caller may give up in the middle of it, and then it was no good.
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

    /// The connection is not used for anything new; what is under way on it may still come to an end.
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
        // A member that has lost its leader shall say so instead of keeping streams open that tell nothing any more.
        let mut options = ConnectOptions::new().with_require_leader(true).with_auto_token_refresh(true);
        // The files are read again each time: a connection that was refused is given up, and the next one has the new
        // password.
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

/// An error and what it came from: tonic says "transport error" and keeps the reason underneath.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}
