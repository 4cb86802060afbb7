//! `tunnel`: what Redis does through a tunnel, beside plain TCP, between two namespaces.
//!
//! Service and clients are as Debian packages them. The ends of the tunnel are processes of the command, and so are
//! the agents of `tunnel-drum`. Who is compared takes turns.
mod rivals;
mod row;

use crate::goal::{Goal, Unmeasured};
use crate::host::Environment;
use crate::output;
use anyhow::{Context as _, Result, ensure};
use catchment_netns::VethPair;
use rivals::{Redis, Rival};
use row::{Found, Place, Row};
use std::process::Command;

/// MTU of the interfaces between the namespaces.
const INTERFACE_MTU: u32 = 9000;
const COMMANDS: [&str; 3] = ["PING_INLINE", "SET", "GET"];
/// Clients and pipeline of the cells.
const SHAPES: [(u32, u32); 3] = [(50, 1), (50, 16), (1, 1)];

/// Measure Redis through a tunnel, beside plain TCP
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Medians of 3 runs of 20,000 requests; the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Medians of 11 runs of 100,000 requests
    #[arg(long)]
    full: bool,
    /// Runs of each row instead
    #[arg(long)]
    runs: Option<usize>,
    /// Requests of each run instead; with one client a quarter of them
    #[arg(long)]
    requests: Option<u32>,
    /// Bytes of values
    #[arg(long, default_value_t = 3)]
    value_bytes: u32,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let runs = options.runs.unwrap_or(if options.full { 11 } else { 3 });
    let requests = options.requests.unwrap_or(if options.full { 100_000 } else { 20_000 });
    ensure!(runs > 0 && requests > 3, "a measurement takes requests");
    let version = Command::new("redis-server").arg("--version").output();
    let version = version.context("redis-server (apt-get install redis-server redis-tools)")?;
    let version = row::version(&String::from_utf8_lossy(&version.stdout));
    if options.json {
        output::json(&serde_json::json!({
            "what": "run",
            "form": if options.full { "--full" } else { "--quick" },
            "runs": runs,
            "requests": requests,
            "environment": Environment::detect(),
        }))?;
    } else {
        output::line(Row::HEAD)?;
    }
    let rows = measure(options, runs, requests, &version)?;
    for row in &rows {
        output::either(options.json, row, Row::line)?;
    }
    for goal in row::goals(&rows) {
        output::either(options.json, &goal, Goal::line)?;
    }
    for goal in row::unmeasured() {
        output::either(options.json, &goal, Unmeasured::line)?;
    }
    Ok(())
}

/// Measures all cells in turn, run by run.
fn measure(options: &Options, runs: usize, requests: u32, version: &str) -> Result<Vec<Row>> {
    let veth = VethPair::new(INTERFACE_MTU)?;
    let redis = Redis::start(&veth)?;
    let rivals = [Rival::tcp(), Rival::raw(&veth)?, Rival::share(&veth)?, Rival::drum(&veth)?];
    let cells = SHAPES.iter().flat_map(|shape| COMMANDS.map(|command| (command, *shape)));
    let cells: Vec<_> = cells.collect();
    let mut found: Vec<[Vec<Found>; 4]> = vec![Default::default(); cells.len()];
    for run in 0..runs {
        for ((command, (clients, pipeline)), found) in cells.iter().zip(&mut found) {
            let requests = if *clients == 1 { requests / 4 } else { requests };
            let words = (*command, *clients, *pipeline, options.value_bytes, requests);
            // Who begins has what the one before left in the caches.
            for turn in 0..rivals.len() {
                let at = (run + turn) % rivals.len();
                let one = rivals[at].measure(&veth, &redis, words);
                found[at].push(one.with_context(|| format!("{:?} {words:?}", rivals[at].what))?);
            }
        }
    }
    let rows = cells.iter().zip(&found).flat_map(|((command, (clients, pipeline)), found)| {
        let place = |rival: &Rival| Place {
            provider: rival.provider,
            command: (*command).to_owned(),
            clients: *clients,
            pipeline: *pipeline,
            value_bytes: options.value_bytes,
        };
        let rows = rivals.iter().zip(found);
        rows.map(|(rival, found)| Row::new(rival.what, place(rival), found, version))
            .collect::<Vec<_>>()
    });
    Ok(rows.collect())
}
