//! What goes wrong besides single messages, and when it no longer does.

use std::time::Duration;

use moonkeeper::coordination::types::{LeaseId, Request};
use moonkeeper::replication::node::status::Activity;
use moonkeeper::replication::node::{HandoverId, Input};

use super::plan::{Fault, Focus, MS, SECOND};
use super::truth::Cause;
use super::{Event, Sim};

impl Sim {
    /// One more fault.
    pub fn fault(&mut self) {
        if self.calm {
            return;
        }
        let next = self.plan.fault_every / 4 + self.rng.below(self.plan.fault_every * 3 / 2);
        self.after(next, Event::Fault);
        // One mistake at a time: a log that is gone while all masters are cannot be told from a new one.
        if self.is_damaged() || self.now < self.quiet_until {
            return;
        }
        if self.rng.percent(20) {
            self.back_up();
        }
        let total: u64 = self.plan.faults.iter().map(|(_, weight)| weight).sum();
        if total == 0 {
            return;
        }
        let mut at = self.rng.below(total);
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

    /// A schedule that needs some time takes it without another fault in between, in seeds that are about it.
    fn undisturbed(&mut self, long: u64) {
        if self.plan.focus != Focus::Everything {
            self.quiet_until = self.quiet_until.max(self.now + long);
        }
    }

    /// Any master.
    pub fn any_master(&mut self) -> usize {
        self.rng.below(self.masters.len() as u64) as usize
    }

    /// Mostly the leader.
    fn victim(&mut self) -> usize {
        let any = self.any_master();
        match self.leader() {
            Some(leader) if self.rng.percent(60) => leader,
            _ => any,
        }
    }

    /// A master that does not lead.
    fn standby(&mut self, leader: usize) -> usize {
        let count = self.masters.len();
        (leader + 1 + self.rng.below(count as u64 - 1) as usize) % count
    }

    /// Short, middling or long.
    fn while_(&mut self) -> u64 {
        let ttl = self.plan.leader_ttl.as_micros() as u64;
        match self.rng.below(4) {
            0 => self.rng.below(100 * MS),
            1 => self.rng.below(SECOND),
            2 => ttl / 2 + self.rng.below(ttl / 2),
            _ => ttl + self.rng.below(4 * SECOND),
        }
    }

    fn suffer(&mut self, fault: Fault) {
        let (victim, long) = (self.victim(), self.while_());
        let alive = self.masters[victim].node.is_some();
        let awake = alive && !self.masters[victim].paused;
        self.watchdog.trouble(self.now);
        self.counts.faults[fault as usize] += 1;
        match fault {
            Fault::Kill if alive => {
                note!(self, "m{victim} is killed");
                self.plan_rewrite(victim);
                self.die(victim);
            }
            Fault::Pause if awake => {
                let long = self.fall_asleep(victim, long);
                self.pause(victim, long);
            }
            Fault::Cut => self.cut(victim, long),
            Fault::Away => (0..self.masters.len()).for_each(|master| self.cut(master, long)),
            Fault::Stall => {
                self.watchdog.trouble(self.now + long);
                note!(self, "watches of m{victim} stall for {long}");
                self.masters[victim].stalled_until = self.now + long;
                self.after(long, Event::Unstall { master: victim });
            }
            Fault::Compact => {
                let kept = self.rng.below(4);
                let revision = self.etcd.model.revision().saturating_sub(kept);
                let done = self.by_hand(&Request::Compact { revision }).is_ok();
                note!(self, "compacted to {revision}: {done}");
                self.look(Cause::Transaction);
            }
            Fault::WrongDeath => {
                let standby = self.any_master();
                if let Some(peer) = self.masters[standby].followed.clone() {
                    let to = self.process(standby);
                    self.after(0, Event::Dead { to, boot: peer.boot_id, lease: peer.lease });
                }
            }
            Fault::Switchover => {
                // Mostly what a primary can do; the rest is refused.
                let leader = self.leader().filter(|_| self.rng.percent(80));
                let to = match leader {
                    Some(leader) => self.standby(leader),
                    None => self.any_master(),
                };
                let to = self.rng.percent(50).then(|| format!("m{to}"));
                self.switch_over(leader.unwrap_or(victim), to);
            }
            Fault::Stop if awake => {
                note!(self, "m{victim} is asked to stop");
                self.handover_takes(0);
                self.input(victim, Input::Stop);
            }
            Fault::Usurp => {
                let leader = self.leader();
                if let (Some(leader), Some((_, lease))) = (leader, self.truth.leader) {
                    let ttl = self.plan.leader_ttl.as_micros() as u64;
                    let long = ttl + self.rng.below(ttl);
                    self.cut(leader, long);
                    self.revoke(lease);
                }
            }
            Fault::Blind => {
                let (leader, ttl) = (self.leader(), self.plan.leader_ttl.as_micros() as u64);
                if let (Some(leader), Some((_, lease))) = (leader, self.truth.leader) {
                    let standby = self.standby(leader);
                    self.revoke(lease);
                    // It sees the key go, and no more than that.
                    let long = 2 * ttl;
                    self.watchdog.trouble(self.now + 4 * self.plan.delay + 4 * ttl);
                    self.undisturbed(4 * self.plan.delay + 2 * ttl);
                    self.after(4 * self.plan.delay, Event::Cut { master: standby, long });
                    self.after(4 * self.plan.delay + ttl + ttl / 2, Event::Unblind { master: standby });
                }
            }
            Fault::Revoke => self.revoke_leader(),
            Fault::Forsaken => self.forsake(),
            Fault::StalledTarget => {
                if let Some(leader) = self.leader().filter(|leader| !self.masters[*leader].paused) {
                    let (target, stale) = (self.standby(leader), self.rng.percent(30));
                    let name = Some(format!("m{target}"));
                    // Longer than a target may take, or shorter.
                    let least = if self.rng.percent(50) { 2_200 * MS } else { 1_000 * MS };
                    let long = least + self.rng.below(SECOND);
                    self.handover_takes(long + 3 * SECOND);
                    self.undisturbed(long + SECOND);
                    // The record that follows a `Resign` takes its time.
                    self.masters[leader].slow_writes_until = self.now + 6 * SECOND;
                    if !stale && self.rng.percent(70) {
                        // Before the port closes the leader would notice and go on.
                        self.masters[leader].stalls_at_close = Some((target, long));
                    } else if self.masters[target].node.is_some() {
                        self.pause(target, long);
                    }
                    if stale {
                        // By then it has not been heard from for a while.
                        self.masters[target].disconnected_until = self.now + long + SECOND;
                        self.after(2_500 * MS, Event::Switchover { master: leader, to: name });
                    } else {
                        self.switch_over(leader, name);
                    }
                }
            }
            Fault::Disconnect => {
                if let Some(leader) = self.leader() {
                    let standby = self.standby(leader);
                    self.lose_peer(standby);
                }
            }
            Fault::Silence => {
                let client = self.rng.below(self.clients.len() as u64) as usize;
                let deadline = self.plan.client_ttl.max(self.plan.inherited_ttl) * MS;
                let long = deadline / 2 + self.rng.below(3 * deadline);
                note!(self, "c{client} is silent for {long}");
                self.clients[client].silent_until = self.now + long;
            }
            Fault::NoSpace => {
                // Now and then for longer than answers wait.
                let longer = self.rng.percent(30);
                let long = if longer { 11 * SECOND + long } else { long };
                if longer {
                    self.quiet_until = self.now + long;
                }
                note!(self, "etcd has no space for {long}");
                self.etcd.full_until = self.now + long;
                self.watchdog.trouble(self.now + long);
            }
            Fault::LeaseEdge => {
                if let Some(leader) = self.leader() {
                    let (ttl, interval) = (self.plan.leader_ttl, self.plan.keep_alive.as_micros() as u64);
                    let answered = interval * 11 / 10 + 4 * self.plan.delay;
                    note!(self, "m{leader} hears late of its lease");
                    self.masters[leader].late_keep_alives_until = self.now + answered;
                    let long = 2 * ttl.as_micros() as u64;
                    self.watchdog.trouble(self.now + answered + long);
                    self.undisturbed(answered + long);
                    self.after(answered, Event::Cut { master: leader, long });
                }
            }
            Fault::Relapse => {
                if let Some(leader) = self.leader() {
                    let long = (2 * self.plan.call_timeout).as_micros() as u64 + 2 * SECOND;
                    let others: Vec<usize> =
                        (0..self.masters.len()).filter(|other| *other != leader).collect();
                    others.into_iter().for_each(|other| self.cut(other, long));
                    self.masters[leader].relapses = true;
                    self.undisturbed(long);
                }
            }
            Fault::Damage => self.damage_log(),
            Fault::Restore => self.restore(),
            Fault::Corrupt if alive => self.corrupt(victim),
            Fault::Kill | Fault::Pause | Fault::Stop | Fault::Corrupt => {}
        }
    }

    /// A client falls silent, and a hand-over to a master that stands still is given up. Nothing else happens until the
    /// client has to be missed.
    fn forsake(&mut self) {
        let Some(leader) = self.leader().filter(|leader| self.serves(*leader)) else { return };
        let Some(term) = self.masters[leader].server.as_ref().map(|server| server.term) else { return };
        let joined = (0..self.clients.len()).filter(|client| {
            self.clients[*client].has_memory() && self.watchdog.has_heard(self.clients[*client].uuid, term)
        });
        let joined: Vec<usize> = joined.collect();
        if joined.is_empty() {
            return;
        }
        let client = joined[self.rng.below(joined.len() as u64) as usize];
        let deadline = self.plan.missed_after();
        let stall = self.plan.handover_timeout.as_micros() as u64 + 2 * SECOND;
        note!(self, "c{client} is silent from here on");
        self.clients[client].silent_until = self.now + stall + deadline + 2 * SECOND;
        self.quiet_until = self.clients[client].silent_until;
        let target = self.standby(leader);
        self.handover_takes(stall + 3 * SECOND);
        self.masters[leader].stalls_at_close = Some((target, stall));
        let to = Some(format!("m{target}"));
        self.after(SECOND, Event::Switchover { master: leader, to });
    }

    /// A process does nothing for a while.
    pub fn pause(&mut self, master: usize, long: u64) {
        note!(self, "m{master} pauses for {long}");
        self.masters[master].paused = true;
        self.watchdog.trouble(self.now + long);
        self.after(long, Event::Resume { master });
    }

    /// An operator asks for another primary.
    pub fn switch_over(&mut self, master: usize, to: Option<String>) {
        if self.masters[master].paused || self.masters[master].node.is_none() {
            return;
        }
        note!(self, "m{master} is asked to hand over to {to:?}");
        self.next += 1;
        let id = HandoverId(self.next);
        self.handover_takes(0);
        let before = self.masters[master].node.as_ref().map(|node| node.brief().0);
        self.input(master, Input::Switchover { id, to: to.clone() });
        if let Some(name) = to
            && before == Some(Activity::Serving)
        {
            self.check_target(master, &name);
        }
    }

    /// A hand-over may close the port until all its deadlines have passed.
    fn handover_takes(&mut self, stalled: u64) {
        let limit = self.plan.handover_timeout.max(Duration::from_micros(stalled));
        let until = self.now + (limit + 2 * self.plan.call_timeout).as_micros() as u64;
        self.watchdog.trouble(until);
    }

    /// The leader's lease is revoked.
    pub fn revoke_leader(&mut self) {
        if let Some((_, lease)) = self.truth.leader
            && !self.calm
        {
            self.watchdog.trouble(self.now);
            self.revoke(lease);
        }
    }

    fn revoke(&mut self, lease: LeaseId) {
        note!(self, "another etcd client revokes the leader's lease");
        #[cfg(feature = "planted")]
        self.witness_too_early();
        let _ = self.by_hand(&Request::LeaseRevoke { lease });
        self.look(Cause::Revocation);
    }

    /// The next leader is cut off and taken for dead, and so is every master but the one that knows nothing of it.
    pub fn unblind(&mut self, standby: usize) {
        let (leader, ttl) = (self.leader(), self.plan.leader_ttl.as_micros() as u64);
        if self.calm || leader == Some(standby) {
            return;
        }
        let others: Vec<usize> = (0..self.masters.len()).filter(|master| *master != standby).collect();
        others.into_iter().for_each(|master| self.cut(master, 2 * ttl));
        self.masters[standby].cut_until = self.now;
        // Its connections have broken meanwhile: nothing tells it of what has come and gone.
        self.break_watches_of(standby);
        if let Some((_, lease)) = self.truth.leader {
            self.revoke(lease);
        }
    }

    pub fn cut(&mut self, master: usize, long: u64) {
        note!(self, "m{master} does not reach etcd for {long}");
        if self.calm {
            return;
        }
        self.masters[master].cut_until = self.now + long;
        self.watchdog.trouble(self.now + long);
        self.after(long, Event::Unstall { master });
    }

    /// Nothing goes wrong from here on.
    pub fn calm_down(&mut self) {
        note!(self, "calm");
        self.calm = true;
        self.mend();
        self.etcd.full_until = self.now;
        for master in 0..self.masters.len() {
            self.masters[master].cut_until = self.now;
            self.masters[master].stalled_until = self.now;
            self.masters[master].relapses = false;
            self.after(0, Event::Resume { master });
            self.after(1, Event::Unstall { master });
        }
    }
}
