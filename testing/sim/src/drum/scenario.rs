//! What happens in a run of `soak drum`, all from the seed.
use super::world::Wire;
use crate::Random;

pub(super) const LEASE_NS: u64 = 200_000_000;
const MOST_CHANGES: u64 = 12;
const MOST_DEMANDS: u64 = 100;

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Others in place of a part of all applications.
    Replace(f64),
    /// A part of all applications weighs four times as much.
    Weigh(f64),
    /// What a host can send and complete becomes this many times as much.
    Capacities { host: u32, send: f64, completion: f64 },
    /// A host dies; another life of it may begin later.
    Kill { host: u32, down_ns: Option<u64> },
    /// A host does not run for a time.
    StandStill { host: u32, lasts_ns: u64 },
    /// Nothing passes between so many hosts and the others for a time.
    Cut { hosts: usize, lasts_ns: u64 },
    /// A part of all applications asks for little, or for all again.
    Ask(f64),
}

#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) seed: u64,
    pub(super) hosts: usize,
    pub(super) numbers: u32,
    pub(super) active: usize,
    pub(super) alpha: f64,
    pub(super) wire: Wire,
    /// By time.
    pub(super) changes: Vec<(u64, Change)>,
    /// All is over by then.
    pub(super) horizon_ns: u64,
}

impl Scenario {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x5eed_d803);
        let hosts = random.between(2, 9) as usize;
        let rtt_ns = random.pick(&[10_000, 100_000, 1_000_000, 5_000_000]).unwrap_or(100_000);
        let part = |random: &mut Random, most: u64| random.below(most + 1) as f64 / 100.0;
        let wire = Wire {
            rtt_ns,
            jitter_ns: rtt_ns / 5 + 2_000,
            loss: part(&mut random, 30),
            double: part(&mut random, 10),
            late: part(&mut random, 3),
            carries: false,
        };
        let rounds = random.between(50, 300);
        let horizon_ns = rounds * wire.round_ns();
        let count = random.between(1, MOST_CHANGES);
        let mut changes: Vec<(u64, Change)> = (0..count)
            .map(|_| (random.below(horizon_ns), change(hosts, horizon_ns, &mut random)))
            .collect();
        changes.sort_unstable_by_key(|(at_ns, _)| *at_ns);
        Self {
            seed,
            hosts,
            numbers: random.between(4, 12) as u32,
            active: random.between(1, 4) as usize,
            alpha: random.pick(&[0.5, 1.0, 2.0, 5.0]).unwrap_or(1.0),
            wire,
            changes,
            horizon_ns,
        }
    }
}

/// Draws a scenario from its seed.
pub(super) type Draw = fn(u64) -> Scenario;

impl Scenario {
    /// The kinds: what a fault of one is called.
    pub(super) const KINDS: [(&str, Draw); 3] =
        [("", Self::new), ("with demands: ", Self::with_demands), ("carried: ", Self::carrying)];

    /// The same, where data carry the numbers of their edges, too.
    fn carrying(seed: u64) -> Self {
        let mut new = Self::new(seed);
        new.wire.carries = true;
        new
    }

    /// The same, where applications also ask for more and for less all the time.
    fn with_demands(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0xa5c5_d803);
        let mut new = Self::new(seed);
        for _ in 0..random.between(1, MOST_DEMANDS) {
            let part = random.between(1, 50) as f64 / 100.0;
            new.changes.push((random.below(new.horizon_ns), Change::Ask(part)));
        }
        new.changes.sort_by_key(|(at_ns, _)| *at_ns);
        new
    }
}

fn change(hosts: usize, horizon_ns: u64, random: &mut Random) -> Change {
    let host = random.index(hosts) as u32;
    let lasts_ns = random.between(1, horizon_ns / 2);
    let part = random.between(1, 50) as f64 / 100.0;
    match random.below(6) {
        0 => Change::Replace(part),
        1 => Change::Weigh(part),
        2 => {
            let mut times = || random.between(25, 200) as f64 / 100.0;
            Change::Capacities { host, send: times(), completion: times() }
        }
        3 => {
            let down_ns = (random.below(3) > 0).then_some(lasts_ns);
            Change::Kill { host, down_ns }
        }
        4 => Change::StandStill { host, lasts_ns },
        _ => Change::Cut { hosts: random.index(hosts), lasts_ns },
    }
}
