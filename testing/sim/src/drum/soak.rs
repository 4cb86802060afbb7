//! `soak drum`: whatever happens to hosts and messages, no capacity is exceeded; after the last change, once messages
//! pass again, rates are near the optimum, or a host says that it fell back.
use super::population::{Population, Reference};
use super::scenario::{Change, LEASE_NS, Scenario};
use super::world::World;
use crate::Random;
use crate::seeds::{Seeds, guard};
use catchment_control::drum::{Application, HostError, Input};
use std::collections::BTreeMap;
use std::fmt;

/// Options of `soak drum`.
#[derive(Debug, Clone, clap::Args)]
pub struct DrumSoakOptions {
    #[command(flatten)]
    seeds: Seeds,
}

/// Round times after the last change, and a lease, in which rates must come near the optimum: looked at after so many.
const SETTLING: u64 = 2000;
const STEP: u64 = 20;
/// Of the optimum.
const NEAR: f64 = 0.995;

/// What happened, of all runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, derive_more::AddAssign)]
pub(super) struct Summary {
    runs: u64,
    pub(super) changes: u64,
    pub(super) killed: u64,
    pub(super) restarted: u64,
    pub(super) stood_still: u64,
    pub(super) cut: u64,
    /// Times that a host fell back to its own shares.
    pub(super) fell_back: u64,
    /// Runs at whose end some host says that it has.
    alone: u64,
    messages: u64,
    /// Numbers of data that took the place of messages.
    pub(super) carried: u64,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, changes, killed, restarted, stood_still, cut, .. } = self;
        let Self { fell_back, alone, messages, carried, .. } = self;
        write!(
            f,
            "{runs} runs: {changes} changes; {killed} hosts killed, {restarted} restarted, {stood_still} stood still; \
             {cut} cuts; {fell_back} times fallen back, {alone} runs at their end; {messages} messages, \
             {carried} numbers of data in their place"
        )
    }
}

/// Runs the seeds.
///
/// # Errors
/// When a seed failed; each is printed with the command that replays it.
pub fn run(options: &DrumSoakOptions) -> Result<(), String> {
    if let Some(seed) = options.seeds.seed {
        for (_, scenario) in Scenario::KINDS {
            println!("{:#?}", scenario(seed));
            let (summary, hash) =
                one(scenario(seed)).map_err(|fault| format!("seed {seed}: {fault}"))?;
            println!("{summary}; trace {hash:016x}");
        }
        return Ok(());
    }
    options.seeds.hunt("cargo xtask soak drum", |seed| {
        let mut sum = Summary::default();
        for (kind, scenario) in Scenario::KINDS {
            sum += one(scenario(seed)).map_err(|fault| format!("{kind}{fault}"))?.0;
        }
        Ok(sum)
    })
}

/// Runs one scenario; returns what happened, and the hash of its trace.
pub(super) fn one(scenario: Scenario) -> Result<(Summary, u64), String> {
    guard(|| Soak::new(scenario)?.run())
}

/// A run. What ends later, by time.
struct Soak {
    scenario: Scenario,
    world: World,
    ends: BTreeMap<(u64, u64), End>,
    number: u64,
    sum: Summary,
}

#[derive(Clone, Copy)]
enum End {
    Restart(u32),
    Join,
}

fn joins((host, application): (u32, Application)) -> (u32, Input<'static>) {
    (host, Input::Join(application))
}

fn text(error: HostError) -> String {
    error.to_string()
}

impl Soak {
    fn new(scenario: Scenario) -> Result<Self, String> {
        let mut random = Random::new(scenario.seed);
        let Scenario { hosts, numbers, active, alpha, wire, .. } = scenario;
        let mut population = Population::new(hosts, numbers, active, alpha, random.fork());
        population.temper(active);
        let world = World::new(population, wire, LEASE_NS, random.fork()).map_err(text)?;
        let sum = Summary { runs: 1, ..Summary::default() };
        Ok(Self { scenario, world, ends: BTreeMap::new(), number: 0, sum })
    }

