//! One run: builds the hosts of a scenario, runs them, applies its strike, and calls the oracle.
use super::check::{self, Allowed, Fault, Seen, demand};
use super::forge::{Victim, forge};
use super::scenario::{Scenario, Strike, TIME_MOST};
use super::setup::{Memory, qpn, queue_pair, register, worker};
use super::summary::Summary;
use super::worker::Workers;
use crate::roce::{Host, HostConfig, Space, address};
use crate::{
    Chance, LinkConfig, LinkId, Loss, Node as _, NodeId, Observer, Random, Simulation, Stop,
};
use catchment_roce::wire::DropReason;
use std::time::Duration;

pub(crate) fn run(
    scenario: Scenario,
    observer: Option<Box<dyn Observer>>,
) -> Result<Summary, Fault> {
    let mut run = Run::new(scenario);
    if let Some(observer) = observer {
        run.simulation.observe(observer);
    }
    run.begin();
    run.forge()?;
    run.strike()?;
    run.work()?;
    run.settle()?;
    run.tear_down()?;
    run.judge()
}

struct Run {
    scenario: Scenario,
    simulation: Simulation<Host<Workers>>,
    hosts: [NodeId; 2],
    links: [LinkId; 2],
    memory: Vec<Memory>,
}

impl Run {
    fn new(scenario: Scenario) -> Self {
        let mut spaces = [Space::default(), Space::default()];
        let pairs = scenario.pairs.iter();
        let memory: Vec<Memory> = pairs.map(|pair| register(pair, &mut spaces)).collect();
        let mut simulation = Simulation::new(scenario.seed);
        let hosts = [0, 1].map(|number| {
            let workers =
                (0..memory.len()).map(|pair| worker(&scenario, &memory, &spaces, pair, number));
            let workers = workers.collect();
            let config = HostConfig {
                address: address(number),
                poll_interval: scenario.hosts[number].poll_interval,
                uplink_bytes: scenario.hosts[number].uplink_bytes,
                ecn: scenario.ecn,
                dscp: 0,
            };
            let mut host = Host::new(config, spaces[number].clone(), Workers { workers });
            for pair in 0..memory.len() {
                host.attach(queue_pair(&scenario, pair, number), address(1 - number));
            }
            simulation.add(host)
        });
        let [there, back] = scenario.links.clone();
        let links = [
            simulation.connect(hosts[0], hosts[1], there),
            simulation.connect(hosts[1], hosts[0], back),
        ];
        Self { scenario, simulation, hosts, links, memory }
    }

    fn host(&self, number: usize) -> &Host<Workers> {
        self.simulation.node(self.hosts[number])
    }

    fn begin(&mut self) {
        for host in self.hosts {
            self.simulation.call(host, Host::pump);
        }
    }

    /// Sends forged packets to both hosts while they work.
    fn forge(&mut self) -> Result<(), Fault> {
        let mut random = Random::new(!self.scenario.seed);
        for _ in 0..self.scenario.forgeries {
            let pause = random.time_up_to(Duration::from_millis(2));
            self.run_until(self.simulation.now + pause)?;
            for number in 0..2 {
                let victim = self.victim(random.index(self.memory.len()), number);
                let frame = forge(&victim, &mut random);
                let id = self.hosts[number];
                self.simulation.call(id, |host, context| host.receive(frame, context));
            }
        }
        Ok(())
    }

    fn victim(&self, pair: usize, number: usize) -> Victim {
        let ends = &self.scenario.pairs[pair].ends;
        let rkey = self.memory[pair][number].1.target;
        Victim {
            address: address(number),
            qpn: qpn(pair, number),
            peer_address: address(1 - number),
            peer_qpn: qpn(pair, 1 - number),
            first_psns: [ends[1 - number].first_psn, ends[number].first_psn],
            rkey,
            addr: self.host(number).space.addr(rkey),
            path_mtu: self.scenario.path_mtu.bytes(),
        }
    }

    /// Runs up to the strike and past it.
    fn strike(&mut self) -> Result<(), Fault> {
        match self.scenario.strike {
            None => {}
            Some(Strike::Kill { host, at }) => {
                self.run_until(at)?;
                self.simulation.call(self.hosts[host], |host, _| host.kill());
            }
            Some(Strike::Fail { host, pair, at }) => {
                self.run_until(at)?;
                self.simulation.call(self.hosts[host], |host, context| {
                    host.qps.get_mut(pair).set_error();
                    host.pump(context);
                });
            }
            Some(Strike::Blackout { at, lasts }) => {
                self.run_until(at)?;
                self.reconfigure(|link| link.loss = Loss::Random(Chance::ALWAYS));
                self.run_until(at + lasts)?;
                self.reconfigure(|_| {});
            }
        }
        Ok(())
    }

    fn reconfigure(&mut self, change: impl Fn(&mut LinkConfig)) {
        for (id, config) in self.links.iter().zip(&self.scenario.links) {
            let mut config = config.clone();
            change(&mut config);
            self.simulation.link_mut(*id).reconfigure(config);
        }
    }

    fn run_until(&mut self, until: Duration) -> Result<(), Fault> {
        let stop = self.simulation.run(until, |_| false);
        self.demand_time_moves(stop)
    }

    fn demand_time_moves(&self, stop: Stop) -> Result<(), Fault> {
        let now = self.simulation.now;
        demand!(stop != Stop::Livelock, "time stands still at {now:?}");
        Ok(())
    }

