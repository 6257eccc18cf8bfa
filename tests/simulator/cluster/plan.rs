//! What a seed decides before anything happens: how slow the network is, which faults there are, how the masters are set
//! up and how the clients behave.

use std::time::Duration;

use moonkeeper::engine::settings::{EngineSettings, Strategy};

use super::rng::Rng;

/// A second in the simulator's time.
pub const SECOND: u64 = 1_000_000;
/// A millisecond in the simulator's time.
pub const MS: u64 = 1_000;

/// What the schedules of a seed are about. Among everything that can go wrong, some schedules come together hardly ever;
/// each of these makes a few of them frequent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Focus {
    /// Whatever there is.
    Everything,
    /// Hand-overs that succeed, stall and are given up, and what has to be written down before them.
    HandOver,
    /// Leases that are lost, taken away or heard of late.
    Lease,
    /// Logs that are damaged, and states that are not what the log says.
    Log,
    /// Memory that comes and goes while it is written and read, and a log that is slow and full.
    Memory,
}

impl Focus {
    pub fn of(seed: u64) -> Self {
        match seed % 8 {
            1 | 5 => Self::HandOver,
            2 => Self::Lease,
            4 => Self::Log,
            7 => Self::Memory,
            _ => Self::Everything,
        }
    }

    /// Which faults there are, by weight.
    fn faults(self, rng: &mut Rng) -> Vec<(Fault, u64)> {
        let own: &[(Fault, u64)] = match self {
            Self::Everything => return ALL.into_iter().filter(|_| rng.percent(65)).collect(),
            Self::HandOver => &[
                (Fault::StalledTarget, 24),
                (Fault::Switchover, 24),
                (Fault::Forsaken, 12),
                (Fault::Stop, 6),
                (Fault::Silence, 4),
            ],
            Self::Lease => &[
                (Fault::LeaseEdge, 24),
                (Fault::Relapse, 16),
                (Fault::Blind, 30),
                (Fault::Usurp, 4),
                (Fault::Revoke, 4),
            ],
            Self::Log => &[
                (Fault::Damage, 30),
                (Fault::Corrupt, 16),
                (Fault::Restore, 6),
                (Fault::Kill, 6),
                (Fault::Revoke, 6),
            ],
            Self::Memory => {
                &[(Fault::Silence, 10), (Fault::NoSpace, 4), (Fault::Kill, 4), (Fault::Revoke, 4)]
            }
        };
        let others = ALL.into_iter().filter(|(fault, _)| own.iter().all(|(known, _)| known != fault));
        let others: Vec<_> =
            others.filter(|_| rng.percent(30)).map(|(fault, weight)| (fault, weight.div_ceil(4))).collect();
        own.iter().copied().chain(others).collect()
    }
}

/// What the seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    pub focus: Focus,
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
    pub settings: EngineSettings,
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
    /// How many masters there are.
    pub masters: usize,
    /// The speed of each master's monotonic clock, in thousandths of that of clients. The design allows for a tenth
    /// between a master and etcd: a primary takes as much off its lease.
    pub rates: Vec<u64>,
    /// The speed of etcd's clock, in thousandths of that of clients.
    pub etcd_rate: u64,
    /// How long a hand-over may take.
    pub handover_timeout: Duration,
    /// Masters have a data directory.
    pub data_dir: bool,
    /// Answers to the end of a write may leave with so many records missing, unless these take longer than that.
    pub relaxed: Option<(u64, Duration)>,
    /// How long a client waits for an answer.
    pub client_patience: u64,
    /// Of a hundred objects so many are in a group.
    pub groups: u64,
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
    /// No master reaches etcd for a while.
    Away,
    /// Watches of a master say nothing for a while.
    Stall,
    /// The history of etcd is given up.
    Compact,
    /// A standby is told that the primary is dead although it is not.
    WrongDeath,
    /// An operator asks for another primary.
    Switchover,
    /// An operator asks a master to end.
    Stop,
    /// The leader's lease is revoked by another etcd client.
    Revoke,
    /// The leader does not reach etcd, is taken for dead and goes on answering for as long as it may.
    Usurp,
    /// A standby sees the leader go, and then nothing of the next one until that one is taken for dead, too.
    Blind,
    /// The target of a hand-over stands still.
    StalledTarget,
    /// A standby loses its connection to the primary.
    Disconnect,
    /// A client does nothing for a while.
    Silence,
    /// etcd has no space for a while.
    NoSpace,
    /// Keys of the log are deleted or changed by hand, and put back.
    Damage,
    /// etcd is restored from a backup, and then from a newer one.
    Restore,
    /// A bit turns in the state of one master.
    Corrupt,
    /// The leader hears late that its lease holds, and then nothing more.
    LeaseEdge,
    /// The leader loses its lease, leads again, and then hears of a write of its earlier term.
    Relapse,
    /// A client falls silent, a hand-over is given up, and nothing else happens until the client has to be missed.
    Forsaken,
}

