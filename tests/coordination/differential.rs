//! The same random requests to the model and to a real etcd give the same answers, revisions included, and the same
//! watches tell the same.

use std::collections::HashMap;

use moonkeeper::coordination::types::{
    Change, Compare, Failure, Get, KeyRange, LeaseId, Op, OpResult, Request, Response, Txn, WatchEvent,
    WatchRequest,
};

use crate::checks::{put, txn};
use crate::process::{EtcdProcess, binary};
use crate::stores::{Store, Timed, Watch};

/// Numbers that look random and are the same for the same seed.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Makes requests that hit each other: few keys, few values, revisions around the newest one.
struct Requests {
    random: Random,
    revision: u64,
    /// Leases by the number under which the requests know them, some of them ended.
    leases: Vec<LeaseId>,
}

impl Requests {
    fn key(&mut self) -> String {
        format!("k/{}", self.random.below(8))
    }

    fn range(&mut self) -> KeyRange {
        match self.random.below(6) {
            0 => KeyRange::prefix("k/"),
            1 => KeyRange::prefix(""),
            2 => KeyRange::between(self.key(), self.key()),
            3 => KeyRange::between(self.key(), &b"\0"[..]),
            _ => KeyRange::key(self.key()),
        }
    }

    /// Mostly one that there is, now and then one that is compacted or yet to come.
    fn old_revision(&mut self) -> u64 {
        (self.revision + 2).saturating_sub(self.random.below(25))
    }

    fn lease(&mut self) -> LeaseId {
        match self.random.below(self.leases.len() as u64 + 8) {
            index if index < self.leases.len() as u64 => self.leases[index as usize],
            _ => LeaseId::default(),
        }
    }

    fn get(&mut self) -> Get {
        let revision = if self.random.chance(50) { self.old_revision() } else { 0 };
        let limit = if self.random.chance(40) { self.random.below(5) } else { 0 };
        Get { range: self.range(), revision, limit, keys_only: self.random.chance(20) }
    }

    fn compare(&mut self) -> Compare {
        let key = self.key().into();
        match self.random.below(4) {
            0 => Compare::CreateRevision { key, equals: 0 },
            1 => Compare::CreateRevision { key, equals: self.old_revision() },
            2 => Compare::ModRevision { key, equals: self.old_revision() },
            _ => Compare::Value { key, equals: self.random.below(4).to_string().into() },
        }
    }

    fn ops(&mut self) -> Vec<Op> {
        let count = self.random.below(4);
        (0..count)
            .map(|_| match self.random.below(8) {
                0..=4 => {
                    let value = self.random.below(4).to_string();
                    Op::Put { key: self.key().into(), value: value.into(), lease: self.lease() }
                }
                // Not without an end: there the model is stricter than etcd about writing what is deleted.
                5 => Op::Delete(match self.random.below(4) {
                    0 => KeyRange::between(self.key(), self.key()),
                    _ => KeyRange::key(self.key()),
                }),
                _ => Op::Get(self.get()),
            })
            .collect()
    }

    fn request(&mut self) -> Request {
        match self.random.below(100) {
            0..=64 => {
                let compare = (0..self.random.below(3)).map(|_| self.compare()).collect();
                Request::Txn(Txn { compare, success: self.ops(), failure: self.ops() })
            }
            65..=84 => Request::Get(self.get()),
            85..=89 => Request::LeaseGrant { ttl_seconds: 1000 + self.random.below(10) as i64 },
            90..=92 => Request::LeaseKeepAlive { lease: self.existing_lease() },
            93..=95 => Request::LeaseRevoke { lease: self.existing_lease() },
            _ => Request::Compact { revision: self.old_revision().saturating_sub(10).max(1) },
        }
    }

    fn existing_lease(&mut self) -> LeaseId {
        match self.lease() {
            LeaseId(0) => LeaseId(i64::MAX),
            lease => lease,
        }
    }
}

/// Which lease of the model is which of etcd.
#[derive(Default)]
struct Leases(HashMap<LeaseId, LeaseId>);

impl Leases {
    fn of(&self, lease: LeaseId) -> LeaseId {
        self.0.get(&lease).copied().unwrap_or(lease)
    }

    fn op(&self, op: Op) -> Op {
        match op {
            Op::Put { key, value, lease } => Op::Put { key, value, lease: self.of(lease) },
            other => other,
        }
    }

    fn request(&self, request: Request) -> Request {
        match request {
            Request::Txn(txn) => Request::Txn(Txn {
                compare: txn.compare,
                success: txn.success.into_iter().map(|op| self.op(op)).collect(),
                failure: txn.failure.into_iter().map(|op| self.op(op)).collect(),
            }),
            Request::LeaseKeepAlive { lease } => Request::LeaseKeepAlive { lease: self.of(lease) },
            Request::LeaseRevoke { lease } => Request::LeaseRevoke { lease: self.of(lease) },
            other => other,
        }
    }

    /// The model's answer as etcd would give it, with what etcd does not say left out.
    fn answer(&self, answer: Result<Response, Failure>) -> Result<Response, Failure> {
        let page = |entries: &mut Vec<moonkeeper::coordination::types::KeyValue>| {
            for entry in entries {
                entry.lease = self.of(entry.lease);
            }
        };
        match answer {
            Ok(Response::Txn { revision, succeeded, mut results }) => {
                for result in &mut results {
                    if let OpResult::Got(found) = result {
                        page(&mut found.entries);
                    }
                }
                Ok(Response::Txn { revision, succeeded, results })
            }
            Ok(Response::Got { revision, page: mut found }) => {
                page(&mut found.entries);
                Ok(Response::Got { revision, page: found })
            }
            Err(Failure::Compacted { .. }) => Err(Failure::Compacted { oldest: 0 }),
            other => other,
        }
    }

