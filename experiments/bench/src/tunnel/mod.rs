//! `tunnel`: what Redis does through a tunnel, beside plain TCP, between two namespaces: alone, over a shaped line, and
//! there beside a writer of long values.
//!
//! Service and clients are as Debian packages them. The ends of the tunnel are processes of the command, and so are
//! the agents of `tunnel-drum`. Who is compared takes turns.
mod rivals;
mod row;
mod service;
mod shaped;

use crate::goal::Goal;
use crate::hop::Hop;
use crate::host::Environment;
use crate::{output, pair};
use anyhow::{Context as _, Result, ensure};
use catchment_channel::Mode;
use catchment_netns::VethPair;
use rivals::{Load, Rival, Setting};
use row::{Found, Place, Row};
use service::Service;
use std::process::Command;

/// The line's queue empties within so many microseconds: less than Linux keeps for an interface by default, 1,000
/// packets (34 ms at 1 Gbit/s), so TCP is held up less than it often is.
const QUEUE_US: f64 = 8000.0;
/// MTU of the interfaces between the namespaces.
const INTERFACE_MTU: u32 = 9000;
const REDIS_PORT: u16 = 6379;
const COMMANDS: [&str; 3] = ["PING_INLINE", "SET", "GET"];
/// Clients and pipeline of the cells without a shaped line.
const SHAPES: [(u32, u32); 3] = [(50, 1), (50, 16), (1, 1)];

/// What joins the two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// A cable without a limit
    Unshaped,
    /// A line of `--line-mbps`, without and with a writer of long values beside
    Shaped,
}

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
    /// Only these rows
    #[arg(long)]
    only: Option<Part>,
    /// Runs of each row instead
    #[arg(long)]
    runs: Option<usize>,
    /// Requests of each run instead; with one client a quarter of them, over a shaped line a hundredth with values of 1 MB, and beside a writer as many as take a second
    #[arg(long)]
    requests: Option<u32>,
    /// Bytes of values
    #[arg(long, default_value_t = 3)]
    value_bytes: u32,
    /// How messages of tunnels without an agent travel (may be given several times: write-imm, write, send); those with an
    /// agent have the first
    #[arg(long = "mode", default_values_t = [Mode::WriteImm])]
    modes: Vec<Mode>,
    /// Megabits a second of the shaped line, 20 to 10000. Its queue takes 8 ms to empty, and long values are as long in time
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(20..=10_000))]
    line_mbps: u32,
}

/// A cell of the table, and what each rival found there, run by run.
struct Cell {
    load: Load,
    background: Option<String>,
    found: Vec<Vec<Found>>,
}

impl Cell {
    fn new(load: Load, background: Option<String>, rivals: &[Rival]) -> Self {
        Self { load, background, found: rivals.iter().map(|_| Vec::new()).collect() }
    }

    fn rows(&self, rivals: &[Rival], shaped_bps: Option<u64>, version: &str) -> Vec<Row> {
        let row = |(rival, found): (&Rival, &Vec<Found>)| {
            let place = Place {
                provider: rival.provider,
                command: self.load.command.to_owned(),
                clients: self.load.clients,
                pipeline: self.load.pipeline,
                value_bytes: self.load.value_bytes,
                background: self.background.clone(),
                shaped_bps,
            };
            Row::new((rival.what, rival.mode), place, found, version)
        };
        rivals.iter().zip(&self.found).map(row).collect()
    }
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let runs = options.runs.unwrap_or(if options.full { 11 } else { 3 });
    let requests = options.requests.unwrap_or(if options.full { 100_000 } else { 20_000 });
    ensure!(runs > 0, "--runs is 0: nothing would be measured");
    ensure!(requests >= 100, "--requests is {requests}: at least 100");
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
    let is_wanted = |part| options.only.is_none_or(|only| only == part);
    let mut rows = Vec::new();
    if is_wanted(Part::Unshaped) {
        rows.extend(measure(options, runs, requests, &version)?);
    }
    if is_wanted(Part::Shaped) {
        rows.extend(shaped::measure(options, runs, requests, &version)?);
    }
    for row in &rows {
        output::either(options.json, row, Row::line)?;
    }
    for goal in row::goals(&rows) {
        output::either(options.json, &goal, Goal::line)?;
    }
    Ok(())
}

/// Starts all that are compared.
fn rivals(setting: Setting<'_>, modes: &[Mode]) -> Result<Vec<Rival>> {
    let mut rivals = vec![Rival::tcp(setting)];
    for mode in modes {
        rivals.push(Rival::raw(setting, *mode)?);
    }
    let first = modes.first().copied().unwrap_or_default();
    rivals.extend([Rival::share(setting, first)?, Rival::drum(setting, first)?]);
    Ok(rivals)
}

/// Returns the rivals in the turns of a run.
fn turns(run: usize, rivals: &[Rival]) -> impl Iterator<Item = (usize, &Rival)> {
    pair::turns(run, rivals.len()).map(|at| (at, &rivals[at]))
}

/// Measures the cells without a shaped line in turn, run by run.
fn measure(options: &Options, runs: usize, requests: u32, version: &str) -> Result<Vec<Row>> {
    let veth = VethPair::new(INTERFACE_MTU)?;
    let hop = Hop::from(&veth);
    let services = [Service::start(hop, "redis", REDIS_PORT)?];
    let setting = Setting { hop, services: &services, line: None };
    let rivals = rivals(setting, &options.modes)?;
    let load = |command, (clients, pipeline)| Load {
        command,
        clients,
        pipeline,
        value_bytes: options.value_bytes,
        requests: if clients == 1 { requests / 4 } else { requests },
    };
    let cells = SHAPES.iter().flat_map(|shape| COMMANDS.map(|command| load(command, *shape)));
    let mut cells: Vec<_> = cells.map(|load| Cell::new(load, None, &rivals)).collect();
    for run in 0..runs {
        for cell in &mut cells {
            for (at, rival) in turns(run, &rivals) {
                let found = rival.measure(setting, cell.load);
                let context = || format!("{:?} {:?}", rival.what, cell.load);
                cell.found[at].push(found.with_context(context)?);
            }
        }
    }
    Ok(cells.iter().flat_map(|cell| cell.rows(&rivals, None, version)).collect())
}
