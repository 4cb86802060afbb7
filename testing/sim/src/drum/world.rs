//! Hosts, messages under way, and what is in force.
use super::population::Population;
use crate::{Chance, Random};
use catchment_control::drum::{
    Carried, Destination, Host, HostConfig, HostError, Input, Numbers, Output,
};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

/// By how much messages are late that are.
pub(super) const LATE_NS: u64 = 100_000_000;

/// What happens to messages.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wire {
    pub(super) rtt_ns: u64,
    pub(super) jitter_ns: u64,
    pub(super) loss: f64,
    pub(super) double: f64,
    pub(super) late: f64,
    /// Whether data carry the numbers of their edges, too: a packet of each edge for each message.
    pub(super) carries: bool,
}

#[derive(Debug)]
enum Event {
    Tick,
    /// Between these lives of both.
    Packet {
        from: u32,
        lives: [u32; 2],
        bytes: Vec<u8>,
    },
    /// Between these lives of both, and these applications.
    Data {
        from: u32,
        lives: [u32; 2],
        ends: (u32, u32),
        stamp: u16,
        numbers: Numbers,
    },
    /// The session with this life of a host has ended.
    Gone(u32, u32),
    /// A host that stood still goes on.
    Wake,
}

/// What was sent since it was last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    pub(super) messages: u64,
    pub(super) bytes: u64,
}

/// What one application has in force.
#[derive(Clone, Debug)]
pub(super) struct Force {
    pub(super) rate: f64,
    pub(super) ends: Vec<Destination>,
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
    lease_ns: u64,
    dead: Vec<bool>,
    /// By host: its life, and those of others that it has a session with.
    lives: Vec<u32>,
    met: Vec<Vec<u32>>,
    /// Until when a host stands still.
    stands: Vec<u64>,
    /// What it is told of then.
    waiting: Vec<Vec<Input<'static>>>,
    /// On which side of a cut each host is.
    pub(super) side: Vec<bool>,
    /// By host, then by application.
    pub(super) force: Vec<BTreeMap<u32, Force>>,
    pub(super) used: Vec<f64>,
    /// Hosts whose use has changed.
    pub(super) touched: Vec<u32>,
    /// What hosts granted before they could complete less, and until when that may be used.
    pub(super) granted: BTreeMap<u32, (f64, u64)>,
    pub(super) over_since: BTreeMap<u32, (u64, f64)>,
}

impl Wire {
    /// Returns the least time of a round.
    pub(super) fn round_ns(&self) -> u64 {
        (self.rtt_ns + self.jitter_ns).max(1_000_000)
    }
}

fn config(
    population: &Population,
    host: u32,
    incarnation: u32,
    (round_ns, lease_ns): (u64, u64),
) -> HostConfig {
    let member = &population.members[host as usize];
    HostConfig {
        host,
        incarnation,
        alpha: population.alpha,
        beta: member.beta,
        send_capacity: member.send,
        completion_capacity: member.completion,
        round_ns,
        lease_ns,
        restarted: false,
    }
}

impl World {
    pub(super) fn new(
        population: Population,
        wire: Wire,
        lease_ns: u64,
        random: Random,
    ) -> Result<Self, HostError> {
        let count = population.members.len();
        let round_ns = wire.round_ns();
        let make = |host| Host::new(config(&population, host, 1, (round_ns, lease_ns)), 0);
        let hosts = (0..count as u32).map(make);
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
            lease_ns,
            dead: vec![false; count],
            lives: vec![1; count],
            met: vec![vec![1; count]; count],
            stands: vec![0; count],
            waiting: vec![Vec::new(); count],
            side: vec![false; count],
            force: vec![BTreeMap::new(); count],
            used: vec![0.0; count],
            touched: Vec::new(),
            granted: BTreeMap::new(),
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
        self.wire.round_ns()
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

    /// Tells hosts of changes that happen together; those that stand still, later.
    pub(super) fn change_all(
        &mut self,
        changes: impl IntoIterator<Item = (u32, Input<'static>)>,
    ) -> Result<(), HostError> {
        let mut changed = BTreeSet::new();
        for (host, input) in changes {
            if self.now < self.stands[host as usize] {
                self.waiting[host as usize].push(input);
            } else {
                self.hosts[host as usize].handle(self.now, input)?;
                changed.insert(host);
            }
        }
        for host in changed {
            self.drain(host);
            // Where an application sends changes with it, even if its rate does not.
            self.put_in_force(host);
            self.hold_all();
        }
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
                self.schedule(at, other, Event::Gone(host, self.lives[host as usize]));
            }
        }
    }

