//! How long new rates take to be in force: on one host, and among applications of two.
//!
//! Three applications write to one host as fast as they may, weights 3 and 1 from the other, 2 from its own. The one of weight 1 begins
//! to send, and is killed. Agents say when rates became others: a question to one on a busy core is answered milliseconds
//! later.
use super::ends::{AgentProcess, Hosts, Network, Pair, Work, application, wait};
use crate::goal::{Goal, Limit};
use crate::stats::{decimals, percentile};
use crate::sys;
use anyhow::{Result, ensure};
use catchment_agent::policy::Between;
use catchment_agent::protocol::{Account, By};
use catchment_agent::{Inquiry, Standing};
use catchment_perf::{Amount, Operation, Waiting};
use serde::Serialize;
use std::time::Duration;

/// Bytes a second that the second host takes in: what bounds all three.
const TAKES_IN: u64 = 384_000_000;
/// Bytes a second that both can send.
const SENDS: u64 = 6_400_000_000;
const WEIGHTS: [f64; 2] = [3.0, 1.0];
const WEIGHT_THERE: f64 = 2.0;
/// What the target of the application there may ask for, which has nothing to send: it completes there too.
const IDLE: f64 = 1e6;
/// How near rates must be to the optimum: 99.5 % of it, as the specification of the optimiser measures that
/// (`utility_fraction_of_optimum`); and, for a row's `each_rate_ms_p95`, each of them.
const NEAR: f64 = 0.005;
const BYTES: u64 = 1 << 20;
const OUTSTANDING: u32 = 1024;
/// Between two looks at the accounts.
const LOOK_EVERY: Duration = Duration::from_micros(100);

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Change {
    /// An application has requests waiting for the first time.
    Begins,
    /// It is killed.
    Dies,
}

#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Row {
    what: &'static str,
    provider: &'static str,
    hosts: u32,
    change: Change,
    /// Which way messages of rounds go between two hosts.
    by: Option<By>,
    ms_p50: f64,
    ms_p95: f64,
    /// Of the host that made more.
    rounds_p95: Option<f64>,
    /// Until each rate is within 0.5 % of its optimum.
    each_rate_ms_p95: Option<f64>,
    runs: usize,
}

/// Where a goal was measured.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Place {
    provider: &'static str,
    hosts: u32,
    change: Change,
    by: Option<By>,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, ", {} {} hosts, {:?}", self.provider, self.hosts, self.change)?;
        self.by.map_or(Ok(()), |by| write!(f, " by {by:?}"))
    }
}

/// A time, and the rounds in it; and the time until each rate was near.
struct Found {
    ms: f64,
    rounds: f64,
    each_rate_ms: Option<f64>,
}

fn work() -> Work {
    Work {
        operation: Operation::Write,
        bytes: BYTES,
        outstanding: OUTSTANDING,
        warm_up: Amount::Iterations(1),
        // Until it is killed.
        seconds: 600.0,
        waiting: Waiting::Sleep,
    }
}

fn account(standing: &Standing, at: usize) -> Option<&Account> {
    standing.applications.iter().find(|one| one.application == application(at))
}

fn waits(standing: &Standing, at: usize) -> bool {
    account(standing, at).is_some_and(|one| one.waiting > 0)
}

/// Asks both agents, over one connection each.
struct Looks([Inquiry; 2]);

impl Looks {
    fn new(hosts: &Hosts) -> Self {
        Self([Inquiry::new(hosts.first()), Inquiry::new(hosts.second())])
    }

    fn now(&mut self) -> Result<[Standing; 2]> {
        let [first, second] = &mut self.0;
        Ok([first.ask()?, second.ask()?])
    }
}

/// Rounds of a host so far.
fn count(standing: &Standing) -> u64 {
    standing.rounds.as_ref().map_or(0, |rounds| rounds.rounds)
}

/// Decided rates beside those by weight, which are the optimum; nothing of who is not there.
struct Rates {
    rates: [f64; 3],
    weights: [f64; 3],
    optimum: [f64; 3],
}

impl Rates {
    fn of([first, second]: &[Standing; 2], one_sends: bool) -> Self {
        let weights = [WEIGHTS[0], if one_sends { WEIGHTS[1] } else { 0.0 }, WEIGHT_THERE];
        let whole = (Between::SHARED_PART * TAKES_IN as f64 - IDLE) / weights.iter().sum::<f64>();
        let rate = |of, at| account(of, at).map_or(0.0, |one| one.rate_bytes_per_s);
        let rates = [rate(first, 0), rate(first, 1), rate(second, 2)];
        Self { rates, weights, optimum: weights.map(|weight| weight * whole) }
    }

