//! How a transaction is carried out: first all conditions are evaluated, then everything that could fail is checked,
//! then the steps are carried out in order, as one revision.

use bytes::Bytes;

use crate::coordination::model::Model;
use crate::coordination::model::history::History;
use crate::coordination::model::steps::{Condition, Outcome, Program, Put, Refusal, Step, Target};
use crate::coordination::types::{KeyValue, LeaseId};

/// The branch that was chosen, in nested transactions as well.
struct Chosen<'a> {
    succeeded: bool,
    steps: Vec<ChosenStep<'a>>,
}

enum ChosenStep<'a> {
    Step(&'a Step),
    Txn(Chosen<'a>),
}

impl Model {
    /// Carries out a transaction that [`Program::check`] accepted.
    pub(super) fn execute(&mut self, program: &Program) -> Result<(bool, Vec<Outcome>), Refusal> {
        let chosen = choose(&self.history, program);
        self.check(&chosen)?;
        let outcomes = self.run(&chosen)?;
        self.history.commit();
        Ok((chosen.succeeded, outcomes))
    }

    fn check(&self, chosen: &Chosen<'_>) -> Result<(), Refusal> {
        for step in &chosen.steps {
            match step {
                ChosenStep::Txn(chosen) => self.check(chosen)?,
                ChosenStep::Step(Step::Put(put)) => self.check_put(put)?,
                ChosenStep::Step(Step::Read(read)) => self.history.check_revision(read.revision)?,
                ChosenStep::Step(Step::Delete(_) | Step::Txn(_)) => {}
            }
        }
        Ok(())
    }

    fn check_put(&self, put: &Put) -> Result<(), Refusal> {
        if (put.value.is_none() || put.lease.is_none()) && self.history.get(&put.key).is_none() {
            return Err(Refusal::KeyNotFound);
        }
        match put.lease {
            Some(lease) if lease != LeaseId::default() && self.leases.get(lease).is_none() => {
                Err(Refusal::LeaseNotFound)
            }
            _ => Ok(()),
        }
    }

    fn run(&mut self, chosen: &Chosen<'_>) -> Result<Vec<Outcome>, Refusal> {
        let mut outcomes = Vec::with_capacity(chosen.steps.len());
        for step in &chosen.steps {
            outcomes.push(match step {
                ChosenStep::Txn(chosen) => {
                    Outcome::Txn { succeeded: chosen.succeeded, outcomes: self.run(chosen)? }
                }
                ChosenStep::Step(Step::Put(put)) => self.put(put),
                ChosenStep::Step(Step::Delete(delete)) => {
                    let keys: Vec<Bytes> =
                        self.history.entries(&delete.range).map(|entry| entry.key.clone()).collect();
                    let deleted: Vec<KeyValue> = keys.iter().filter_map(|key| self.delete(key)).collect();
                    let count = deleted.len() as u64;
                    Outcome::Deleted { count, previous: if delete.previous { deleted } else { Vec::new() } }
                }
                ChosenStep::Step(Step::Read(read)) => Outcome::Read(self.history.read(read)?),
                ChosenStep::Step(Step::Txn(_)) => continue,
            });
        }
        Ok(outcomes)
    }

    fn put(&mut self, put: &Put) -> Outcome {
        let before = self.history.get(&put.key);
        let value = put.value.clone().or_else(|| before.map(|entry| entry.value.clone())).unwrap_or_default();
        let old_lease = before.map(|entry| entry.lease).unwrap_or_default();
        let lease = put.lease.unwrap_or(old_lease);
        let previous = self.history.put(&put.key, value, lease);
        if lease != old_lease {
            self.leases.detach(old_lease, &put.key);
            self.leases.attach(lease, &put.key);
        }
        Outcome::Put { previous: previous.filter(|_| put.previous) }
    }

    pub(super) fn delete(&mut self, key: &Bytes) -> Option<KeyValue> {
        let previous = self.history.delete(key)?;
        self.leases.detach(previous.lease, key);
        Some(previous)
    }
}

fn choose<'a>(history: &History, program: &'a Program) -> Chosen<'a> {
    let succeeded = program.compare.iter().all(|condition| holds(history, condition));
    let steps = if succeeded { &program.success } else { &program.failure };
    let chosen = |step: &'a Step| match step {
        Step::Txn(program) => ChosenStep::Txn(choose(history, program)),
        step => ChosenStep::Step(step),
    };
    Chosen { succeeded, steps: steps.iter().map(chosen).collect() }
}

fn holds(history: &History, condition: &Condition) -> bool {
    let mut entries = history.entries(&condition.range).peekable();
    if entries.peek().is_none() {
        // A key that does not exist has no value, so no comparison with a value holds.
        return !matches!(condition.target, Target::Value(_)) && holds_for(None, condition);
    }
    entries.all(|entry| holds_for(Some(entry), condition))
}

fn holds_for(entry: Option<&KeyValue>, condition: &Condition) -> bool {
    let number = |field: fn(&KeyValue) -> u64| {
        let value = entry.map_or(0, field);
        i64::try_from(value).unwrap_or(i64::MAX)
    };
    let ordering = match &condition.target {
        Target::Version(given) => number(|entry| entry.version).cmp(given),
        Target::CreateRevision(given) => number(|entry| entry.create_revision).cmp(given),
        Target::ModRevision(given) => number(|entry| entry.mod_revision).cmp(given),
        Target::Value(given) => entry.map(|entry| &entry.value).unwrap_or(&Bytes::new()).cmp(given),
        Target::Lease(given) => entry.map(|entry| entry.lease).unwrap_or_default().cmp(given),
    };
    condition.relation.holds(ordering)
}
