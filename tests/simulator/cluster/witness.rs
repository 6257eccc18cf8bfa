//! Witnesses of ended processes (R6), and logs that an earlier version has founded.

use std::collections::BTreeMap;
use std::time::Duration;

use moonkeeper::cluster::member::BootId;
use moonkeeper::coordination::types::{LeaseId, Op, Request, Txn};
use moonkeeper::engine::format::Format;
use moonkeeper::replication::formats;

use super::plan::MS;
use super::rng::Rng;
use super::{Event, Process, Sim};

/// What witnesses saw, and what they said.
pub struct Witnesses {
    /// A source of random numbers of their own: the rest of a seed is what it would be without them.
    rng: Rng,
    /// Of a hundred reports so many arrive.
    arrive: u64,
    /// When processes died.
    died: BTreeMap<u64, u64>,
    /// What each process was told.
    heard: BTreeMap<u64, Vec<BootId>>,
    /// The log was founded by an earlier version.
    older: bool,
    /// For how long all members have to read a newer format.
    pub raise_after: Duration,
}

impl Witnesses {
    pub fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0x7769_746e_6573_7300);
        Self {
            arrive: [0, 50, 90, 100][rng.below(4) as usize],
            older: rng.percent(30),
            raise_after: Duration::from_millis(rng.below(20_000)),
            died: BTreeMap::new(),
            heard: BTreeMap::new(),
            rng,
        }
    }

    /// When the process with this boot id died.
    pub fn died_at(&self, boot: BootId) -> Option<u64> {
        self.died.get(&boot.0).copied()
    }

    /// A process is told of the end of another one.
    pub fn heard(&mut self, process: Process, boot: BootId) {
        self.heard.entry(Sim::boot_id(process).0).or_default().push(boot);
    }

    /// Whether a process was told of the end of another one.
    pub fn has_heard(&self, process: Process, boot: BootId) -> bool {
        self.heard.get(&Sim::boot_id(process).0).is_some_and(|heard| heard.contains(&boot))
    }
}

impl Sim {
    /// An earlier version has chosen the format of the log, in some seeds.
    pub fn found_in_older_format(&mut self) {
        if self.witnesses.older {
            let (key, value) = (self.keys.format(), formats::key_value(Format::OLDEST));
            let put = Op::Put { key, value, lease: LeaseId(0) };
            let _ = self.by_hand(&Request::Txn(Txn { success: vec![put], ..Txn::default() }));
        }
    }

    /// A process has died, and its witness tells the others, if it gets that far.
    pub fn witness(&mut self, index: usize, boot: BootId) {
        self.witnesses.died.insert(boot.0, self.now);
        self.report_end(index, boot);
    }

    fn report_end(&mut self, index: usize, boot: BootId) {
        for other in (0..self.masters.len()).filter(|other| *other != index) {
            let arrives = self.witnesses.rng.percent(self.witnesses.arrive);
            let delay = self.witnesses.rng.below(60 * MS);
            let to = self.process(other);
            if arrives && self.masters[other].node.is_some() {
                self.after(delay, Event::Witness { to, boot });
            }
        }
    }

    /// A bug on purpose: the end of a connection is taken for the end of the process.
    #[cfg(feature = "planted")]
    pub fn witness_too_early(&mut self) {
        use moonkeeper::planted::{Bug, active};

        if let Some(leader) = self.leader().filter(|_| active(Bug::EarlyWitness)) {
            let boot = Self::boot_id(self.process(leader));
            self.report_end(leader, boot);
        }
    }
}
