//! Connections that ask again when they were answered, and what came of it.
use crate::costs::{Method, Window};
use crate::host::Host;
use crate::port::{Ask, Port};
use anyhow::{Context as _, Result};
use catchment_sim::Random;
use catchment_sim::verbs::{Did, Fabric, Model, Pace};
use std::collections::BTreeMap;
use std::time::Duration;

/// What came of a run, without its first tenth.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Came {
    /// Operations a second.
    pub ops_per_s: f64,
    /// Bytes of theirs a second.
    pub bytes_per_s: f64,
    /// From asking to learning of the completion, in ns.
    pub latency_ns_mean: f64,
    /// Percentiles of the same: 10, 50, 80, 90, 99.
    pub latency_ns: [f64; 5],
    /// States that NICs fetched, for each request.
    pub misses_per_op: f64,
    /// Doorbells for each request.
    pub doorbells_per_op: f64,
    /// The part of the time that the pipe of the (first) asking host was at work.
    pub pipe_busy_fraction: f64,
    /// The part that its agent's processor was at work; 0 without one.
    pub agent_busy_fraction: f64,
}

/// Connections with as many requests outstanding.
#[derive(Debug, Clone, Copy)]
pub struct Connections {
    /// How they share the device.
    pub method: Method,
    /// What the agent has in the device's hands.
    pub window: Window,
    /// How many connections.
    pub connections: usize,
    /// WRITEs of a batch; the next follows when all are complete.
    pub batch: usize,
    /// Bytes of each.
    pub bytes: u32,
    /// WRITEs that are done.
    pub count: u64,
}

/// One connection of some that has one WRITE outstanding, while the others post batches of 32 bytes.
#[derive(Debug, Clone, Copy)]
pub struct Background {
    /// All connections. `batch` is that of the others; `bytes` and `count` are of the one.
    pub all: Connections,
}

/// A connection of RAW whose completions are looked for at a rate; it posts a batch after each look.
#[derive(Debug, Clone, Copy)]
pub struct Polled {
    /// Looks a second.
    pub polls_per_s: f64,
    /// WRITEs of 32 bytes that are posted after each.
    pub batch: usize,
    /// Looks.
    pub count: u64,
}

/// Clients on five hosts of a store on a sixth, with one operation outstanding each.
#[derive(Debug, Clone, Copy)]
pub struct Store {
    /// How connections share devices.
    pub method: Method,
    /// Clients on all hosts.
    pub clients: usize,
    /// Parts of 100 that are GETs.
    pub gets: u64,
    /// Bytes of a value.
    pub bytes: u32,
    /// Operations that are done.
    pub count: u64,
    /// Of the choice of operations.
    pub seed: u64,
}

/// Bytes of the background's WRITEs, and of the index of a store.
const SMALL: u32 = 32;
const INDEX: u32 = 64;
const WORD: u32 = 8;
const STORE_HOSTS: usize = 5;

/// Hosts with one target.
struct World {
    fabric: Fabric,
    hosts: Vec<Host>,
    _target: Port,
}

impl World {
    fn new(hosts: usize, how: (Method, Window), connections: usize) -> Result<Self> {
        let fabric = Fabric::with_nics(Model::paper(), Pace::ByCaller);
        let mut target = Port::open(&fabric)?;
        let host = |at: usize| {
            let connections = (connections + hosts - 1 - at) / hosts;
            Host::new(&fabric, &mut target, how, connections)
        };
        let hosts = (0..hosts).map(host).collect::<Result<_>>()?;
        Ok(Self { fabric, hosts, _target: target })
    }

    /// Advances to the next event, or to then if that is earlier; returns the time.
    fn step(&mut self, until: Option<Duration>) -> Result<Duration> {
        let hosts = self.hosts.iter().filter_map(Host::next_event);
        let next = hosts.chain(self.fabric.next_event()).chain(until).min();
        let next = next.context("all wait for each other")?;
        self.fabric.advance_to(next);
        for host in &mut self.hosts {
            host.advance(next)?;
        }
        Ok(next)
    }

    fn did(&self) -> Vec<Did> {
        self.hosts.iter().map(|host| self.fabric.did(host.gid())).collect()
    }
}

/// What is measured of a run: the first tenth of its operations does not count.
struct Meter {
    count: u64,
    warm: u64,
    seen: u64,
    began: Duration,
    ended: Duration,
    latencies: Vec<u64>,
    bytes: u64,
}

