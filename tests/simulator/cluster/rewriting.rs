//! Objects that a client replaces in place right after a crash, and then removes. Their ids are of the new primary's
//! term, and their bytes are still what the old one may have promised to readers (R6).

use super::claims::Claims;
use super::clients::Op;
use super::plan::SECOND;
use super::{Event, Sim};

/// An object that a client is to replace in place and to remove.
pub struct Rewrite {
    pub key: String,
    size: u64,
    /// The object is replaced, and what is left is to remove it.
    pub ended: bool,
    /// Given up then.
    until: u64,
}

/// How much of a promise has to be left, so that there is time for a takeover and four calls.
const LEFT: u64 = SECOND;

impl Sim {
    /// The primary is about to die: a client will replace the object whose reader was promised its bytes for the longest.
    pub fn plan_rewrite(&mut self, master: usize) {
        let Some(server) = self.masters[master].server.as_ref().filter(|server| server.open) else { return };
        let engine = &server.incarnation.engine;
        let promised = |claims: &Claims, key: &str| {
            // A group is exempt as a whole or not at all.
            let seen = engine.peek(key.as_bytes(), |object| {
                let alone = object.is_complete() && object.group().is_none() && object.copy_move().is_none();
                alone.then_some((object.id, object.size))
            });
            let (id, size) = seen.result.ok()??;
            Some((claims.promised_until(id)?, size))
        };
        let keys = (0..self.plan.keys).map(|number| format!("k{number}"));
        let all = keys.filter_map(|key| promised(&self.claims, &key).map(|(until, size)| (until, key, size)));
        let Some((until, key, size)) = all.max() else { return };
        if until < self.now + LEFT {
            return;
        }
        let client = self.rng.below(self.clients.len() as u64) as usize;
        note!(self, "c{client} is to replace and remove {key}, promised until {until}");
        self.clients[client].rewrite = Some(Rewrite { key, size, ended: false, until });
        self.after(0, Event::Step { client });
    }

    /// What the client does next about it, if it may write to that key.
    pub fn continue_rewrite(&mut self, client: usize) -> Option<Op> {
        let now = self.now;
        let me = &mut self.clients[client];
        let Rewrite { key, size, ended, until } = me.rewrite.take()?;
        if until < now || me.is_writing(&key) {
            return None;
        }
        if ended {
            return Some(Op::Remove { keys: vec![key], force: false });
        }
        let op =
            Op::Start { key: key.clone(), size, upsert: true, replicas: 1, group: None, soft_pin: false };
        me.rewrite = Some(Rewrite { key, size, ended, until });
        Some(op)
    }
}
