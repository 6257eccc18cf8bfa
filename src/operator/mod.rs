//! `moonkeeper operator`: reconciles `MasterCluster` resources. It runs the masters, watches leadership in etcd, and
//! does what an administrator would otherwise do by hand. Failover works without it.
//!
//! A pass observes, plans, labels, builds and applies, acts, reports and releases (`pass.rs`). [`plan`], [`build`] and [`report`] are
//! pure: no client, no clock. Only the command that starts the operator uses this module.

pub mod act;
pub mod admin_client;
pub mod apply;
pub mod build;
pub mod caches;
pub mod claim_trouble;
#[cfg(test)]
mod context_tests;
pub mod credentials;
mod delete_object;
pub mod endpoints;
pub mod etcd_access;
mod etcd_health_watch;
pub mod etcd_session;
#[cfg(test)]
mod fixture;
pub mod health;
pub mod id_conflict;
pub mod keys_of_cluster;
pub mod keys_watch;
pub mod lease;
#[cfg(test)]
mod lease_tests;
pub mod metrics;
pub mod observation;
pub mod observe;
mod pass;
#[cfg(test)]
mod pass_tests;
pub mod plan;
pub mod reconcile;
pub mod removal;
pub mod report;
pub mod run;
pub mod same_etcd;
pub mod scope;
mod take_snapshot;
mod way_to_etcd;
mod write_status;
