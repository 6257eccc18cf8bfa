//! Clients of the store, and the table of writers of objects.

use std::collections::{BTreeSet, HashMap};

use super::types::{SegmentNumber, SequenceId, Uuid};
use crate::engine::types::ClientNumber;

/// A client that has joined, is inherited, or owns segments.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Whether it has reported all its segments: the status that Ping answers.
    pub joined: bool,
    /// Whether it is a client of an earlier primary and has not reported its segments to this one yet: until then
    /// nothing new is placed in those that it had.
    pub inherited: bool,
    pub segments: BTreeSet<SegmentNumber>,
    /// The last record about it.
    pub last_record: SequenceId,
}

/// Summary of a [`Client`] for the check of silent clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownClient {
    pub id: Uuid,
    /// Whether it has not reported its segments to this primary yet.
    pub inherited: bool,
}

/// All clients that the store knows, by id.
pub type Clients = HashMap<Uuid, Client>;

/// Writers by small number, so that an object need not store its writer's whole id. A number is free for reuse when its
/// last object is gone.
#[derive(Debug, Default)]
pub struct Writers {
    by_id: HashMap<Uuid, ClientNumber>,
    entries: Vec<(Uuid, u64)>,
    free: Vec<ClientNumber>,
    /// The writer of the last object: nearly always that of the next one, too.
    last: ClientNumber,
}

impl Writers {
    /// Returns the number of a writer and counts one more object for it.
    pub fn take(&mut self, id: Uuid) -> ClientNumber {
        if let Some((last, objects)) = self.entries.get_mut(self.last.0 as usize)
            && *last == id
            && *objects > 0
        {
            *objects += 1;
            return self.last;
        }
        let number = *self.by_id.entry(id).or_insert_with(|| match self.free.pop() {
            Some(number) => {
                self.entries[number.0 as usize] = (id, 0);
                number
            }
            None => {
                self.entries.push((id, 0));
                ClientNumber(self.entries.len() as u32 - 1)
            }
        });
        self.entries[number.0 as usize].1 += 1;
        self.last = number;
        number
    }

    /// Counts one object less for a writer.
    pub fn give(&mut self, number: ClientNumber) {
        let Some((id, objects)) = self.entries.get_mut(number.0 as usize) else { return };
        *objects -= 1;
        if *objects == 0 {
            self.by_id.remove(id);
            self.free.push(number);
        }
    }

    /// Returns the writers that have objects, in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (ClientNumber, Uuid)> {
        let numbered = self.entries.iter().zip(0..);
        numbered.filter(|((_, objects), _)| *objects > 0).map(|((id, _), number)| (ClientNumber(number), *id))
    }

    /// Returns the writer with this number.
    #[must_use]
    pub fn id(&self, number: ClientNumber) -> Uuid {
        self.entries.get(number.0 as usize).map_or(Uuid::default(), |(id, _)| *id)
    }
}