    fn change(&self, change: Change) -> Change {
        match change {
            Change::Put(mut entry) => {
                entry.lease = self.of(entry.lease);
                Change::Put(entry)
            }
            other => other,
        }
    }
}

/// A watch of both.
struct Pair {
    model: Watch,
    etcd: Watch,
    /// What the model's has told, of which etcd's has to tell the same.
    told: Vec<Change>,
    last: u64,
}

impl Pair {
    fn new(model: &Store, etcd: &Store, request: &WatchRequest) -> Self {
        let (model, etcd) = (model.watch(request.clone()), etcd.watch(request.clone()));
        Self { model, etcd, told: Vec::new(), last: 0 }
    }

    /// Takes what the model's tells now.
    fn drain(&mut self, leases: &Leases) {
        let Watch::Model(timed, id) = &self.model else { panic!("not a model") };
        while let Some(event) = timed.poll(*id) {
            match event {
                WatchEvent::Changes { revision, changes } => {
                    self.last = revision;
                    self.told.extend(changes.into_iter().map(|change| leases.change(change)));
                }
                ended => panic!("{ended:?}"),
            }
        }
    }

    /// Waits until etcd's has told as much.
    async fn compare(&mut self) {
        assert_eq!(self.etcd.changes_until(self.last).await, std::mem::take(&mut self.told));
        self.last = 0;
    }
}

/// The oldest revision to watch from. At the compacted one itself etcd before 3.5 has forgotten what was deleted.
fn oldest(model: &Store) -> u64 {
    let Store::Model(timed) = model else { panic!("not a model") };
    timed.compacted() + 1
}

async fn compare(etcd: &Store, seed: u64, count: usize) {
    let model = Store::Model(Timed::new());
    let mut requests = Requests { random: Random::new(seed), revision: 1, leases: Vec::new() };
    let mut leases = Leases::default();
    let mut pairs = Vec::new();
    let mut seen = HashMap::new();
    for step in 0..count {
        if step % 100 == 0 {
            // Something to replay, so that it is known when etcd has started the watch: what is compacted before that
            // is gone.
            let written = txn(vec![put("k/0", "watched")]);
            let answers = (model.call(written.clone()).await, etcd.call(written).await);
            assert_eq!(answers.0, answers.1);
            requests.revision += 1;
            let from_revision = requests.old_revision().clamp(oldest(&model), requests.revision);
            let request = WatchRequest {
                range: KeyRange::prefix("k/"),
                from_revision,
                deletions: requests.random.chance(50),
            };
            let mut pair = Pair::new(&model, etcd, &request);
            pair.drain(&leases);
            pair.compare().await;
            pairs.push(pair);
        }
        let request = requests.request();
        let from_model = model.call(request.clone()).await;
        let from_etcd = etcd.call(leases.request(request.clone())).await;
        if let (
            Ok(Response::LeaseGranted { lease, ttl_seconds }),
            Ok(Response::LeaseGranted { lease: other, ttl_seconds: also }),
        ) = (&from_model, &from_etcd)
        {
            assert_eq!(ttl_seconds, also);
            leases.0.insert(*lease, *other);
            requests.leases.push(*lease);
            continue;
        }
        let from_model = leases.answer(from_model);
        // Which of several reasons to refuse a transaction is named differs between versions.
        let refused = |answer: &Result<_, Failure>| {
            answer.as_ref().is_err_and(|why| !matches!(why, Failure::Unknown(_)))
        };
        let both_refuse = matches!(request, Request::Txn(_)) && refused(&from_model) && refused(&from_etcd);
        if !both_refuse {
            assert_eq!(from_model, from_etcd, "seed {seed}, step {step}: {request:?}");
        }
        if let Ok(Response::Txn { revision, .. } | Response::Got { revision, .. }) = &from_model {
            requests.revision = *revision;
        }
        let kind = match from_model {
            Ok(Response::Txn { succeeded, .. }) => if succeeded { "success" } else { "failure" }.to_owned(),
            Ok(_) => "other".to_owned(),
            Err(failure) => failure.to_string(),
        };
        *seen.entry(kind).or_insert(0) += 1;
        for pair in &mut pairs {
            pair.drain(&leases);
        }
    }
    for mut pair in pairs {
        pair.compare().await;
    }
    // A generator that only makes requests that fail would prove nothing.
    assert!(seen.len() >= 7 && seen["success"] > count / 10, "{seen:?}");
}

#[tokio::test]
async fn the_model_answers_as_etcd_does() {
    for seed in 0..2 {
        let etcd = EtcdProcess::start(binary("ETCD_BIN")).await;
        compare(&Store::Etcd(etcd.client()), seed, 1500).await;
    }
}

#[tokio::test]
async fn the_model_answers_as_etcd_of_debian_does() {
    let etcd = EtcdProcess::start(binary("ETCD_DEBIAN_BIN")).await;
    compare(&Store::Etcd(etcd.client()), 2, 1500).await;
}