    /// A dead host begins another life, with the applications that the population has for it.
    pub(super) fn restart(&mut self, host: u32) -> Result<(), HostError> {
        let at = host as usize;
        self.dead[at] = false;
        self.lives[at] += 1;
        // It meets others as they are, or will be.
        let lives = self.lives.iter().zip(&self.dead);
        self.met[at] = lives.map(|(life, dead)| life + u32::from(*dead)).collect();
        let times = (self.round_ns(), self.lease_ns);
        let config =
            HostConfig { restarted: true, ..config(&self.population, host, self.lives[at], times) };
        self.hosts[at] = Host::new(config, self.now)?;
        self.timers[at] = u64::MAX;
        self.stands[at] = 0;
        self.waiting[at].clear();
        let all = self.population.members[at].applications.clone();
        for application in all.into_values() {
            self.hosts[at].handle(self.now, Input::Join(application))?;
        }
        self.drain(host);
        Ok(())
    }

    pub(super) fn is_dead(&self, host: u32) -> bool {
        self.dead[host as usize]
    }

    /// A host stands still: it sends nothing, and what comes waits.
    pub(super) fn stand_still(&mut self, host: u32, until: u64) {
        let at = host as usize;
        self.stands[at] = until.max(self.stands[at]);
        let old = std::mem::take(&mut self.force[at]);
        old.values().for_each(|old| self.use_completions(old, -1.0));
        self.hold_all();
        // Before all that waits.
        self.schedule(until, host, Event::Wake);
    }

    /// What a host can send and complete is another now.
    pub(super) fn set_capacities(
        &mut self,
        host: u32,
        (send, completion): (f64, f64),
    ) -> Result<(), HostError> {
        let member = &mut self.population.members[host as usize];
        if completion < member.completion {
            let (most, _) = self.granted.get(&host).copied().unwrap_or_default();
            // Who has not heard of less by then has no grant any more.
            let until = self.now + self.lease_ns + 2 * self.wire.round_ns();
            self.granted.insert(host, (most.max(member.completion), until));
        }
        (member.send, member.completion) = (send, completion);
        self.change_all([(host, Input::Capacities { send, completion })])
    }

