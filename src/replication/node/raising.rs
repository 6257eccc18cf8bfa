//! Raising the format of a log once every live member reads the newest one, which is how an upgrade ends. The first
//! batch in the newer format writes the format key in its own transaction, so that the key and the log change together.
//! From then on an upgrade cannot be rolled back to a version without that format.

use super::{Node, Phase, Stage};
use crate::engine::format::Format;
use crate::replication::time::Monotonic;

/// The format that a primary writes, and since when all members read the newest one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raising {
    format: Format,
    all_read_since: Option<Monotonic>,
}

impl Raising {
    /// Returns the state of a term that begins in this format.
    pub(super) fn of(format: Format) -> Self {
        Self { format, all_read_since: None }
    }
}

impl Node {
    /// Switches to the newest format once all live members have read it for a while.
    pub(super) fn raise_format(&mut self, now: Monotonic) {
        let Phase::Leading(leadership) = &mut self.phase else { return };
        if leadership.raising.format == Format::NEWEST || leadership.stage != Stage::Serving {
            return;
        }
        let newest = Format::NEWEST.number();
        let own = self.seen_keys.member(&self.settings.name).is_some();
        if !own || !self.seen_keys.members().all(|member| member.formats.contains(&newest)) {
            leadership.raising.all_read_since = None;
            return;
        }
        let since = *leadership.raising.all_read_since.get_or_insert(now);
        if now.since(since) >= self.settings.raise_after {
            let from = leadership.raising.format.number();
            tracing::info!(from, to = newest, "all members read a newer format, raising that of the log");
            leadership.raising = Raising::of(Format::NEWEST);
            self.incarnation.engine.set_format(Format::NEWEST);
        }
    }
}
