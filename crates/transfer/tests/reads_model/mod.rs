//! Virtual time: a source, a collector and the READs between them, to compare the shipped policy
//! ([`catchment_transfer::refill`]) under several loads with an oracle that knows the future.
//!
//! The source claims a slot, is busy for `t_write_ns`, and commits; the block is at the collector
//! then. The collector serves blocks in order and releases each slot. A READ shows what was
//! released by half of its time. The source notices a completed READ when it claims or commits, as
//! the shipped sender does, and claims again every `t_poll_ns` while it is refused.
//!
//! - *Stall*: a block is ready, and no slot is known to be free. What remains when every release is
//!   known half a READ's time after it happened is unavoidable.
//! - *Oracle*: the fewest READs without any stall that could be avoided. It knows all releases,
//!   posts each READ as late as possible, and may have any number in flight.
#![allow(dead_code, unreachable_pub, reason = "shared by a test and a bench")]

use catchment_transfer::Refill;
use catchment_transfer::refill::{Moment, Pace, ReadsInFlight};

/// How long things take, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// In words.
    pub name: &'static str,
    /// The source is busy with a block.
    pub t_write_ns: u64,
    /// From posting a READ to its completion.
    pub t_read_ns: u64,
    /// From one refused claim to the next.
    pub t_poll_ns: u64,
}

/// As the paper measured them. The goal is stated for these.
pub const PAPER: Times = Times { name: "paper", t_write_ns: 3500, t_read_ns: 5100, t_poll_ns: 100 };

/// A READ that takes less than a block.
pub const SHORT_READ: Times = Times { name: "short-read", t_read_ns: 2000, ..PAPER };

/// A READ that takes six blocks, twice a ring of three.
pub const LONG_READ: Times = Times { name: "long-read", t_read_ns: 20_000, ..PAPER };

/// When blocks are there to be sent, and how long the collector keeps each.
#[derive(Debug, Clone)]
pub struct Load {
    /// When each block is there, in rising order.
    pub ready_ns: Vec<u64>,
    /// How long the collector keeps it.
    pub service_ns: Vec<u64>,
}

/// The shapes of load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    /// Always a block to send.
    Steady,
    /// 200 blocks as fast as they go, then nothing for half a millisecond.
    Bursts,
    /// Always a block to send, and now and then one that the collector keeps 20 times as long.
    Stalls,
    /// Blocks come at random, two thirds of what could be sent.
    Paced,
}

/// The shapes that the goal names.
pub const SHAPES: [Shape; 3] = [Shape::Steady, Shape::Bursts, Shape::Stalls];

impl Shape {
    /// The name in the output.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steady => "steady",
            Self::Bursts => "bursts",
            Self::Stalls => "consumer-stalls",
            Self::Paced => "paced",
        }
    }

    /// `count` blocks of this shape. The collector takes 2 us for a block, a quarter more or less.
    pub fn load(self, count: usize, seed: u64) -> Load {
        let mut chance = Chance(seed | 1);
        let service = |chance: &mut Chance| {
            let usual = 1500 + chance.below(1000);
            let stalls = self == Self::Stalls && chance.below(200) == 0;
            if stalls { 20 * usual } else { usual }
        };
        let service_ns = (0..count).map(|_| service(&mut chance)).collect();
        let burst_ns = 200 * PAPER.t_write_ns + 500_000;
        let mut paced_ns = 0;
        let ready = |i: usize| match self {
            Self::Bursts => (i / 200) as u64 * burst_ns,
            Self::Paced => {
                paced_ns += PAPER.t_write_ns / 2 + chance.below(2 * PAPER.t_write_ns);
                paced_ns
            }
            Self::Steady | Self::Stalls => 0,
        };
        Load { ready_ns: (0..count).map(ready).collect(), service_ns }
    }
}

struct Chance(u64);

impl Chance {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) % limit
    }
}

/// The result of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Outcome {
    /// READs posted.
    pub reads: u64,
    /// Time with a block ready and no slot known to be free.
    pub stall_ns: u64,
    /// When the last block was committed, or how long it took.
    pub end_ns: u64,
}