    /// `ε` of the specification: all optimal rates less this part are worth as much as these. Agents optimise the
    /// sum of logarithms here.
    fn loss(&self) -> f64 {
        let each = self.rates.iter().zip(&self.optimum).zip(&self.weights);
        let sending = each.filter(|(_, weight)| **weight > 0.0);
        let lost: f64 = sending.map(|((rate, optimum), w)| w * (optimum / rate).ln()).sum();
        1.0 - (-lost / self.weights.iter().sum::<f64>()).exp()
    }

    fn are_optimal(&self) -> bool {
        self.loss() <= NEAR
    }

    fn is_each_near(&self) -> bool {
        let near = |(rate, optimum): (&f64, &f64)| (rate - optimum).abs() <= NEAR * optimum;
        let mut sending = self.rates.iter().zip(&self.optimum).filter(|(_, most)| **most > 0.0);
        sending.all(near)
    }
}

/// A change, and the time since then.
#[derive(Clone, Copy)]
struct Begun(u64);

impl Begun {
    fn now() -> Self {
        Self(sys::monotonic_ns())
    }

    /// Returns the time until rates last became others, as agents say that were asked now: at most that until now.
    fn ms(self, standings: &[Standing]) -> f64 {
        let decided_ns = standings.iter().filter_map(|standing| standing.decided_ns).max();
        decided_ns.unwrap_or(self.0).saturating_sub(self.0) as f64 / 1e6
    }
}

/// Times from a change until the rates are optimal.
fn time(looks: &mut Looks, begun: Begun, one_sends: bool) -> Result<Found> {
    let before = looks.now()?;
    let mut after = before.clone();
    wait("the optimum of two hosts", LOOK_EVERY, || {
        after = looks.now()?;
        Ok(Rates::of(&after, one_sends).are_optimal())
    })?;
    let found_ms = begun.ms(&after);
    let made = before.iter().zip(&after).map(|(before, after)| count(after) - count(before));
    let rounds = made.max().unwrap_or(0) as f64;
    wait("the rates of two hosts", LOOK_EVERY, || {
        if Rates::of(&after, one_sends).is_each_near() {
            return Ok(true);
        }
        after = looks.now()?;
        Ok(false)
    })?;
    Ok(Found { ms: found_ms, rounds, each_rate_ms: Some(begun.ms(&after)) })
}

fn row(hosts: u32, change: Change, by: Option<By>, found: &[Found]) -> Row {
    let ms: Vec<f64> = found.iter().map(|one| one.ms).collect();
    let rounds: Vec<f64> = found.iter().map(|one| one.rounds).collect();
    let each: Option<Vec<f64>> = found.iter().map(|one| one.each_rate_ms).collect();
    Row {
        what: "convergence",
        provider: "shm",
        hosts,
        change,
        by,
        ms_p50: decimals(percentile(&ms, 0.5), 3),
        ms_p95: decimals(percentile(&ms, 0.95), 3),
        rounds_p95: (hosts > 1).then(|| percentile(&rounds, 0.95)),
        each_rate_ms_p95: each.map(|each| decimals(percentile(&each, 0.95), 3)),
        runs: found.len(),
    }
}

/// What two hosts have while changes are made.
struct Busy {
    hosts: Hosts,
    looks: Looks,
    _pairs: [Pair; 2],
    begins: Vec<Found>,
    dies: Vec<Found>,
}

impl Busy {
    fn start(by: By) -> Result<Self> {
        let weights = [WEIGHTS[0], WEIGHTS[1], WEIGHT_THERE];
        let hosts = Hosts::start(&weights, (SENDS, TAKES_IN), by == By::Write)?;
        let three = Pair::start(Some(&hosts.across), Network(None), 0, &[work()])?;
        let two = Pair::start(Some(&hosts.there), Network(None), 2, &[work()])?;
        let looks = Looks::new(&hosts);
        Ok(Self { hosts, looks, _pairs: [three, two], begins: Vec::new(), dies: Vec::new() })
    }

