//! The requests and responses of all functions.
//!
//! A field's position is its position on the wire; names are not sent. Functions with the same arguments share a
//! request type. `objects` has the descriptions of objects, segments and tasks, `requests` the arguments of calls and
//! `storage` those about disks, `responses` the responses.

mod objects;
mod requests;
mod responses;
mod storage;

pub use objects::*;
pub use requests::*;
pub use responses::*;
pub use storage::*;