/// The policy beside the oracle.
#[derive(Debug, Clone, Copy)]
pub struct Comparison {
    /// The shipped policy.
    pub policy: Outcome,
    /// The oracle.
    pub oracle: Outcome,
}

impl Comparison {
    /// Stall that could be avoided, as a part of the run.
    pub fn stall_share(&self) -> f64 {
        let avoidable = self.policy.stall_ns.saturating_sub(self.oracle.stall_ns);
        avoidable as f64 / self.policy.end_ns as f64
    }

    /// READs, as a multiple of the oracle's.
    pub fn reads_ratio(&self) -> f64 {
        self.policy.reads as f64 / self.oracle.reads as f64
    }
}

/// Runs one load with this policy, and by the oracle.
pub fn compare(refill: Refill, times: Times, load: &Load, slots: u32) -> Comparison {
    Comparison {
        policy: Source::new(refill, times, load, slots).run(),
        oracle: oracle(times, load, slots as usize),
    }
}

/// A source and a collector in turn: a round of the ring is sent, taken, and given back all together. The source
/// goes on `hold_ns` after it has sent the last one, which is when they are given back.
#[derive(Debug, Clone, Copy)]
pub struct Lockstep {
    /// How long things take.
    pub times: Times,
    /// Slots of the ring.
    pub slots: u32,
    /// From the last block of a round to its release.
    pub hold_ns: u64,
    /// Rounds; as many before them teach.
    pub rounds: usize,
    /// Blocks sent afterwards, each of which is given back 2 us after it came.
    pub afterwards: usize,
}

/// Runs it; returns what the rounds made, and the blocks afterwards.
pub fn lockstep(refill: Refill, of: Lockstep) -> [Outcome; 2] {
    let round = of.slots as usize;
    let all = 2 * of.rounds * round;
    let load = Load {
        ready_ns: vec![0; all + of.afterwards],
        service_ns: [vec![of.hold_ns; all], vec![2000; of.afterwards]].concat(),
    };
    let mut source = Source::new(refill, of.times, &load, of.slots);
    source.collector.at_once = round;
    let mut before = source.out;
    for i in 0..all {
        if i == all / 2 {
            before = source.out();
        }
        source.send(i);
        if (i + 1) % round == 0 {
            source.now_ns += of.hold_ns;
            source.notice();
        }
    }
    let middle = source.out();
    source.collector.at_once = 0;
    (all..all + of.afterwards).for_each(|i| source.send(i));
    [middle.since(&before), source.out().since(&middle)]
}

impl Outcome {
    fn since(&self, before: &Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            stall_ns: self.stall_ns - before.stall_ns,
            end_ns: self.end_ns - before.end_ns,
        }
    }
}

/// The collector: when each slot was released.
#[derive(Default)]
struct Collector {
    released_ns: Vec<u64>,
    /// So many blocks are given back together, if not 0.
    at_once: usize,
    kept: usize,
}

impl Collector {
    fn block(&mut self, at_ns: u64, service_ns: u64) {
        if self.at_once > 0 {
            self.kept += 1;
            if self.kept == self.at_once {
                self.kept = 0;
                self.released_ns.resize(self.released_ns.len() + self.at_once, at_ns + service_ns);
            }
            return;
        }
        let before = self.released_ns.last().copied().unwrap_or(0);
        self.released_ns.push(before.max(at_ns) + service_ns);
    }

    fn released_by(&self, ns: u64) -> usize {
        self.released_ns.partition_point(|&released| released <= ns)
    }
}

struct Source<'a> {
    times: Times,
    load: &'a Load,
    slots: u32,
    pace: Pace,
    reads_in_flight: ReadsInFlight,
    /// When the READs in flight were posted, oldest first.
    posted_ns: Vec<u64>,
    collector: Collector,
    now_ns: u64,
    moment: Moment,
    claimed: u32,
    /// Releases that are known.
    seen: u32,
    out: Outcome,
}

