//! Hosts, messages under way, and what is in force.
use super::population::Population;
use crate::{Chance, Random};
use catchment_control::drum::{Destination, Host, HostConfig, HostError, Input, Output};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

const LATE_NS: u64 = 100_000_000;
/// How much of a capacity rounding may take.
const ROUNDING: f64 = 1e-9;

/// What happens to messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) rtt_ns: u64,
    pub(super) jitter_ns: u64,
    pub(super) loss: f64,
    pub(super) double: f64,
    pub(super) late: f64,
}

#[derive(Debug)]
enum Event {
    Tick,
    Packet { from: u32, bytes: Vec<u8> },
    Gone(u32),
}

/// What was sent since it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// What one application has in force.
#[derive(Clone, Debug)]
struct Force {
    rate: f64,
    ends: Vec<Destination>,
}

pub(super) struct World {
    pub(super) population: Population,
    pub(super) hosts: Vec<Host>,
    pub(super) now: u64,
    pub(super) traffic: Traffic,
    /// Above any capacity, in Mops for so many seconds.
    pub(super) over: f64,
    pub(super) trace: u64,
    wire: Wire,
    random: Random,
    queue: BinaryHeap<Reverse<(u64, u64, u32)>>,
    events: BTreeMap<u64, Event>,
    next: u64,
    timers: Vec<u64>,
    dead: Vec<bool>,
    /// On which side of a cut each host is.
    pub(super) side: Vec<bool>,
    /// By host, then by application.
    force: Vec<BTreeMap<u32, Force>>,
    used: Vec<f64>,
    /// Hosts whose use has changed.
    touched: Vec<u32>,
    over_since: BTreeMap<u32, (u64, f64)>,
}

impl World {
    pub(super) fn new(
        population: Population,
        wire: Wire,
        lease_ns: u64,
        random: Random,
    ) -> Result<Self, HostError> {
        let count = population.members.len();
        let round_ns = (wire.rtt_ns + wire.jitter_ns).max(1_000_000);
        let make = |(host, member): (usize, &super::population::Member)| {
            let config = HostConfig {
                host: host as u32,
                incarnation: 1,
                alpha: population.alpha,
                beta: member.beta,
                send_capacity: member.send,
                completion_capacity: member.completion,
                round_ns,
                lease_ns,
                restarted: false,
            };
            Host::new(config, 0)
        };
        let hosts = population.members.iter().enumerate().map(make);
        let mut world = Self {
            hosts: hosts.collect::<Result<_, _>>()?,
            population,
            now: 0,
            traffic: Traffic::default(),
            over: 0.0,
            trace: 0xcbf2_9ce4_8422_2325,
            wire,
            random,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            next: 0,
            timers: vec![u64::MAX; count],
            dead: vec![false; count],
            side: vec![false; count],
            force: vec![BTreeMap::new(); count],
            used: vec![0.0; count],
            touched: Vec::new(),
            over_since: BTreeMap::new(),
        };
        for host in 0..count {
            let all = world.population.members[host].applications.clone();
            for application in all.into_values() {
                world.hosts[host].handle(0, Input::Join(application))?;
            }
            // Nobody begins at the same time as others.
            let at = world.random.below(round_ns);
            world.schedule(at, host as u32, Event::Tick);
        }
        Ok(world)
    }

    pub(super) fn round_ns(&self) -> u64 {
        (self.wire.rtt_ns + self.wire.jitter_ns).max(1_000_000)
    }

    fn schedule(&mut self, at: u64, host: u32, event: Event) {
        self.next += 1;
        self.queue.push(Reverse((at, self.next, host)));
        self.events.insert(self.next, event);
    }

    /// Tells a host of a change; it begins with its next tick, which is now.
    pub(super) fn change(&mut self, host: u32, input: Input<'_>) -> Result<(), HostError> {
        self.hosts[host as usize].handle(self.now, input)?;
        self.drain(host);
        Ok(())
    }

    /// A host is gone at once, and others hear of it.
    pub(super) fn kill(&mut self, host: u32) {
        self.dead[host as usize] = true;
        let old = std::mem::take(&mut self.force[host as usize]);
        old.values().for_each(|old| self.use_completions(old, -1.0));
        self.hold_all();
        for other in 0..self.hosts.len() as u32 {
            if other != host {
                let at =
                    self.now + self.wire.rtt_ns / 2 + self.random.below(self.wire.jitter_ns + 1);
                self.schedule(at, other, Event::Gone(host));
            }
        }
    }

