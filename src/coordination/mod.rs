//! etcd: the requests that masters make ([`types`]), the client of a real etcd ([`etcd`]), the model of etcd that the
//! simulator runs against ([`model`]), and the embedded store, which is the model with a server in front
//! ([`embedded`]).

pub mod embedded;
pub mod etcd;
pub mod model;
pub mod types;
