//! The process that serves Mooncake clients: request handlers, upkeep, HTTP, settings.

pub mod admin_api;
pub mod admission;
pub mod companion;
pub mod data_dir;
mod draining_port;
mod effects;
pub mod etcd_health;
pub mod fd_limit;
pub mod flags;
pub mod handlers;
pub mod http;
pub mod http_backend;
pub mod live_state;
pub mod metadata_server;
pub mod metrics;
mod parked_puts;
mod parking;
pub mod peer;
mod replicated;
pub mod reply_encoding;
mod rpc_failures;
pub mod rpc_server;
pub mod rpc_service;
pub mod run;
pub mod settings;
pub mod startup;
pub mod upkeep;
