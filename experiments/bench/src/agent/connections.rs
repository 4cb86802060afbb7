//! What connections cost the agent while nothing, or little, is sent over them.
use super::crowd::{Crowd, Load, Member, Order};
use super::ends::{AgentProcess, Network};
use super::row::{Place, Row, What};
use crate::goal::{Goal, Limit};
use crate::stats::decimals;
use anyhow::{Context as _, Result};
use std::time::{Duration, Instant};

/// Connections of one application.
const EACH: u32 = 50;
const MOST: u32 = 1000;
/// Where processor time is compared with that of the most.
const QUARTER: u32 = MOST / 4;
const BYTES: u64 = 64;
const MEMORY: u64 = 4096;
/// Requests of each connection in the rows that are not idle.
const PER_S: f64 = 10.0;
/// Until an agent has done what connecting leaves to do.
const SETTLE: Duration = Duration::from_millis(300);

/// An agent, and those who are connected.
struct Host<'a> {
    agents: &'a AgentProcess,
    crowd: Crowd,
    connections: u32,
}

impl Host<'_> {
    fn applications(&self) -> std::ops::Range<usize> {
        0..(self.connections / EACH) as usize
    }

    /// Connects more, up to so many.
    fn connect(&mut self, connections: u32) -> Result<()> {
        let load = Load::Paced { per_s: 0.0 };
        let member =
            |at| Member { at, bytes: BYTES, memory_bytes: MEMORY, connections: EACH, load };
        let new = self.applications().end..(connections / EACH) as usize;
        self.crowd.begin(&new.map(member).collect::<Vec<_>>())?;
        self.connections = connections;
        Ok(())
    }

    /// Measures the agent for a time in which each connection has so many requests a second.
    fn measure(&mut self, per_s: f64, time: Duration) -> Result<Row> {
        let load = Load::Paced { per_s: per_s * f64::from(EACH) };
        self.applications().try_for_each(|at| self.crowd.tell(&Order::Load(at, load)))?;
        // Until the load is what it shall be: nothing tells.
        std::thread::sleep(SETTLE);
        let cpu = |ns: Option<u64>| ns.context("the agent's processor time");
        let (before, begun) = (cpu(self.agents.used().cpu_ns)?, Instant::now());
        // The time over which it is measured.
        std::thread::sleep(time);
        let used = self.agents.used();
        let passed = begun.elapsed();
        let spent = (cpu(used.cpu_ns)? - before) as f64;
        let still = Load::Paced { per_s: 0.0 };
        self.applications().try_for_each(|at| self.crowd.tell(&Order::Load(at, still)))?;
        let place = Place {
            provider: "shm",
            op: None,
            bytes: BYTES,
            apps: self.applications().end as u32,
            batch: Some(1),
            outstanding: 0,
        };
        Ok(Row {
            connections: Some(self.connections),
            asked_per_s: Some(per_s * f64::from(self.connections)),
            cpu_percent_agent: Some(decimals(100.0 * spent / passed.as_nanos() as f64, 3)),
            queue_pairs: Some(used.queue_pairs),
            registrations: Some(used.registrations),
            ..Row::of(What::Connections, place, 1)
        })
    }
}

/// Measures an agent without connections, with some and with many; then one of two hosts, whose connections share
/// queue pairs.
pub(super) fn measure(time: Duration) -> Result<(Vec<Row>, Vec<Goal<Place>>)> {
    let weights = [1.0; (MOST / EACH) as usize];
    let one = AgentProcess::start("drum", &weights, Network(None))?;
    let mut host = Host { agents: &one, crowd: Crowd::start(&one)?, connections: 0 };
    let mut rows = vec![host.measure(0.0, time)?];
    for connections in [QUARTER, MOST] {
        host.connect(connections)?;
        rows.push(host.measure(0.0, time)?);
        rows.push(host.measure(PER_S, time)?);
    }
    drop(host);
    let two = AgentProcess::start_two("drum", &weights, Network(None))?;
    let mut host = Host { agents: &two, crowd: Crowd::start(&two)?, connections: 0 };
    host.connect(MOST)?;
    rows.push(host.measure(0.0, time)?);
    let goals = goals(&rows);
    Ok((rows, goals))
}

/// What was to hold before it was measured. Rows come in the order of [`measure`].
fn goals(rows: &[Row]) -> Vec<Goal<Place>> {
    let [_, _, quarter, idle, most, shared] = rows else { return Vec::new() };
    let percent = |row: &Row| row.cpu_percent_agent.unwrap_or(f64::NAN);
    let least = "1,000 idle connections: agent's processor time, percent of a core";
    vec![
        Goal::new(least, idle.place(), percent(idle), Limit::AtMost(1.0)),
        Goal::new(
            "1,000 idle connections on shared queue pairs: agent's processor time, percent of a core",
            shared.place(),
            percent(shared),
            Limit::AtMost(1.0),
        ),
        Goal::new(
            "1,000 connections with 10 requests a second each: agent's processor time by that of 250",
            most.place(),
            percent(most) / percent(quarter),
            Limit::AtMost(f64::from(MOST / QUARTER)),
        ),
    ]
}
