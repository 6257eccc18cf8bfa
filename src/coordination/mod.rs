//! etcd: what masters ask of it ([`types`]), the client that asks a real one, the model of it that the simulator runs
//! against, and the embedded store that is the model with a server in front.

pub mod types;
