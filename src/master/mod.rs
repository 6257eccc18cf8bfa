//! placeholder

pub mod flags;
pub mod settings;
