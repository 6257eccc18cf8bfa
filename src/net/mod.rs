//! What every server of this program shares about the network.

pub mod listen;