    /// One begins, and dies.
    fn change(&mut self, by: By) -> Result<()> {
        let (hosts, looks) = (&self.hosts, &mut self.looks);
        wait("the optimum without the third", LOOK_EVERY, || {
            Ok(Rates::of(&looks.now()?, false).is_each_near())
        })?;
        let one = Pair::start(Some(&hosts.across), Network(None), 1, &[work()])?;
        wait("its first request", LOOK_EVERY, || Ok(waits(&looks.now()?[0], 1)))?;
        self.begins.push(time(looks, Begun::now(), true)?);
        let (ended_ns, _target) = one.kill()?;
        self.dies.push(time(looks, Begun(ended_ns), false)?);
        let [Standing { peers, .. }, _] = looks.now()?;
        let went = peers.iter().find(|peer| peer.connected).and_then(|peer| peer.by);
        ensure!(went == Some(by), "rounds go by {went:?} in place of {by:?}");
        Ok(())
    }
}

/// Measures so many changes of each kind, of two hosts, by either way of their rounds, and of one.
pub(crate) fn measure(runs: usize) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    // While one pair of hosts is measured nothing else is there to be served.
    for by in [By::Session, By::Write] {
        let mut busy = Busy::start(by)?;
        for _ in 0..runs {
            busy.change(by)?;
        }
        rows.push(row(2, Change::Begins, Some(by), &busy.begins));
        rows.push(row(2, Change::Dies, Some(by), &busy.dies));
    }
    rows.push(row(1, Change::Dies, None, &on_one_host(runs)?));
    Ok(rows)
}

/// Kills one of two applications of an agent without others.
fn on_one_host(runs: usize) -> Result<Vec<Found>> {
    let agent = AgentProcess::start("drum", &WEIGHTS, Network(None))?;
    let work = [work()];
    let _three = Pair::start(Some(&agent), Network(None), 0, &work)?;
    let mut found = Vec::new();
    let mut inquiry = Inquiry::new(agent.name());
    let share = |of: &Standing| account(of, 0).map_or(0.0, |one| one.share);
    for _ in 0..runs {
        let one = Pair::start(Some(&agent), Network(None), 1, &work)?;
        wait("its first request", LOOK_EVERY, || Ok(waits(&inquiry.ask()?, 1)))?;
        // Of it, the other, and the targets of both.
        let mut standing = inquiry.ask()?;
        let before = share(&standing);
        let (ended_ns, target) = one.kill()?;
        wait("the shares without it", LOOK_EVERY, || {
            standing = inquiry.ask()?;
            Ok(share(&standing) > before * (1.0 + NEAR))
        })?;
        let ms = Begun(ended_ns).ms(std::slice::from_ref(&standing));
        drop(target);
        found.push(Found { ms, rounds: 0.0, each_rate_ms: None });
        wait("the end of its target", LOOK_EVERY, || Ok(inquiry.ask()?.applications.len() == 2))?;
    }
    Ok(found)
}

impl Row {
    /// Returns it as a line for a person.
    pub(crate) fn line(&self) -> String {
        let Self { hosts, change, by, ms_p50, ms_p95, rounds_p95, .. } = self;
        let by = by.map_or(String::new(), |by| format!(" by {by:?}"));
        let rounds = rounds_p95.map_or("-".to_owned(), |rounds| rounds.to_string());
        format!(
            "convergence {hosts} hosts, {change:?}{by}: {ms_p50} ms p50, {ms_p95} p95, {rounds} rounds p95"
        )
    }

    /// Returns what the row says of the goals.
    pub(crate) fn goals(&self) -> Vec<Goal<Place>> {
        let &Self { provider, hosts, change, by, .. } = self;
        let place = Place { provider, hosts, change, by };
        if hosts == 1 {
            let name = "new rates of one host in force, ms p50";
            return vec![Goal::new(name, place, self.ms_p50, Limit::AtMost(1.0))];
        }
        let time = Goal::new(
            "rates of two hosts within 99.5 % of the optimum, ms p95",
            place,
            self.ms_p95,
            Limit::AtMost(20.0),
        );
        let rounds = self.rounds_p95.map(|rounds| {
            let name = "rates of two hosts within 99.5 % of the optimum, rounds p95";
            Goal::new(name, place, rounds, Limit::AtMost(10.0))
        });
        std::iter::once(time).chain(rounds).collect()
    }
}