    /// Runs until a time.
    pub(super) fn run(&mut self, until: u64) -> Result<(), HostError> {
        while let Some(&Reverse((at, number, host))) = self.queue.peek() {
            if at > until {
                break;
            }
            self.queue.pop();
            let Some(event) = self.events.remove(&number) else { continue };
            self.now = at;
            if self.dead[host as usize] {
                continue;
            }
            self.note(at, host, &event);
            let input = match &event {
                Event::Tick => {
                    if self.timers[host as usize] <= at {
                        self.timers[host as usize] = u64::MAX;
                    }
                    Input::Tick
                }
                Event::Packet { from, bytes } => Input::Packet { from: *from, bytes },
                Event::Gone(other) => Input::Gone(*other),
            };
            self.hosts[host as usize].handle(at, input)?;
            self.drain(host);
        }
        self.now = until;
        Ok(())
    }

    /// Every event, in order, becomes part of the trace (FNV-1a, over words).
    fn note(&mut self, at: u64, host: u32, event: &Event) {
        let what = match event {
            Event::Tick => 1,
            Event::Packet { from, bytes } => {
                u64::from(crc32fast::hash(bytes)) << 32 | u64::from(*from)
            }
            Event::Gone(other) => u64::from(*other) << 2 | 2,
        };
        for word in [at, u64::from(host), what] {
            self.trace = (self.trace ^ word).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn drain(&mut self, host: u32) {
        loop {
            match self.hosts[host as usize].poll(self.now) {
                Output::Rates => {
                    self.put_in_force(host);
                    self.hold_all();
                }
                Output::Send { to, bytes } => self.send(host, to, bytes),
                Output::Timeout(at) => {
                    if at < self.timers[host as usize] {
                        self.timers[host as usize] = at;
                        self.schedule(at.max(self.now), host, Event::Tick);
                    }
                    return;
                }
            }
        }
    }

    fn send(&mut self, from: u32, to: u32, bytes: Vec<u8>) {
        self.traffic.messages += 1;
        self.traffic.bytes += bytes.len() as u64;
        let chance = |random: &mut Random, part: f64| random.happens(Chance::of(part));
        if self.side[from as usize] != self.side[to as usize] {
            return;
        }
        let copies = if chance(&mut self.random, self.wire.double) { 2 } else { 1 };
        for _ in 0..copies {
            if chance(&mut self.random, self.wire.loss) {
                continue;
            }
            let late = if chance(&mut self.random, self.wire.late) { LATE_NS } else { 0 };
            let jitter = self.random.below(self.wire.jitter_ns / 2 + 1);
            let at = self.now + self.wire.rtt_ns / 2 + jitter + late;
            self.schedule(at, to, Event::Packet { from, bytes: bytes.clone() });
        }
    }

    /// Holds what changed against the capacities that it uses.
    fn put_in_force(&mut self, host: u32) {
        let rates = self.hosts[host as usize].rates().to_vec();
        let sent: f64 = rates.iter().map(|rate| rate.1).sum();
        let capacity = self.population.members[host as usize].send;
        // A host holds its own sending by itself; a breach counts as one of a second.
        self.over += (sent - capacity * (1.0 + ROUNDING)).max(0.0);
        let mut old = std::mem::take(&mut self.force[host as usize]);
        let mut new = BTreeMap::new();
        for (number, rate) in rates {
            let known = old.remove(&number);
            let member = &self.population.members[host as usize];
            let ends = member.applications.get(&number).map(|known| &known.destinations[..]);
            let ends = ends.unwrap_or_default();
            let same = known.as_ref().is_some_and(|old| old.rate == rate && old.ends == ends);
            let now = Force { rate, ends: ends.to_vec() };
            if !same {
                known.iter().for_each(|old| self.use_completions(old, -1.0));
                self.use_completions(&now, 1.0);
            }
            new.insert(number, now);
        }
        old.values().for_each(|old| self.use_completions(old, -1.0));
        self.force[host as usize] = new;
    }

    fn use_completions(&mut self, force: &Force, sign: f64) {
        for to in &force.ends {
            self.used[to.host as usize] += sign * force.rate * to.completions;
            self.touched.push(to.host);
        }
    }

    fn hold_all(&mut self) {
        while let Some(host) = self.touched.pop() {
            self.hold_against(host);
        }
    }

    /// Counts what is above a capacity while it is.
    fn hold_against(&mut self, host: u32) {
        let capacity = self.population.members[host as usize].completion;
        let over = self.used[host as usize] - capacity * (1.0 + ROUNDING);
        if let Some((since, much)) = self.over_since.remove(&host) {
            self.over += much * (self.now - since) as f64 * 1e-9;
        }
        if over > 0.0 {
            // Even for no time at all.
            self.over += over * 1e-12;
            self.over_since.insert(host, (self.now, over));
        }
    }

    /// What an application has in force.
    pub(super) fn rate(&self, host: u32, application: u32) -> f64 {
        self.force[host as usize].get(&application).map_or(0.0, |force| force.rate)
    }

    pub(super) fn rounds(&self) -> Vec<u64> {
        self.hosts.iter().map(|host| host.counts().rounds).collect()
    }

    pub(super) fn fell_back(&self) -> u64 {
        self.hosts.iter().map(|host| host.counts().fell_back).sum()
    }
}
