//! What goes wrong besides single messages, and when it no longer does.

use std::time::Duration;

use moonkeeper::coordination::types::{LeaseId, Request};
use moonkeeper::replication::node::{HandoverId, Input};

use super::plan::{Fault, MASTERS, MS, SECOND};
use super::truth::Cause;
use super::{Event, Sim};

impl Sim {
    /// One more fault.
    pub fn fault(&mut self) {
        if self.calm {
            return;
        }
        let next = self.plan.fault_every / 4 + self.chance.below(self.plan.fault_every * 3 / 2);
        self.after(next, Event::Fault);
        let total: u64 = self.plan.faults.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return;
        }
        let mut at = self.chance.below(total);
        let mut chosen = None;
        for (fault, weight) in &self.plan.faults {
            if at < *weight {
                chosen = Some(*fault);
                break;
            }
            at -= weight;
        }
        if let Some(fault) = chosen {
            self.suffer(fault);
        }
    }

    /// Mostly whoever leads.
    fn victim(&mut self) -> usize {
        let anybody = self.chance.below(MASTERS as u64) as usize;
        match self.leader() {
            Some(leader) if self.chance.percent(60) => leader,
            _ => anybody,
        }
    }

    /// Short, middling or long.
    fn while_(&mut self) -> u64 {
        let ttl = self.plan.leader_ttl.as_micros() as u64;
        match self.chance.below(4) {
            0 => self.chance.below(100 * MS),
            1 => self.chance.below(SECOND),
            2 => ttl / 2 + self.chance.below(ttl / 2),
            _ => ttl + self.chance.below(4 * SECOND),
        }
    }

    fn suffer(&mut self, fault: Fault) {
        let (victim, long) = (self.victim(), self.while_());
        let alive = self.masters[victim].node.is_some();
        let awake = alive && !self.masters[victim].paused;
        match fault {
            Fault::Kill if alive => {
                self.note(&format!("m{victim} is killed"));
                self.die(victim);
            }
            Fault::Pause if awake => {
                self.note(&format!("m{victim} pauses for {long}"));
                self.masters[victim].paused = true;
                self.after(long, Event::Resume { master: victim });
            }
            Fault::Cut => self.cut(victim, long),
            Fault::Away => (0..MASTERS).for_each(|master| self.cut(master, long)),
            Fault::Stall => {
                self.note(&format!("watches of m{victim} stall for {long}"));
                self.masters[victim].stalled_until = self.now + long;
                self.after(long, Event::Unstall { master: victim });
            }
            Fault::Compact => {
                let kept = self.chance.below(4);
                let revision = self.etcd.model.revision().saturating_sub(kept);
                let now = Duration::from_micros(self.now);
                let done = self.etcd.model.call(now, &Request::Compact { revision }).is_ok();
                self.note(&format!("compacted to {revision}: {done}"));
                self.look(Cause::Transaction);
            }
            Fault::WrongDeath => {
                let standby = self.chance.below(MASTERS as u64) as usize;
                if let Some(peer) = self.masters[standby].followed.clone() {
                    let to = self.process(standby);
                    self.after(0, Event::Dead { to, boot: peer.boot_id, lease: peer.lease });
                }
            }
            Fault::Switchover if awake => {
                let to = self.chance.percent(50).then(|| format!("m{}", self.chance.below(MASTERS as u64)));
                self.note(&format!("m{victim} is asked to hand over to {to:?}"));
                self.next += 1;
                let id = HandoverId(self.next);
                self.input(victim, Input::Switchover { id, to });
            }
            Fault::Stop if awake => {
                self.note(&format!("m{victim} is asked to stop"));
                self.input(victim, Input::Stop);
            }
            Fault::Usurp => {
                let leader = self.leader();
                if let (Some(leader), Some((_, lease))) = (leader, self.truth.leader) {
                    let ttl = self.plan.leader_ttl.as_micros() as u64;
                    let long = ttl + self.chance.below(ttl);
                    self.cut(leader, long);
                    self.revoke(lease);
                }
            }
            Fault::Blind => {
                let (leader, ttl) = (self.leader(), self.plan.leader_ttl.as_micros() as u64);
                if let (Some(leader), Some((_, lease))) = (leader, self.truth.leader) {
                    let standby = (leader + 1 + self.chance.below(MASTERS as u64 - 1) as usize) % MASTERS;
                    self.revoke(lease);
                    // It sees the key go, and no more than that.
                    let long = 2 * ttl;
                    self.after(4 * self.plan.delay, Event::Cut { master: standby, long });
                    self.after(4 * self.plan.delay + ttl + ttl / 2, Event::Unblind { master: standby });
                }
            }
            Fault::Revoke => {
                if let Some((_, lease)) = self.truth.leader {
                    self.revoke(lease);
                }
            }
            Fault::Kill | Fault::Pause | Fault::Switchover | Fault::Stop => {}
        }
    }

    fn revoke(&mut self, lease: LeaseId) {
        self.note("somebody revokes the leader's lease");
        let now = Duration::from_micros(self.now);
        let _ = self.etcd.model.call(now, &Request::LeaseRevoke { lease });
        self.look(Cause::Revocation);
    }

    /// The next leader is cut off and taken for dead, and so is everybody but the one who knows nothing of it.
    pub fn unblind(&mut self, standby: usize) {
        let (leader, ttl) = (self.leader(), self.plan.leader_ttl.as_micros() as u64);
        if self.calm || leader == Some(standby) {
            return;
        }
        (0..MASTERS).filter(|master| *master != standby).for_each(|master| self.cut(master, 2 * ttl));
        self.masters[standby].cut_until = self.now;
        self.after(0, Event::Unstall { master: standby });
        if let Some((_, lease)) = self.truth.leader {
            self.revoke(lease);
        }
    }

    pub fn cut(&mut self, master: usize, long: u64) {
        self.note(&format!("m{master} does not reach etcd for {long}"));
        if self.calm {
            return;
        }
        self.masters[master].cut_until = self.now + long;
        self.after(long, Event::Unstall { master });
    }

    /// Nothing goes wrong from here on.
    pub fn calm_down(&mut self) {
        self.note("calm");
        self.calm = true;
        for master in 0..MASTERS {
            self.masters[master].cut_until = self.now;
            self.masters[master].stalled_until = self.now;
            self.after(0, Event::Resume { master });
            self.after(1, Event::Unstall { master });
        }
    }
}
