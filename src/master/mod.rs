//! The process that serves Mooncake clients: request handlers, upkeep, HTTP, settings.

pub mod clock;
pub mod describe;
pub mod handlers;
pub mod liveness;
