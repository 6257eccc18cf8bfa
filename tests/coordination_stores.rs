//! Everything that is etcd, or takes its place, is asked the same questions: the model, real etcd in two versions, the
//! embedded store. `ETCD_BIN` and `ETCD_DEBIAN_BIN` name the real ones.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod coordination;