impl<'a> Source<'a> {
    fn new(refill: Refill, times: Times, load: &'a Load, slots: u32) -> Self {
        Source {
            times,
            load,
            slots,
            pace: Pace::new(refill, slots),
            reads_in_flight: ReadsInFlight::default(),
            posted_ns: Vec::new(),
            collector: Collector::default(),
            now_ns: 0,
            moment: Moment::default(),
            claimed: 0,
            seen: 0,
            out: Outcome::default(),
        }
    }

    fn known(&self) -> u32 {
        self.slots - (self.claimed - self.seen)
    }

    fn in_flight(&self) -> u32 {
        self.reads_in_flight.count() as u32
    }

    fn run(mut self) -> Outcome {
        (0..self.load.ready_ns.len()).for_each(|i| self.send(i));
        self.out()
    }

    fn out(&self) -> Outcome {
        Outcome { end_ns: self.now_ns, ..self.out }
    }

    fn send(&mut self, i: usize) {
        self.now_ns = self.now_ns.max(self.load.ready_ns[i]);
        self.claim();
        let wants = self.pace.reads_ahead(self.known(), self.in_flight(), self.moment);
        self.now_ns += self.times.t_write_ns;
        self.collector.block(self.now_ns, self.load.service_ns[i]);
        self.moment.commits += 1;
        self.notice();
        if wants {
            self.read();
        }
    }

    fn claim(&mut self) {
        self.notice();
        while self.known() == 0 {
            if self.pace.reads_when_empty(self.in_flight()) {
                self.read();
            }
            self.moment.refused += 1;
            self.now_ns += self.times.t_poll_ns;
            self.out.stall_ns += self.times.t_poll_ns;
            self.notice();
        }
        self.claimed += 1;
    }

    fn read(&mut self) {
        if !self.reads_in_flight.has_room() {
            return;
        }
        self.reads_in_flight.posted(&self.pace, self.moment);
        self.posted_ns.push(self.now_ns);
        self.out.reads += 1;
        self.notice();
    }

    fn notice(&mut self) {
        let read_ns = self.times.t_read_ns;
        while let Some(shows) = take_answer(&mut self.posted_ns, read_ns, self.now_ns) {
            let is_next = self.posted_ns.first().is_some_and(|next| next + read_ns <= self.now_ns);
            if is_next {
                // The sender looks at what both brought.
                self.reads_in_flight.overtaken(&self.pace, self.moment);
                continue;
            }
            let found = self.collector.released_by(shows) as u32 - self.seen;
            self.seen += found;
            let at_once = self.times.t_read_ns == 0;
            let all = self.known() == self.slots;
            self.reads_in_flight.completed(&self.pace, self.moment, found, all, at_once);
        }
    }
}

/// The run without stall that could be avoided, and the fewest READs for it.
fn oracle(times: Times, load: &Load, slots: usize) -> Outcome {
    let mut collector = Collector::default();
    let mut claims = Vec::new();
    let (mut now, mut out) = (0, Outcome::default());
    for (i, (&ready, &service)) in load.ready_ns.iter().zip(&load.service_ns).enumerate() {
        let wanted = ready.max(now);
        let slot_known = match i.checked_sub(slots) {
            Some(before) => collector.released_ns[before] + times.t_read_ns.div_ceil(2),
            None => 0,
        };
        now = wanted.max(slot_known);
        out.stall_ns += now - wanted;
        claims.push(now);
        now += times.t_write_ns;
        collector.block(now, service);
    }
    let mut known = slots;
    while known < claims.len() {
        known = collector.released_by(claims[known] - times.t_read_ns.div_ceil(2)) + slots;
        out.reads += 1;
    }
    out.end_ns = now;
    out
}

/// Takes the oldest READ that is answered by now, and returns the time of which its answer tells: the middle of
/// its way.
pub(crate) fn take_answer(posted_ns: &mut Vec<u64>, read_ns: u64, now_ns: u64) -> Option<u64> {
    let answered = posted_ns.first().is_some_and(|posted| posted + read_ns <= now_ns);
    answered.then(|| posted_ns.remove(0) + read_ns / 2)
}