impl Meter {
    fn new(count: u64) -> Self {
        Self {
            count,
            warm: count / 10,
            seen: 0,
            began: Duration::ZERO,
            ended: Duration::ZERO,
            latencies: Vec::new(),
            bytes: 0,
        }
    }

    fn is_done(&self) -> bool {
        self.seen >= self.count
    }

    fn add(&mut self, now: Duration, asked: Duration, bytes: u64) {
        self.seen += 1;
        if self.seen <= self.warm {
            self.began = now;
            return;
        }
        self.ended = now;
        self.bytes += bytes;
        self.latencies.push(u64::try_from((now - asked).as_nanos()).unwrap_or(u64::MAX));
    }

    fn came(mut self, world: &World) -> Came {
        let seconds = (self.ended - self.began).as_secs_f64().max(1e-12);
        let whole = self.ended.as_secs_f64().max(1e-12);
        self.latencies.sort_unstable();
        let count = self.latencies.len().max(1) as f64;
        let at = |part: f64| {
            let place = ((count * part).ceil() as usize).saturating_sub(1);
            self.latencies.get(place).copied().unwrap_or(0) as f64
        };
        let did = world.did();
        let sum = |of: fn(&Did) -> u64| did.iter().map(of).sum::<u64>() as f64;
        let requests = sum(|did| did.requests).max(1.0);
        let first = did.first().copied().unwrap_or_default();
        let agent = world.hosts.first().and_then(Host::agent_busy).unwrap_or_default();
        Came {
            ops_per_s: count / seconds,
            bytes_per_s: self.bytes as f64 / seconds,
            latency_ns_mean: self.latencies.iter().sum::<u64>() as f64 / count,
            latency_ns: [0.1, 0.5, 0.8, 0.9, 0.99].map(at),
            misses_per_op: sum(|did| did.misses) / requests,
            doorbells_per_op: sum(|did| did.doorbells) / requests,
            pipe_busy_fraction: first.busy.as_secs_f64() / whole,
            agent_busy_fraction: agent.as_secs_f64() / whole,
        }
    }
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, Default)]
struct Waits {
    left: usize,
    asked: Duration,
}

impl Connections {
    /// Runs it.
    ///
    /// # Errors
    /// A request failed.
    pub fn run(&self) -> Result<Came> {
        self.run_with(|_| (self.batch, self.bytes), |_| true)
    }

    /// Runs it with batches and bytes for each connection; tells what is measured.
    fn run_with(
        &self,
        batch: impl Fn(usize) -> (usize, u32),
        counts: impl Fn(usize) -> bool,
    ) -> Result<Came> {
        let mut world = World::new(1, (self.method, self.window), self.connections)?;
        let mut meter = Meter::new(self.count);
        let mut waits = vec![Waits::default(); self.connections];
        let begin = |host: &mut Host, now, connection, waits: &mut Waits| {
            let (batch, bytes) = batch(connection);
            *waits = Waits { left: batch, asked: now };
            host.ask(now, connection, vec![Ask::Write(bytes); batch]);
        };
        for (connection, waits) in waits.iter_mut().enumerate() {
            begin(&mut world.hosts[0], Duration::ZERO, connection, waits);
        }
        while !meter.is_done() {
            let now = world.step(None)?;
            while let Some(connection) = world.hosts[0].answer(now) {
                let waits = &mut waits[connection];
                if counts(connection) {
                    meter.add(now, waits.asked, batch(connection).1.into());
                }
                waits.left -= 1;
                if waits.left == 0 {
                    begin(&mut world.hosts[0], now, connection, waits);
                }
            }
        }
        Ok(meter.came(&world))
    }
}

impl Background {
    /// Runs it: what came is of the one connection.
    ///
    /// # Errors
    /// A request failed.
    pub fn run(&self) -> Result<Came> {
        let Connections { batch, bytes, .. } = self.all;
        let of = |connection| if connection == 0 { (1, bytes) } else { (batch, SMALL) };
        self.all.run_with(of, |connection| connection == 0)
    }
}