    /// Runs until no request is open.
    fn work(&mut self) -> Result<(), Fault> {
        let hosts = self.hosts;
        let stop = self
            .simulation
            .run(TIME_MOST, |simulation| hosts.iter().all(|id| is_done(simulation.node(*id))));
        self.demand_time_moves(stop)?;
        demand!(stop == Stop::Done, "{stop:?} at {:?}: {}", self.simulation.now, self.open());
        Ok(())
    }

    fn open(&self) -> String {
        let mut text = String::new();
        for number in 0..2 {
            let host = self.host(number);
            for (worker, qp) in host.program.workers.iter().zip(host.qps.iter()) {
                if !worker.is_done(qp) {
                    let all = worker.scenario.plan.ops.len();
                    let line = format!(
                        "host {number} qpn {} is {:?} with {} requests open, {} of {all} posted; ",
                        qp.qpn(),
                        qp.state(),
                        qp.send_queue_len(),
                        worker.posted
                    );
                    text.push_str(&line);
                }
            }
        }
        text
    }

    /// Checks that idle queue pairs become silent.
    fn settle(&mut self) -> Result<(), Fault> {
        let stop = self.simulation.run(2 * TIME_MOST, |_| false);
        self.demand_time_moves(stop)?;
        demand!(stop == Stop::Idle, "idle queue pairs do not become silent");
        Ok(())
    }

    /// Moves all queue pairs to the error state, so that receives are flushed.
    fn tear_down(&mut self) -> Result<(), Fault> {
        for host in self.hosts {
            self.simulation.call(host, |host, context| {
                for pair in 0..host.program.workers.len() {
                    host.qps.get_mut(pair).set_error();
                }
                host.pump(context);
            });
        }
        let stop = self.simulation.run(3 * TIME_MOST, |_| false);
        demand!(stop == Stop::Idle, "queue pairs in the error state do not become silent");
        Ok(())
    }

    fn judge(&self) -> Result<Summary, Fault> {
        let mut summary = self.count();
        for pair in 0..self.memory.len() {
            for number in 0..2 {
                let done = check::check(&self.seen(pair, number)).map_err(|fault| {
                    let causes = [number, 1 - number].map(|at| self.cause(pair, at));
                    Fault(format!("pair {pair}, host {number}: {fault}; {}", causes.join(", ")))
                })?;
                summary.succeeded += done as u64;
            }
        }
        if self.scenario.must_succeed {
            demand!(
                summary.succeeded == summary.requests,
                "{} of {} requests succeeded, although nothing prevented the others",
                summary.succeeded,
                summary.requests
            );
        }
        Ok(summary)
    }

    /// Describes why an end is in the error state.
    fn cause(&self, pair: usize, number: usize) -> String {
        let qp = self.host(number).qps.get(pair);
        let (cause, naks) = (qp.error_cause(), qp.counters().fatal_naks_sent);
        format!("host {number} failed with {cause:?} after {naks} fatal NAKs")
    }

    fn seen(&self, pair: usize, number: usize) -> Seen<'_> {
        let (near, far) = (self.host(number), self.host(1 - number));
        let (worker, peer) = (&near.program.workers[pair], &far.program.workers[pair]);
        Seen {
            plan: &worker.scenario.plan,
            posted: worker.posted,
            refused: worker.refused,
            sends: &worker.sends,
            receives: &peer.receives,
            receives_posted: peer.receives_posted,
            near: &near.space,
            near_keys: self.memory[pair][number].0,
            near_is_dead: near.is_dead(),
            far: &far.space,
            far_keys: &self.memory[pair][1 - number].1,
            far_is_dead: far.is_dead(),
            allowed: self.allowed(pair, number),
        }
    }

    fn allowed(&self, pair: usize, number: usize) -> Allowed {
        let ends = &self.scenario.pairs[pair].ends;
        let failed = matches!(
            self.scenario.strike,
            Some(Strike::Fail { host, pair: at, .. }) if (host, at) == (number, pair)
        );
        let peer_is_wrong = ends[1 - number].plan.ops.iter().any(|op| op.wrong.is_some());
        Allowed {
            timeout: !self.scenario.must_succeed,
            rnr: ends[number].rnr_retry != 7,
            flush: failed || peer_is_wrong,
        }
    }

    fn count(&self) -> Summary {
        let mut summary = Summary { runs: 1, ..Summary::default() };
        for link in self.links {
            let counters = self.simulation.link(link).counters;
            summary.frames += counters.sent;
            summary.lost += counters.lost;
            summary.corrupted += counters.corrupted;
        }
        for number in 0..2 {
            let host = self.host(number);
            let drops = DropReason::ALL.map(|reason| host.dropped(reason));
            summary.dropped += drops.iter().sum::<u64>() + host.foreign;
            for (worker, qp) in host.program.workers.iter().zip(host.qps.iter()) {
                summary.requests += worker.scenario.plan.ops.len() as u64;
                summary.broken += u64::from(qp.error_cause().is_some());
                summary.retransmitted += qp.counters().retransmitted;
                summary.rnr_naks += qp.counters().rnr_naks_sent;
                summary.cnps += qp.counters().cnps_received;
            }
        }
        summary
    }
}

fn is_done(host: &Host<Workers>) -> bool {
    let mut ends = host.program.workers.iter().zip(host.qps.iter());
    host.is_dead() || ends.all(|(worker, qp)| worker.is_done(qp))
}