    fn run(mut self) -> Result<(Summary, u64), String> {
        for (at, change) in self.scenario.changes.clone() {
            self.go_on(at)?;
            self.sum.changes += 1;
            self.change(change)?;
        }
        self.go_on(self.scenario.horizon_ns)?;
        self.world.heal();
        let last = self.ends.last_key_value().map_or(0, |((at, _), _)| *at);
        self.go_on(last.max(self.world.now) + LEASE_NS)?;
        let reference = self.world.population.solve()?;
        let until = self.world.now + SETTLING * self.world.round_ns();
        let mut near = self.fraction(&reference);
        while near < NEAR && self.world.now < until {
            self.go_on(self.world.now + STEP * self.world.round_ns())?;
            near = self.fraction(&reference);
        }
        let alone = self.world.hosts.iter().any(|host| host.has_fallen_back());
        if near < NEAR && !alone {
            return Err(format!("{near} of the optimum at the end, and nobody says why"));
        }
        self.sum.alone += u64::from(alone);
        self.sum.fell_back += self.world.fell_back();
        self.sum.messages += self.world.traffic.messages;
        self.sum.carried += self.world.carried();
        Ok((self.sum, self.world.trace))
    }

    /// Runs until a time, with all that ends before.
    fn go_on(&mut self, until: u64) -> Result<(), String> {
        while let Some(((at, _), end)) = self.ends.first_key_value().map(|(at, end)| (*at, *end))
            && at <= until
        {
            self.ends.pop_first();
            self.advance(at)?;
            match end {
                End::Restart(host) => {
                    self.sum.restarted += 1;
                    self.world.population.revive(host, self.scenario.active);
                    self.world.restart(host).map_err(text)?;
                }
                End::Join => self.world.side.fill(false),
            }
        }
        self.advance(until)
    }

    fn advance(&mut self, until: u64) -> Result<(), String> {
        self.world.run(until).map_err(text)?;
        let over = self.world.over;
        if over > 0.0 {
            return Err(format!("{over} Mops s above a capacity, by {until} ns"));
        }
        Ok(())
    }

    fn end_at(&mut self, lasts_ns: u64, end: End) {
        self.number += 1;
        self.ends.insert((self.world.now + lasts_ns, self.number), end);
    }

    fn change(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Replace(part) => {
                let replaced = self.world.population.replace(part);
                let left = replaced.left.into_iter().map(|(host, old)| (host, Input::Leave(old)));
                let changed = replaced.changed.into_iter().map(joins);
                self.world.change_all(left.chain(changed)).map_err(text)
            }
            Change::Weigh(part) => {
                let weighed = self.world.population.weigh(part);
                self.world.change_all(weighed.into_iter().map(joins)).map_err(text)
            }
            Change::Ask(part) => {
                let asked = self.world.population.ask(part);
                self.world.change_all(asked.into_iter().map(joins)).map_err(text)
            }
            Change::Capacities { host, send, completion } if !self.world.is_dead(host) => {
                let member = &self.world.population.members[host as usize];
                let new = (member.send * send, member.completion * completion);
                self.world.set_capacities(host, new).map_err(text)
            }
            Change::Kill { host, down_ns } if !self.world.is_dead(host) => {
                self.sum.killed += 1;
                let changed = self.world.population.lose(host);
                self.world.kill(host);
                if let Some(down_ns) = down_ns {
                    self.end_at(down_ns, End::Restart(host));
                }
                self.world.change_all(changed.into_iter().map(joins)).map_err(text)
            }
            Change::StandStill { host, lasts_ns } if !self.world.is_dead(host) => {
                self.sum.stood_still += 1;
                self.world.stand_still(host, self.world.now + lasts_ns);
                Ok(())
            }
            Change::Cut { hosts, lasts_ns } => {
                self.sum.cut += 1;
                self.world.side.iter_mut().take(hosts).for_each(|side| *side = true);
                self.end_at(lasts_ns, End::Join);
                Ok(())
            }
            Change::Capacities { .. } | Change::Kill { .. } | Change::StandStill { .. } => Ok(()),
        }
    }

    fn fraction(&self, reference: &Reference) -> f64 {
        let rate = |host, application| self.world.rate(host, application);
        let worth = self.world.population.worth(rate);
        let fraction = reference.fraction(self.scenario.alpha, worth);
        if worth.is_finite() { fraction } else { f64::NEG_INFINITY }
    }
}
