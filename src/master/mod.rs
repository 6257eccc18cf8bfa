//! The process that serves Mooncake clients: request handlers, upkeep, HTTP, settings.

pub mod clock;
pub mod describe;
pub mod flags;
pub mod handlers;
pub mod liveness;
pub mod run;
pub mod service;
pub mod settings;
pub mod upkeep;
