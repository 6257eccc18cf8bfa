//! The embedded store in this process, which keeps the log if no etcd is named.

use std::path::Path;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::UpError;
use crate::coordination::embedded::{ServeError, Store, serve};

/// The embedded store while it serves.
#[derive(Debug)]
pub(super) struct Embedded {
    stop: oneshot::Sender<()>,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Embedded {
    /// Opens the store, in a folder if it is to outlive this process, and serves it on a port of the loopback.
    pub(super) async fn start(folder: Option<&Path>, port: u16) -> Result<Self, UpError> {
        let store = Store::open(folder)?;
        let listener = TcpListener::bind(("127.0.0.1", port))
            .await
            .map_err(|why| UpError::System(format!("cannot listen on 127.0.0.1:{port}: {why}")))?;
        let (stop, stopped) = oneshot::channel();
        let stopped = async {
            // An error cannot occur: the sender lives until everything ends.
            let _ = stopped.await;
        };
        let task = tokio::spawn(serve(listener, store, stopped));
        Ok(Self { stop, task })
    }

    /// Waits until the store ends although it was not stopped, and returns why.
    pub(super) async fn ended(&mut self) -> UpError {
        match (&mut self.task).await {
            Ok(Err(why)) => UpError::System(why.to_string()),
            Ok(Ok(())) | Err(_) => UpError::System("the embedded store has ended".to_owned()),
        }
    }

    /// Stops the store, and waits until it has ended.
    pub(super) async fn stop(self) {
        let _ = self.stop.send(());
        let _ = self.task.await;
    }
}