/// All of them, with their usual weight.
pub const ALL: [(Fault, u64); 22] = [
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
    (Fault::Blind, 10),
    (Fault::StalledTarget, 12),
    (Fault::Disconnect, 2),
    (Fault::Silence, 8),
    (Fault::NoSpace, 2),
    (Fault::Damage, 6),
    (Fault::Restore, 2),
    (Fault::Corrupt, 4),
    (Fault::LeaseEdge, 4),
    (Fault::Relapse, 4),
    (Fault::Forsaken, 1),
];

/// Time-outs in the proportions that a real cluster has.
struct Timeouts {
    leader_ttl: Duration,
    keep_alive: Duration,
    call: Duration,
    handover: Duration,
}

impl Timeouts {
    fn new(rng: &mut Rng) -> Self {
        if rng.percent(15) {
            let seconds = Duration::from_secs;
            return Self {
                leader_ttl: seconds(5),
                keep_alive: seconds(1),
                call: seconds(2),
                handover: seconds(10),
            };
        }
        let leader_ttl = Duration::from_secs(2 + rng.below(4));
        let call = Duration::from_millis([300, 1_000, 2_000][rng.below(3) as usize]);
        Self {
            leader_ttl,
            keep_alive: leader_ttl / [3, 5, 8][rng.below(3) as usize],
            call,
            handover: call * 3,
        }
    }
}

