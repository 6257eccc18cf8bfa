//! placeholder

pub mod flags;
pub mod http;
pub mod metadata_server;
pub mod metrics;
pub mod settings;