impl Polled {
    /// Runs it; returns operations a second and operations for each look.
    ///
    /// # Errors
    /// A request failed.
    pub fn run(&self) -> Result<(f64, f64)> {
        let mut world = World::new(1, (Method::Raw, Window::Default), 1)?;
        let interval = Duration::from_secs_f64(1.0 / self.polls_per_s);
        let (mut came, mut taken, mut looks) = (0u64, 0u64, 0u64);
        let mut next = Duration::ZERO;
        while looks < self.count {
            let now = world.step(Some(next))?;
            while world.hosts[0].answer(now).is_some() {
                came += 1;
            }
            if now < next {
                continue;
            }
            taken += std::mem::take(&mut came);
            looks += 1;
            next += interval;
            world.hosts[0].ask(now, 0, vec![Ask::Write(SMALL); self.batch]);
        }
        // The first look found nothing: nothing was posted before it.
        let intervals = (looks - 1).max(1) as f64;
        let per_look = taken as f64 / intervals;
        Ok((per_look * self.polls_per_s, per_look))
    }
}

impl Store {
    /// Runs it.
    ///
    /// # Errors
    /// A request failed.
    pub fn run(&self) -> Result<Came> {
        let how = (self.method, Window::Default);
        let mut world = World::new(STORE_HOSTS, how, self.clients)?;
        let mut random = Random::new(self.seed);
        let mut meter = Meter::new(self.count);
        // Of each client by host and connection: what follows, and when it began.
        let mut clients: BTreeMap<(usize, usize), (Option<Ask>, Duration)> = BTreeMap::new();
        let mut begin = |host: &mut Host, now, connection| {
            let is_get = random.below(100) < self.gets;
            let (first, then) = if is_get {
                (Ask::Read(INDEX), Ask::Read(self.bytes))
            } else {
                (Ask::Write(self.bytes), Ask::Write(WORD))
            };
            host.ask(now, connection, vec![first]);
            (Some(then), now)
        };
        for client in 0..self.clients {
            let (host, connection) = (client % STORE_HOSTS, client / STORE_HOSTS);
            let began = begin(&mut world.hosts[host], Duration::ZERO, connection);
            clients.insert((host, connection), began);
        }
        while !meter.is_done() {
            let now = world.step(None)?;
            for (at, host) in world.hosts.iter_mut().enumerate() {
                while let Some(connection) = host.answer(now) {
                    let client = clients.get_mut(&(at, connection)).context("a client")?;
                    if let Some(then) = client.0.take() {
                        host.ask(now, connection, vec![then]);
                        continue;
                    }
                    meter.add(now, client.1, self.bytes.into());
                    *client = begin(host, now, connection);
                }
            }
        }
        Ok(meter.came(&world))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn connections(method: Method, connections: usize) -> Came {
        let (window, batch, bytes, count) = (Window::Default, 1, 32, 3000);
        Connections { method, window, connections, batch, bytes, count }.run().unwrap()
    }

    /// S5.22: one interface, three ways; a queue pair for each connection is the only one that the cache does not hold.
    #[test]
    fn s5_22_connections_of_raw_miss_where_shared_ones_do_not() {
        let few = connections(Method::Raw, 20);
        assert!(few.misses_per_op < 0.02, "{few:?}");
        let raw = connections(Method::Raw, 100);
        assert!(raw.misses_per_op > 0.9 && raw.ops_per_s < 0.6 * few.ops_per_s, "{raw:?}");
        for method in [Method::Share, Method::Drum] {
            let shared = connections(method, 100);
            assert!(shared.misses_per_op < 0.05, "{method:?} {shared:?}");
        }
    }

    #[test]
    fn runs_are_the_same_every_time_and_bytes_stay_below_the_link() {
        let store = Store {
            method: Method::Drum,
            clients: 12,
            gets: 50,
            bytes: 65536,
            count: 400,
            seed: 1,
        };
        let came = store.run().unwrap();
        assert_eq!(came, store.run().unwrap());
        // Half of the bytes go each way, 5 GB/s at most.
        assert!(came.bytes_per_s > 1e9 && came.bytes_per_s < 10e9, "{came:?}");
    }

    /// S5.18: who posts as much as one look at completions found has `wr_num` of them at each look.
    #[test]
    fn a_poll_finds_the_batch_that_was_posted_after_the_one_before() {
        for batch in [1, 5, 10] {
            let (_, found) = Polled { polls_per_s: 10_000.0, batch, count: 100 }.run().unwrap();
            assert!((found - batch as f64).abs() < 1e-9, "{found}");
        }
    }
}