impl Plan {
    /// What a seed decides.
    pub fn new(seed: u64, rng: &mut Rng) -> Self {
        let focus = Focus::of(seed);
        let faults = focus.faults(rng);
        let quiet = focus == Focus::Everything && rng.percent(10);
        let lonely = !quiet && rng.percent(if focus == Focus::Log { 50 } else { 10 });
        let odds = |rng: &mut Rng, most: u64| if rng.percent(50) { rng.below(most) } else { 0 };
        let (busy, soon) = (focus == Focus::Memory, focus == Focus::HandOver);
        let delay = if busy { 8 * MS } else { [100, 500, 2 * MS, 8 * MS][rng.below(4) as usize] };
        let timeouts = Timeouts::new(rng);
        let masters = [3, 3, 3, 3, 3, 3, 2, 2, 5, 5][rng.below(10) as usize];
        // Another master leads meanwhile that one of the two knows nothing of.
        let masters = if focus == Focus::Lease { masters.max(3) } else { masters };
        let rates: Vec<u64> =
            (0..masters).map(|_| if rng.percent(60) { 1000 } else { 910 + rng.below(90) }).collect();
        // No master may be slower than etcd by more than a tenth.
        let slowest_clock = rates.iter().copied().min().unwrap_or(1000);
        let etcd_rate = match rng.below(3) {
            0 => 1000,
            1 => 920 + rng.below(80),
            _ => 1000 + (slowest_clock - 910),
        };
        let roomy = rng.percent(35);
        let faults_until = (20 + rng.below(25)) * SECOND;
        let work_until = faults_until + 22 * SECOND;
        Self {
            focus,
            faults_until,
            work_until,
            end: work_until + 4 * SECOND,
            delay,
            slow: if quiet { 0 } else { odds(rng, if lonely { 2_000 } else { 400 }) },
            slowest: [500 * MS, 2 * SECOND, 6 * SECOND][rng.below(3) as usize],
            lonely,
            lost_requests: if quiet { 0 } else { odds(rng, 300) },
            lost_answers: if quiet { 0 } else { odds(rng, 400) },
            twice: if quiet { 0 } else { odds(rng, 500) },
            refused: if quiet { 0 } else { odds(rng, 100) },
            faults: if quiet { Vec::new() } else { faults },
            fault_every: [SECOND, SECOND, 2 * SECOND, 2 * SECOND, 4 * SECOND, 16 * SECOND]
                [rng.below(6) as usize],
            leader_ttl: timeouts.leader_ttl,
            keep_alive: timeouts.keep_alive,
            call_timeout: timeouts.call,
            handover_timeout: timeouts.handover,
            queue_bytes: [800, if busy { 800 } else { 4_000 }, 1 << 20][rng.below(3) as usize],
            settings: settings(rng, roomy),
            client_ttl: 5_000 + rng.below(if soon { 1_000 } else { 8_000 }),
            inherited_ttl: 6_000 + rng.below(if soon { 1_000 } else { 12_000 }),
            clients: 4 + rng.below(5),
            think: if busy { 20 * MS } else { [20 * MS, 80 * MS, 300 * MS][rng.below(3) as usize] },
            keys: 6 + rng.below(30),
            segment: if roomy { 1 << 22 } else { 8_192 + 4_096 * rng.below(8) },
            masters,
            rates,
            etcd_rate,
            data_dir: rng.percent(50),
            relaxed: rng.percent(10).then(|| (1 + rng.below(16), Duration::from_millis(50))),
            client_patience: if rng.percent(12) { 12 * SECOND } else { 2 * SECOND },
            groups: if focus == Focus::HandOver { 60 } else { 15 },
        }
    }

    /// By when a client that a primary has not heard has no memory any more: a slow clock, the interval of upkeep and of
    /// the check, and the commit of the record that says so.
    pub fn missed_after(&self) -> u64 {
        let deadline = self.client_ttl.max(self.inherited_ttl) * MS;
        deadline + deadline / 8 + 4 * SECOND + 3 * self.call_timeout.as_micros() as u64
    }

    /// How long a cluster without faults may be without a primary: a lease runs out, what is in the way of a hand-over
    /// gives up, and each step of an election may need another attempt.
    pub fn patience(&self) -> u64 {
        let micros = |time: Duration| time.as_micros() as u64;
        let messages = self.slow + self.lost_requests + self.lost_answers + self.refused;
        let attempts = if messages == 0 { 3 } else { 6 };
        let slowest = if self.slow == 0 { 0 } else { self.slowest };
        2 * micros(self.leader_ttl) + 4 * SECOND + attempts * micros(self.call_timeout) + slowest
    }
}

/// With room for everything nothing is evicted, and what was acknowledged stays.
fn settings(rng: &mut Rng, roomy: bool) -> EngineSettings {
    EngineSettings {
        lease_ttl_ms: 500 + rng.below(5_000),
        soft_pin_ttl_ms: 5_000,
        high_watermark: if roomy { 0.99 } else { 0.5 + rng.below(45) as f64 / 100.0 },
        eviction_ratio: 0.05 + rng.below(20) as f64 / 100.0,
        discard_timeout_ms: 1_000 + rng.below(4_000),
        release_timeout_ms: 4_000 + rng.below(16_000),
        strategy: [Strategy::Random, Strategy::FreeRatioFirst, Strategy::LocalFirst][rng.below(3) as usize],
        ..EngineSettings::default()
    }
}
