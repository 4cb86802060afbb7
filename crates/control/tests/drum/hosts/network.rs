//! A network that delays, loses, doubles and reorders, with hosts that crash; it looks at every capacity
//! after every event.
use crate::family::Chance;
use catchment_control::drum::{
    Application, Destination, Fitter, Host, HostConfig, Input, Output, Problem, Settings, Solver,
};
use std::collections::BTreeMap;

pub(super) const MS: u64 = 1_000_000;

/// Whose, and a packet with its sender, or else a timer.
pub(super) type Event = (usize, Option<(u32, Vec<u8>)>);

pub(super) struct Network<'a> {
    pub(super) problem: &'a Problem,
    pub(super) hosts: Vec<Host>,
    pub(super) now: u64,
    /// Packets and timers by time; the number keeps them in order.
    pub(super) events: BTreeMap<(u64, u64), Event>,
    pub(super) next: u64,
    /// The next timer of each host.
    pub(super) timers: Vec<u64>,
    pub(super) chance: Chance,
    pub(super) loss: f64,
    /// A host that nobody reaches, and one that is not there.
    pub(super) cut: Option<usize>,
    /// Two that do not reach each other.
    pub(super) apart: Option<(usize, usize)>,
    pub(super) dead: Option<usize>,
    pub(super) bytes: usize,
}

pub(super) fn config(problem: &Problem, host: usize, incarnation: u32) -> HostConfig {
    HostConfig {
        host: host as u32,
        incarnation,
        alpha: problem.alpha,
        beta: problem.beta[host],
        send_capacity: problem.send_capacity[host],
        completion_capacity: problem.completion_capacity[host],
        round_ns: MS,
        lease_ns: 40 * MS,
        restarted: incarnation > 1,
    }
}

pub(super) fn application(problem: &Problem, host: usize, application: usize) -> Application {
    let from = host * problem.applications + application;
    let edges = &problem.edges;
    let all = edges.from.iter().zip(&edges.to).zip(&edges.completions);
    let own = all.filter(|edge| *edge.0.0 as usize == from);
    let destinations = own.map(|((_, to), completions)| Destination {
        host: to / problem.applications as u32,
        application: to % problem.applications as u32,
        completions: *completions,
    });
    Application {
        application: application as u32,
        weight: problem.weights[from],
        limit: problem.limits.as_ref().map(|limits| limits[from]),
        destinations: destinations.collect(),
    }
}

impl<'a> Network<'a> {
    pub(super) fn new(problem: &'a Problem, seed: u64, loss: f64) -> Self {
        let mut network = Self {
            problem,
            hosts: Vec::new(),
            now: 0,
            events: BTreeMap::new(),
            next: 0,
            timers: vec![u64::MAX; problem.hosts],
            chance: Chance::new(seed),
            loss,
            cut: None,
            apart: None,
            dead: None,
            bytes: 0,
        };
        for host in 0..problem.hosts {
            network.hosts.push(network.start(host, 1));
            network.later(0, host, None);
        }
        network
    }

    pub(super) fn start(&self, host: usize, incarnation: u32) -> Host {
        let mut new =
            Host::new(config(self.problem, host, incarnation), self.now).expect("good values");
        for at in 0..self.problem.applications {
            let application = application(self.problem, host, at);
            new.handle(self.now, Input::Join(application)).expect("good values");
        }
        new
    }

    pub(super) fn crash(&mut self, host: usize, incarnation: u32) {
        self.hosts[host] = self.start(host, incarnation);
        self.later(self.now, host, None);
        self.drain(host);
    }

    pub(super) fn change(&mut self, host: usize, input: Input<'_>) {
        self.hosts[host].handle(self.now, input).expect("good values");
        self.drain(host);
    }

    /// Gives every host a reason for rounds.
    pub(super) fn wake(&mut self) {
        for host in 0..self.hosts.len() {
            self.change(host, Input::Join(application(self.problem, host, 0)));
        }
    }

