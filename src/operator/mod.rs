//! `moonkeeper operator`: reconciles `MasterCluster` resources. It runs the masters, watches leadership in etcd, and
//! does what a person would otherwise do by hand. Failover works without it.
//!
//! A pass is `observe → plan → build → apply → act → report` ([`reconcile`]). [`plan`], [`build`] and [`report`] are
//! pure: no client, no clock. Nothing outside knows this module but the command that starts it.

pub mod access;
pub mod act;
pub mod apply;
pub mod attendant;
pub mod build;
pub mod caches;
pub mod credentials;
pub mod endpoints;
pub mod health;
pub mod keys_of_cluster;
pub mod lease;
pub mod masters;
pub mod metrics;
pub mod observe;
pub mod observed;
pub mod plan;
pub mod reconcile;
pub mod report;
pub mod rival;
pub mod run;
pub mod same_etcd;
pub mod scope;
pub mod sight;
pub mod view;
mod way_to_etcd;
mod write_status;
