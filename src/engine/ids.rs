//! Where objects lie, by id.
//!
//! In many small tables: when one grows it has to look at each of its objects again, and nobody may wait that long for
//! one table of millions.

use hashbrown::HashTable;

use super::shard::Handle;
use super::types::ObjectId;

const TABLES: usize = 256;

/// Where objects lie, by id.
#[derive(Debug)]
pub struct Ids {
    tables: Box<[HashTable<Handle>]>,
    len: usize,
}

impl Default for Ids {
    fn default() -> Self {
        Self { tables: (0..TABLES).map(|_| HashTable::new()).collect(), len: 0 }
    }
}

impl Ids {
    /// The handle of this id for which `is_it` says yes.
    #[must_use]
    pub fn find(&self, id: ObjectId, is_it: impl FnMut(&Handle) -> bool) -> Option<Handle> {
        let hash = hash(id);
        self.tables[table(hash)].find(hash, is_it).copied()
    }

    /// Adds an id that is not there. `id_of` says which object lies at a handle.
    pub fn insert(&mut self, id: ObjectId, handle: Handle, id_of: impl Fn(&Handle) -> ObjectId) {
        let hash_of = |handle: &Handle| hash(id_of(handle));
        self.tables[table(hash(id))].insert_unique(hash(id), handle, hash_of);
        self.len += 1;
    }

    /// Takes an id out, and gives memory back when most of a table stands empty.
    pub fn remove(&mut self, id: ObjectId, handle: Handle, id_of: impl Fn(&Handle) -> ObjectId) {
        let table = &mut self.tables[table(hash(id))];
        let Ok(entry) = table.find_entry(hash(id), |found| *found == handle) else { return };
        entry.remove();
        self.len -= 1;
        if table.capacity() > 64 && table.len() * 8 < table.capacity() {
            table.shrink_to(table.len() * 2, |handle| hash(id_of(handle)));
        }
    }

    /// How many ids there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }
}

fn hash(id: ObjectId) -> u64 {
    let wide = u128::from(id.0 ^ 0x2545_f491_4f6c_dd1d) * 0x9e37_79b9_7f4a_7c15;
    (wide >> 64) as u64 ^ wide as u64
}

/// The table of a hash: by bits that the table itself does not use.
fn table(hash: u64) -> usize {
    (hash >> 40) as usize % TABLES
}