    pub(super) fn later(&mut self, at: u64, host: usize, packet: Option<(u32, Vec<u8>)>) {
        self.next += 1;
        self.events.insert((at, self.next), (host, packet));
    }

    fn is_cut(&self, from: usize, to: usize) -> bool {
        let apart = self.apart.is_some_and(|two| two == (from, to) || two == (to, from));
        apart || self.cut.is_some_and(|cut| (cut == from) != (cut == to))
    }

    pub(super) fn drain(&mut self, host: usize) {
        loop {
            match self.hosts[host].poll(self.now) {
                Output::Rates => {}
                Output::Timeout(at) => {
                    if at < self.timers[host] {
                        self.timers[host] = at;
                        self.later(at, host, None);
                    }
                    return;
                }
                Output::Send { to, bytes } => {
                    self.bytes += bytes.len();
                    if self.is_cut(host, to as usize) {
                        continue;
                    }
                    for _ in 0..if self.chance.draw() < self.loss { 2 } else { 1 } {
                        if self.chance.draw() >= self.loss {
                            let late = if self.chance.draw() < self.loss { 8 * MS } else { 0 };
                            let delay = (self.chance.between(0.05, 0.2) * MS as f64) as u64;
                            let packet = Some((host as u32, bytes.clone()));
                            self.later(self.now + delay + late, to as usize, packet);
                        }
                    }
                }
            }
        }
    }

    /// The largest use of a capacity by what is in force, as a fraction of it.
    pub(super) fn most_used(&self) -> f64 {
        let problem = self.problem;
        let rates = self.rates();
        let mut sent = vec![0.0; problem.hosts];
        let mut completed = vec![0.0; problem.hosts];
        for (at, rate) in rates.iter().enumerate() {
            sent[at / problem.applications] += rate;
        }
        let edges = &problem.edges;
        for ((from, to), part) in edges.from.iter().zip(&edges.to).zip(&edges.completions) {
            completed[*to as usize / problem.applications] += part * rates[*from as usize];
        }
        let parts = |used: &[f64], of: &[f64]| {
            used.iter().zip(of).map(|(used, of)| used / of).fold(0.0, f64::max)
        };
        parts(&sent, &problem.send_capacity).max(parts(&completed, &problem.completion_capacity))
    }

    pub(super) fn rates(&self) -> Vec<f64> {
        let dead = |host: usize| self.dead == Some(host);
        let of = |(host, machine): (usize, &Host)| -> Vec<f64> {
            machine.rates().iter().map(|rate| if dead(host) { 0.0 } else { rate.1 }).collect()
        };
        self.hosts.iter().enumerate().flat_map(of).collect()
    }

    /// Goes on to what happens next.
    pub(super) fn step(&mut self) {
        let next = self.events.first_key_value().map(|(key, _)| key.0);
        self.run(next.expect("something happens"));
    }

    pub(super) fn run(&mut self, until: u64) {
        while let Some((&(at, number), _)) = self.events.first_key_value() {
            if at > until {
                break;
            }
            let (host, packet) = self.events.remove(&(at, number)).expect("was there");
            self.now = at;
            if self.dead == Some(host) {
                continue;
            }
            let input = match &packet {
                Some((from, bytes)) => Input::Packet { from: *from, bytes },
                None => Input::Tick,
            };
            self.hosts[host].handle(self.now, input).expect("good values");
            if packet.is_none() && self.timers[host] == at {
                self.timers[host] = u64::MAX;
            }
            self.drain(host);
            let used = self.most_used();
            assert!(used <= 1.0 + 1e-9, "{used} of a capacity in use at {at} ns");
        }
    }

    pub(super) fn fraction(&self) -> f64 {
        let settings = Settings { gap: 1e-6, ..Settings::default() };
        let best = Solver::<f64>::new(self.problem, settings).expect("good values").solve();
        let mut fitter = Fitter::new(self.problem).expect("good values");
        let value = fitter.fit(&self.rates()).value();
        1.0 - (best.bound - value) / best.objective.magnitude
    }
}
