//! Raising the format of a log: from the moment at which every live member reads the newest one, which is what an upgrade
//! ends with. The first batch in the newer format writes the format key in its own transaction, so that the key and the log
//! change together. An upgrade cannot be rolled back to a version without that format from then on.

use super::{Node, Phase, Stage};
use crate::engine::format::Format;
use crate::replication::time::Monotonic;

/// What a primary writes, and since when it could write more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raising {
    format: Format,
    all_read_since: Option<Monotonic>,
}

impl Raising {
    /// A term begins in this format.
    pub(super) fn of(format: Format) -> Self {
        Self { format, all_read_since: None }
    }
}

impl Node {
    /// Writes the newest format once all live members read it for a while.
    pub(super) fn raise_format(&mut self, now: Monotonic) {
        let Phase::Leading(reign) = &mut self.phase else { return };
        if reign.raising.format == Format::NEWEST || reign.stage != Stage::Serving {
            return;
        }
        let members = self.view.members();
        let newest = Format::NEWEST.number();
        let own = members.contains_key(&self.settings.name);
        if !own || !members.values().all(|member| member.formats.contains(&newest)) {
            reign.raising.all_read_since = None;
            return;
        }
        let since = *reign.raising.all_read_since.get_or_insert(now);
        if now.since(since) >= self.settings.raise_after {
            let from = reign.raising.format.number();
            tracing::info!(from, to = newest, "all members read a newer format, raising that of the log");
            reign.raising = Raising::of(Format::NEWEST);
            self.replica.engine.set_format(Format::NEWEST);
        }
    }
}
