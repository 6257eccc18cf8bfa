//! Many clients at once, each with a segment that holds a known range of the objects.

use std::ops::Range;

use clap::Args;
use serde_json::json;

use super::session::Session;
use super::{BenchError, Target, load};

/// Factor by which a segment is larger than its objects, so that nothing is evicted.
const SPARE: u64 = 2;
/// The first client's segment holds one of this many parts of the objects; the others share the rest.
const FIRST_SHARE: u64 = 10;

/// Objects, and in whose memory they are.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Layout {
    /// Objects
    #[arg(long, default_value_t = 10_000_000)]
    pub(super) objects: u64,
    /// Clients, each with a segment of its own; that of the first has a tenth of the objects
    #[arg(long, default_value_t = 100)]
    pub(super) clients: u16,
}

#[derive(Debug, Args)]
pub(super) struct FillArguments {
    #[command(flatten)]
    target: Target,
    #[command(flatten)]
    layout: Layout,
}

impl Layout {
    /// Returns the keys of one client, in whole batches.
    pub(super) fn keys(&self, client: u16, batch: u32) -> Range<u64> {
        let batch = u64::from(batch.max(1));
        let batches = self.objects.div_ceil(batch);
        let first = if self.clients > 1 { batches / FIRST_SHARE } else { batches };
        let others = u64::from(self.clients.max(2) - 1);
        let edge = |client: u64| match client {
            0 => 0,
            n => first + (batches - first) * (n - 1) / others,
        };
        edge(u64::from(client)) * batch..edge(u64::from(client) + 1).min(batches) * batch
    }
}

/// Result of a fill, in objects; a batch of which a part was refused counts as refused.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Filled {
    pub(super) put: u64,
    pub(super) refused: u64,
}

/// Clients, some of which may have ended, and which of them have their objects.
pub(super) struct Clients {
    target: Target,
    pub(super) layout: Layout,
    members: Vec<Member>,
}

#[derive(Default)]
struct Member {
    session: Option<Session>,
    filled: bool,
}

impl Clients {
    pub(super) fn new(target: Target, layout: Layout) -> Self {
        let members = (0..layout.clients).map(|_| Member::default()).collect();
        Self { target, layout, members }
    }

    /// Starts every client that does not run and puts every object that is missing. A master may refuse keys that it
    /// has just removed, as the reference does for some time; they count as refused.
    pub(super) async fn complete(&mut self) -> Result<Filled, BenchError> {
        let mut filled = Filled::default();
        for (number, member) in (0..).zip(&mut self.members) {
            let keys = self.layout.keys(number, self.target.batch);
            if member.session.is_none() {
                let size = (keys.end - keys.start) * self.target.value_length * SPARE;
                // The reference's allocator requires whole units.
                let size = size.next_multiple_of(16 << 20).max(64 << 20);
                let session = Session::open_one_of(self.target.address, size, number).await?;
                member.session = Some(session);
            }
            if let (false, Some(session)) = (member.filled, &member.session) {
                let tally = load::fill_segment(&self.target, session, keys).await?;
                filled.put += (tally.operations - tally.errors) * u64::from(self.target.batch);
                filled.refused += tally.errors * u64::from(self.target.batch);
                member.filled = true;
            }
        }
        Ok(filled)
    }

    /// Returns a client that stays to the end; `complete` has started it.
    pub(super) fn last(&self) -> Result<&Session, BenchError> {
        self.members.last().and_then(|member| member.session.as_ref()).ok_or(BenchError::NotFilled(0))
    }

    /// Unmounts the segment of the first client, which holds a tenth of the objects.
    pub(super) async fn unmount_first(&mut self) -> Result<(), BenchError> {
        if let Some(member) = self.members.first_mut()
            && let Some(session) = std::mem::take(member).session
        {
            session.unmount().await?;
        }
        Ok(())
    }

    /// Ends half of the clients without an unmount; returns the names of their segments. The last client stays.
    pub(super) fn end_half(&mut self) -> Vec<String> {
        let half = self.members.len() / 2;
        let ended = self.members.iter_mut().take(half).filter_map(|member| std::mem::take(member).session);
        ended.map(|session| String::from_utf8_lossy(session.segment_name()).into_owned()).collect()
    }

    /// Records that all objects were removed while the clients stay.
    pub(super) fn emptied(&mut self) {
        self.members.iter_mut().for_each(|member| member.filled = false);
    }
}

/// Puts the objects, prints that, and keeps the clients alive until standard input ends.
pub(super) async fn run(arguments: &FillArguments) -> Result<(), BenchError> {
    let mut clients = Clients::new(arguments.target, arguments.layout);
    let start = std::time::Instant::now();
    let filled = clients.complete().await?;
    if filled.refused > 0 {
        return Err(BenchError::NotFilled(filled.refused));
    }
    crate::cli::print(&format!(
        "{}\n",
        json!({ "objects": filled.put, "seconds": start.elapsed().as_secs_f64() })
    ));
    super::end_of_input().await;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_object_has_one_client() {
        for (objects, clients) in [(10_000_000, 100), (1_000, 3), (128, 1), (5_000, 2)] {
            let layout = Layout { objects, clients };
            let mut next = 0;
            for client in 0..clients {
                let keys = layout.keys(client, 128);
                assert_eq!(keys.start, next, "{objects} {clients} {client}");
                next = keys.end;
            }
            assert!(next >= objects && next < objects + 128, "{objects} {clients}: {next}");
        }
        let tenth = Layout { objects: 10_000_000, clients: 100 }.keys(0, 128);
        assert_eq!(tenth, 0..999_936);
    }
}