    /// From now on nothing happens to messages.
    pub(super) fn heal(&mut self) {
        self.wire = Wire { loss: 0.0, double: 0.0, late: 0.0, ..self.wire };
        self.side.fill(false);
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
            let awake_at = self.stands[host as usize];
            if at < awake_at {
                self.schedule(awake_at, host, event);
                continue;
            }
            self.note(at, host, &event);
            self.meet(at, host, &event)?;
            if matches!(event, Event::Wake) {
                self.put_in_force(host);
                self.hold_all();
            }
        }
        self.now = until;
        Ok(())
    }

    /// A host meets an event.
    fn meet(&mut self, now: u64, host: u32, event: &Event) -> Result<(), HostError> {
        let at = host as usize;
        let input = match event {
            Event::Wake => {
                for input in std::mem::take(&mut self.waiting[at]) {
                    self.hosts[at].handle(now, input)?;
                }
                Input::Tick
            }
            Event::Tick => {
                if self.timers[at] <= now {
                    self.timers[at] = u64::MAX;
                }
                Input::Tick
            }
            Event::Packet { from, lives, .. } | Event::Data { from, lives, .. }
                if *lives != [self.met[at][*from as usize], self.lives[at]] =>
            {
                return Ok(());
            }
            Event::Packet { from, bytes, .. } => Input::Packet { from: *from, bytes },
            &Event::Data { from, ends, stamp, numbers, .. } => {
                Input::Carried { from, ends, stamp, numbers }
            }
            Event::Gone(other, life) => {
                if self.met[at][*other as usize] > *life {
                    return Ok(());
                }
                self.met[at][*other as usize] = life + 1;
                Input::Gone(*other)
            }
        };
        self.hosts[at].handle(now, input)?;
        self.drain(host);
        Ok(())
    }

    /// Every event, in order, becomes part of the trace (FNV-1a, over words).
    fn note(&mut self, at: u64, host: u32, event: &Event) {
        let what = match event {
            Event::Tick => 1,
            Event::Packet { from, bytes, .. } => {
                u64::from(crc32fast::hash(bytes)) << 32 | u64::from(*from)
            }
            Event::Data { from, numbers, .. } => {
                u64::from(crc32fast::hash(numbers)) << 32 | u64::from(*from) << 3 | 4
            }
            Event::Gone(other, _) => u64::from(*other) << 2 | 2,
            Event::Wake => 3,
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
                Output::Send { to, bytes } => {
                    self.send(host, to, bytes);
                    self.send_data(host, to);
                }
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
        let lives = self.lives_of(from, to);
        let copies = if self.random.happens(Chance::of(self.wire.double)) { 2 } else { 1 };
        for _ in 0..copies {
            self.carry(from, to, Event::Packet { from, lives, bytes: bytes.clone() });
        }
    }

    /// One end's life, and the life of the other end as it knows it.
    fn lives_of(&self, from: u32, to: u32) -> [u32; 2] {
        [self.lives[from as usize], self.met[from as usize][to as usize]]
    }

    /// Something goes from one host to another, or is lost.
    fn carry(&mut self, from: u32, to: u32, event: Event) {
        let chance = |random: &mut Random, part: f64| random.happens(Chance::of(part));
        let is_cut = self.side[from as usize] != self.side[to as usize];
        if is_cut || chance(&mut self.random, self.wire.loss) {
            return;
        }
        let late = if chance(&mut self.random, self.wire.late) { LATE_NS } else { 0 };
        let jitter = self.random.below(self.wire.jitter_ns / 2 + 1);
        self.schedule(self.now + self.wire.rtt_ns / 2 + jitter + late, to, event);
    }

    /// Data of each edge of two hosts, with their numbers.
    fn send_data(&mut self, from: u32, to: u32) {
        if !self.wire.carries {
            return;
        }
        let at = from as usize;
        let lives = self.lives_of(from, to);
        let used = self.force[at].iter().filter(|(_, force)| force.rate > 0.0);
        let ends = used.flat_map(|(number, force)| {
            let there = force.ends.iter().filter(|end| end.host == to);
            there.map(|end| (*number, end.application))
        });
        let host = &self.hosts[at];
        let all: Vec<((u32, u32), Carried)> =
            ends.filter_map(|ends| Some((ends, host.carried(ends.0, (to, ends.1))?))).collect();
        for (ends, carried) in all {
            let (stamp, numbers) = (carried.stamp, carried.encode());
            self.carry(from, to, Event::Data { from, lives, ends, stamp, numbers });
        }
    }

    /// What an application has in force.
    pub(super) fn rate(&self, host: u32, application: u32) -> f64 {
        self.force[host as usize].get(&application).map_or(0.0, |force| force.rate)
    }

    pub(super) fn rounds(&self) -> Vec<u64> {
        self.hosts.iter().map(|host| host.counts().rounds).collect()
    }

    pub(super) fn carried(&self) -> u64 {
        self.hosts.iter().map(|host| host.counts().carried).sum()
    }

    pub(super) fn fell_back(&self) -> u64 {
        self.hosts.iter().map(|host| host.counts().fell_back).sum()
    }
}
