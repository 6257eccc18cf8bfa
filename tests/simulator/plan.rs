//! What a seed decides before anything happens: how slow the network is, which faults there are, how the masters are set
//! up and how the clients behave.

use std::time::Duration;

use moonkeeper::engine::rules::{Rules, Strategy};

use super::chance::Chance;

/// A second in the simulator's time.
pub const SECOND: u64 = 1_000_000;
/// A millisecond in the simulator's time.
pub const MS: u64 = 1_000;

/// How many masters there are.
pub const MASTERS: usize = 3;

/// What the seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Until then there are faults.
    pub faults_until: u64,
    /// Until then clients work; the rest is for the last checks.
    pub work_until: u64,
    /// The end.
    pub end: u64,
    /// The usual delay of a message.
    pub delay: u64,
    /// Of ten thousand messages to etcd so many take very long.
    pub slow: u64,
    /// How long, at most.
    pub slowest: u64,
    /// Of ten thousand requests so many never arrive.
    pub lost_requests: u64,
    /// Of ten thousand answers so many never arrive, although what was asked was done.
    pub lost_answers: u64,
    /// Of ten thousand transactions so many arrive twice.
    pub twice: u64,
    /// Of ten thousand requests so many are refused, as by a store without space.
    pub refused: u64,
    /// Which faults there are, by weight.
    pub faults: Vec<(Fault, u64)>,
    /// Only one master is there until faults end, and whatever happens to it, it leads again.
    pub lonely: bool,
    /// The time between two faults, on average.
    pub fault_every: u64,
    /// The leader's lease.
    pub leader_ttl: Duration,
    pub keep_alive: Duration,
    pub call_timeout: Duration,
    pub queue_bytes: usize,
    pub rules: Rules,
    /// How long a client may be silent, in milliseconds.
    pub client_ttl: u64,
    /// How long a client of the primary before may be, in milliseconds.
    pub inherited_ttl: u64,
    /// How many clients there are.
    pub clients: u64,
    /// How long a client waits between two calls, at most.
    pub think: u64,
    /// How many keys there are.
    pub keys: u64,
    /// The size of segments.
    pub segment: u64,
    /// The speed of each master's monotonic clock, in thousandths of that of etcd and of clients. The design allows for a
    /// tenth: a primary takes as much off its lease.
    pub rates: [u64; MASTERS],
}

/// What can go wrong besides single messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A process is killed, and comes back.
    Kill,
    /// A process does nothing for a while.
    Pause,
    /// A master does not reach etcd for a while.
    Cut,
    /// Nobody reaches etcd for a while.
    Away,
    /// Watches of a master say nothing for a while.
    Stall,
    /// The history of etcd is given up.
    Compact,
    /// A standby is told that the primary is dead although it is not.
    WrongDeath,
    /// Somebody asks for another primary.
    Switchover,
    /// Somebody asks a master to end.
    Stop,
    /// The leader's lease is revoked by somebody else.
    Revoke,
    /// The leader does not reach etcd, is taken for dead and goes on answering for as long as it may.
    Usurp,
    /// A standby sees the leader go, and then nothing of the next one until that one is taken for dead, too.
    Blind,
}

const ALL: [(Fault, u64); 12] = [
    (Fault::Kill, 5),
    (Fault::Pause, 6),
    (Fault::Cut, 5),
    (Fault::Away, 1),
    (Fault::Stall, 5),
    (Fault::Compact, 3),
    (Fault::WrongDeath, 4),
    (Fault::Switchover, 5),
    (Fault::Stop, 2),
    (Fault::Revoke, 2),
    (Fault::Usurp, 6),
    (Fault::Blind, 3),
];

impl Plan {
    /// What a seed decides.
    pub fn new(chance: &mut Chance) -> Self {
        let faults: Vec<_> = ALL.into_iter().filter(|_| chance.percent(65)).collect();
        let quiet = chance.percent(5);
        let lonely = !quiet && chance.percent(10);
        let odds = |chance: &mut Chance, most: u64| if chance.percent(50) { chance.below(most) } else { 0 };
        let delay = [100, 500, 2 * MS, 8 * MS][chance.below(4) as usize];
        let leader_ttl = Duration::from_secs(2 + chance.below(4));
        let faults_until = (20 + chance.below(25)) * SECOND;
        let work_until = faults_until + 22 * SECOND;
        Self {
            faults_until,
            work_until,
            end: work_until + 4 * SECOND,
            delay,
            slow: if quiet { 0 } else { odds(chance, if lonely { 2_000 } else { 400 }) },
            slowest: [500 * MS, 2 * SECOND, 6 * SECOND][chance.below(3) as usize],
            lonely,
            lost_requests: if quiet { 0 } else { odds(chance, 300) },
            lost_answers: if quiet { 0 } else { odds(chance, 400) },
            twice: if quiet { 0 } else { odds(chance, 500) },
            refused: if quiet { 0 } else { odds(chance, 100) },
            faults: if quiet { Vec::new() } else { faults },
            fault_every: [SECOND, 2 * SECOND, 4 * SECOND][chance.below(3) as usize],
            leader_ttl,
            keep_alive: leader_ttl / [3, 5, 8][chance.below(3) as usize],
            call_timeout: Duration::from_millis([300, 1_000, 2_000][chance.below(3) as usize]),
            queue_bytes: [800, 4_000, 1 << 20][chance.below(3) as usize],
            rules: rules(chance),
            client_ttl: 5_000 + chance.below(8_000),
            inherited_ttl: 6_000 + chance.below(12_000),
            clients: 4 + chance.below(5),
            think: [20 * MS, 80 * MS, 300 * MS][chance.below(3) as usize],
            keys: 6 + chance.below(30),
            segment: 8_192 + 4_096 * chance.below(8),
            rates: [0; MASTERS].map(|_| if chance.percent(60) { 1000 } else { 910 + chance.below(90) }),
        }
    }
}

fn rules(chance: &mut Chance) -> Rules {
    Rules {
        lease_ttl: 500 + chance.below(5_000),
        soft_pin_ttl: 5_000,
        high_watermark: 0.5 + chance.below(45) as f64 / 100.0,
        eviction_ratio: 0.05 + chance.below(20) as f64 / 100.0,
        discard_timeout: 1_000 + chance.below(4_000),
        release_timeout: 4_000 + chance.below(16_000),
        strategy: [Strategy::Random, Strategy::FreeRatioFirst, Strategy::LocalFirst]
            [chance.below(3) as usize],
        ..Rules::default()
    }
}
