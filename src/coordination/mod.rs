//! etcd: what masters ask of it ([`types`]), the client that asks a real one ([`etcd`]), the model of it that the
//! simulator runs against ([`model`]), and the embedded store that is the model with a server in front ([`embedded`]).

pub mod embedded;
pub mod etcd;
pub mod model;
pub mod types;
