//! The list of checks, for each of the stores.

use crate::checks::{leases, log, transactions, watches};
use crate::process::{EtcdProcess, binary};
use crate::stores::{Store, Timed};

pub async fn run(store: &Store) {
    transactions::all(store).await;
    log::all(store).await;
    leases::all(store).await;
    watches::all(store).await;
}

#[tokio::test]
async fn the_model_passes() {
    run(&Store::Model(Timed::new())).await;
}

#[tokio::test]
async fn etcd_passes() {
    let etcd = EtcdProcess::start(binary("ETCD_BIN")).await;
    run(&Store::Etcd(etcd.client())).await;
}

#[tokio::test]
async fn etcd_of_debian_passes() {
    let etcd = EtcdProcess::start(binary("ETCD_DEBIAN_BIN")).await;
    run(&Store::Etcd(etcd.client())).await;
}
