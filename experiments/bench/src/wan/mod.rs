//! `wan`: twelve sources that share a narrow link, as real processes, between network namespaces or over a relay.
//!
//! The events are those of `bench admission`, with bytes and rates divided by a scale; times are as they are. Each source
//! is a process in a namespace of its own, whose NIC is a token bucket; a router carries all of them to a collector
//! through one bottleneck with a drop-tail queue. Where a method has a controller, it is `catchment control` beside
//! the collector. Where there may be no namespaces, a thread of this process is NICs and router
//! between addresses of this host. A frame is there when the collector's sink has it; all processes read the same monotonic clock.
//!
//! | | |
//! |---|---|
//! | `place` | rates, headers, the link |
//! | `method` | who sends how, and what the controller is told |
//! | `role`, `tcp` | the processes: sources and collector, over Catchment or a TCP stream each |
//! | `talk` | what they and who started them tell each other |
//! | `cell` | one method under one load |
//! | `row` | rows and goals |
mod cell;
mod method;
mod place;
mod role;
mod row;
mod talk;
mod tcp;

use crate::bound::{Goal, Goals};
use crate::output;
use anyhow::{Context as _, Result, ensure};
use catchment_sim::admission::Trace;
use cell::Cell;
use clap::ValueEnum as _;
use method::Method;
use place::Place;
pub(crate) use role::role;
use row::{Row, Run};
use std::path::PathBuf;

/// Loads and lengths: as they are, and with --full.
const LOADS: [f64; 2] = [0.5, 0.87];
const SECONDS: u64 = 30;
const LOADS_FULL: [f64; 7] = [0.09, 0.3, 0.5, 0.66, 0.8, 0.87, 0.9];
const SECONDS_FULL: u64 = 120;
const SEEDS_FULL: u64 = 3;

/// Measure the transmission controller between namespaces: processes, a router, a narrow link
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of text
    #[arg(long)]
    json: bool,
    /// spq, fifo, priority and deadline at loads 0.5 and 0.87, 30 s each; without it all methods
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Three seeds of 120 s at seven loads: hours
    #[arg(long)]
    full: bool,
    /// Only these methods
    #[arg(long, value_delimiter = ',')]
    method: Vec<Method>,
    /// Only these loads: parts of the link
    #[arg(long, value_delimiter = ',')]
    load: Vec<f64>,
    /// Seconds of events in each cell
    #[arg(long)]
    seconds: Option<u64>,
    /// The first seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The events of a file (docs/spec/event-trace.md) instead of drawn ones
    #[arg(long, conflicts_with_all = ["load", "seconds", "seed"])]
    trace: Option<PathBuf>,
    /// Over IPv6
    #[arg(long, conflicts_with = "relay")]
    ipv6: bool,
    /// Over a relay on this host, as where no network namespaces are allowed: methods without TCP and classes of packets
    #[arg(long)]
    relay: bool,
    /// Bytes and rates are divided by this: 20 Gbit/s become 500 Mbit/s
    #[arg(long, default_value_t = 40)]
    scale: u64,
    /// NICs as a part of the link: 0.5 are the paper's 10 Gbit/s, 1 are 20
    #[arg(long, default_value_t = 0.5)]
    nic: f64,
    /// Microseconds that the controller is told delays may differ by
    #[arg(long, default_value_t = 1000)]
    guard_us: u64,
    /// KiB that may wait for the bottleneck, instead of the simulator's queue at that scale
    #[arg(long)]
    queue_kib: Option<u64>,
}

impl Options {
    fn methods(&self) -> Vec<Method> {
        if !self.method.is_empty() {
            return self.method.clone();
        }
        let quick = [Method::Spq, Method::Fifo, Method::Priority, Method::Deadline];
        if self.quick { quick.to_vec() } else { Method::value_variants().to_vec() }
    }

    /// Returns the events of each cell, with the load that was asked for.
    fn traces(&self) -> Result<Vec<(f64, Trace)>> {
        if let Some(path) = &self.trace {
            let text = std::fs::read_to_string(path).context(path.display().to_string())?;
            let trace = Trace::read(&text).map_err(anyhow::Error::msg)?;
            return Ok(vec![(trace.load(), trace)]);
        }
        let loads = match self.load.is_empty() {
            false => self.load.clone(),
            true if self.full => LOADS_FULL.to_vec(),
            true => LOADS.to_vec(),
        };
        let seconds = self.seconds.unwrap_or(if self.full { SECONDS_FULL } else { SECONDS });
        let seeds = if self.full { SEEDS_FULL } else { 1 };
        ensure!((5..=3600).contains(&seconds), "5 to 3,600 seconds");
        let sound = |load: &f64| (0.01..=2.0).contains(load);
        ensure!(loads.iter().all(sound), "a load is a part of the link: 0.01 to 2");
        let seeded = (self.seed..self.seed + seeds).flat_map(|seed| {
            loads.iter().map(move |load| (*load, Trace::draw(*load, seconds, seed)))
        });
        Ok(seeded.collect())
    }

    const fn mode(&self) -> &'static str {
        match (self.quick, self.full) {
            (true, _) => "quick",
            (_, true) => "full",
            (false, false) => "usual",
        }
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    ensure!((1..=400).contains(&options.scale), "a scale of 1 to 400");
    ensure!((0.05..=1.0).contains(&options.nic), "NICs of 0.05 to 1 of the link");
    let has_privilege = catchment_netns::has_privilege();
    let why_none =
        (!options.relay && !has_privilege).then(catchment_netns::why_no_user_namespace).flatten();
    if let Some(why) = &why_none {
        eprintln!("no network namespaces here ({why}): a relay of this process is the link");
        ensure!(!options.ipv6, "the relay speaks IPv4");
    }
    let has_relay = options.relay || why_none.is_some();
    if !has_relay && !has_privilege {
        let code = catchment_netns::again_with_privilege().context("namespaces")?;
        ensure!(code == 0, "it failed in a user namespace of its own; as root it needs none");
        return Ok(());
    }
    let place = Place::new(options.scale, options.nic, options.ipv6, options.queue_kib);
    let place = place.over_a_relay(has_relay);
    let run = Run::detect(options.mode(), &place);
    output::either(options.json, &run, Run::line)?;
    let traces = options.traces()?;
    let mut rows: Vec<Row> = Vec::new();
    let mut left_out = Vec::new();
    for method in options.methods() {
        if let Some(why) = method.why_no_relay().filter(|_| has_relay) {
            left_out.push(Goal::unmeasured(&method.to_string(), why));
            continue;
        }
        let link = place.link(method)?;
        for (load, trace) in &traces {
            let guard_us = options.guard_us;
            let row =
                Cell { place: &place, link: &link, method, load: *load, trace, guard_us }.run();
            let row = row.with_context(|| format!("{method} at load {load}"))?;
            output::either(options.json, &row, Row::line)?;
            rows.push(row);
        }
    }
    let goals: Vec<Goal> = row::goals(&rows).into_iter().chain(left_out).collect();
    for goal in &goals {
        output::either(options.json, goal, Goal::line)?;
    }
    output::either(options.json, &Goals::of(&goals), Goals::line)
}
