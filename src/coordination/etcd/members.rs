//! The status of each member of etcd, each asked at its own endpoint.

use std::time::Duration;

use futures_util::future::join_all;

use crate::coordination::etcd::{Etcd, EtcdSettings, SettingsError};
use crate::coordination::types::{Failure, MemberStatus};

/// Clients of all endpoints, one for each. They are none of those that serve: a status call that fails makes a client
/// give up its connection, and the endpoint in use answers only for itself.
#[derive(Clone)]
pub struct EtcdMembers(Vec<(String, Etcd)>);

impl EtcdMembers {
    /// Returns clients with these settings, which connect at the first question.
    ///
    /// # Errors
    ///
    /// As [`Etcd::connect`].
    pub fn connect(settings: &EtcdSettings) -> Result<Self, SettingsError> {
        let client = |endpoint: &String| {
            let endpoints = vec![endpoint.clone()];
            // A member knows its own size without a leader, too.
            let alone = EtcdSettings { endpoints, require_leader: false, ..settings.clone() };
            Ok((endpoint.clone(), Etcd::connect(alone)?))
        };
        settings.endpoints.iter().map(client).collect::<Result<_, _>>().map(Self)
    }

    /// Asks all of them at once, and waits at most `timeout`. Returns the answers by endpoint.
    pub async fn ask(&self, timeout: Duration) -> Vec<(String, Result<MemberStatus, Failure>)> {
        let questions = self
            .0
            .iter()
            .map(|(endpoint, etcd)| async move { (endpoint.clone(), etcd.member_status(timeout).await) });
        join_all(questions).await
    }
}
