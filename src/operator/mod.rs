//! `moonkeeper operator`: reconciles `MasterCluster` resources. It runs the masters, watches leadership in etcd, and
//! does what an administrator would otherwise do by hand. Failover works without it.
//!
//! A pass observes, plans, labels, builds and applies, acts and reports (`pass.rs`). [`plan`], [`build`] and [`report`] are
//! pure: no client, no clock. Only the command that starts the operator uses this module.

pub mod access;
pub mod act;
pub mod apply;
pub mod attendant;
pub mod build;
pub mod caches;
#[cfg(test)]
mod context_tests;
pub mod credentials;
pub mod endpoints;
mod etcd_watch;
pub mod health;
pub mod keys_of_cluster;
pub mod lease;
#[cfg(test)]
mod lease_tests;
pub mod masters;
pub mod metrics;
pub mod observe;
pub mod observed;
mod pass;
pub mod plan;
pub mod reconcile;
pub mod removal;
pub mod report;
pub mod rival;
pub mod run;
pub mod same_etcd;
pub mod scope;
pub mod sight;
mod way_to_etcd;
mod write_status;
