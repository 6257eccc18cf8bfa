//! The process that serves Mooncake clients: request handlers, upkeep, HTTP, settings.

pub mod admin;
pub mod admin_api;
pub mod admission;
pub mod companion;
pub mod current;
pub mod data_dir;
pub mod describe;
mod door;
mod effects;
pub mod etcd_health;
pub mod files;
pub mod flags;
pub mod handlers;
pub mod http;
pub mod metadata_server;
pub mod metrics;
mod parked_puts;
pub mod peer;
mod role;
pub mod run;
pub mod service;
pub mod serving;
pub mod settings;
pub mod startup;
pub mod upkeep;
