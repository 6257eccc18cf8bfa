//! Clients: who is known and alive, and who wrote which object.

use std::collections::{BTreeSet, HashMap};

use super::object::ClientNumber;
use super::types::{SegmentNumber, SequenceId, Uuid};

/// A client that is known and alive, or owns segments.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// Whether it has told all its segments: the status that Ping answers.
    pub joined: bool,
    /// Whether it was known to the primary before and has not told its segments to this one yet: until then nothing
    /// new is placed in those that it had.
    pub inherited: bool,
    /// Its mounted segments.
    pub segments: BTreeSet<SegmentNumber>,
    /// The last record about it.
    pub last_record: SequenceId,
}

/// A client that is known and alive, or owns segments, for those who watch over its silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownClient {
    /// The client.
    pub id: Uuid,
    /// Whether only the primary before has heard from it.
    pub inherited: bool,
}

/// The clients that are known and alive, or own segments.
pub type Clients = HashMap<Uuid, Client>;

/// Writers by small number, so that an object need not carry all of its writer's name. A number is given back when
/// its last object is gone.
#[derive(Debug, Default)]
pub struct Writers {
    by_id: HashMap<Uuid, ClientNumber>,
    entries: Vec<(Uuid, u64)>,
    free: Vec<ClientNumber>,
    /// Whoever wrote last: nearly always the next one, too.
    last: ClientNumber,
}

impl Writers {
    /// The number of a writer, with one more object to its name.
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

    /// One object less to a writer's name.
    pub fn give(&mut self, number: ClientNumber) {
        let Some((id, objects)) = self.entries.get_mut(number.0 as usize) else { return };
        *objects -= 1;
        if *objects == 0 {
            self.by_id.remove(id);
            self.free.push(number);
        }
    }

    /// The writer with this number.
    #[must_use]
    pub fn id(&self, number: ClientNumber) -> Uuid {
        self.entries.get(number.0 as usize).map_or(Uuid::default(), |(id, _)| *id)
    }
}
