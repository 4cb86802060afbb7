//! `kv`: the key-value store under the mixes of YCSB and of the DRUM paper, beside redis-server over TCP.
//!
//! The server and an agent are processes, fresh ones for each row; the clients are threads of this one, each with a
//! connection and one operation at a time. What they saw is checked after each row.
mod crowd;
mod ends;
mod redis;
mod row;

use crate::agent::{AgentProcess, Network, Pair, Work};
use crate::goal::{Goal, Unmeasured};
use crate::host::Environment;
use crate::output;
use anyhow::{Context as _, Result, ensure};
use catchment_kv::Sided;
use catchment_kv::load::{Load, Mix};
use catchment_perf::{Amount, Operation, Waiting};
pub(crate) use ends::serve;
use ends::{Path, measure};
use row::{Mode, Row};

/// Measure the key-value store: YCSB's mixes and the paper's, one- and two-sided, raw and through an agent
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// One JSON object a line on standard output instead of a table
    #[arg(long)]
    json: bool,
    /// Half a second a row: within 4 minutes; the default
    #[arg(long, conflicts_with = "full")]
    quick: bool,
    /// Three seconds a row, and values of 32 bytes, 64 KiB and 1 MiB too
    #[arg(long)]
    full: bool,
    /// Seconds of each row instead
    #[arg(long)]
    seconds: Option<f64>,
    /// Clients of each row
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Keys at the beginning
    #[arg(long, default_value_t = 10_000)]
    keys: u64,
    /// Bytes of a value [default: 1024; of --full four sizes]
    #[arg(long, value_delimiter = ',')]
    value_bytes: Vec<u64>,
    /// Only many clients between two network namespaces: RAW, SHARE and the agent in turn
    #[arg(long)]
    crowd: bool,
}

impl Options {
    fn seconds(&self) -> f64 {
        self.seconds.unwrap_or(if self.full { 3.0 } else { 0.5 })
    }

    fn sizes(&self) -> Vec<u64> {
        match (&self.value_bytes[..], self.full) {
            ([], false) => vec![1024],
            ([], true) => vec![32, 1024, 65_536, 1 << 20],
            (given, _) => given.to_vec(),
        }
    }

    /// Keys that fit into a store of some size.
    fn keys_of(&self, value_bytes: u64) -> u64 {
        self.keys.min((256 << 20) / value_bytes).max(1)
    }
}

/// Whose device, over what, and who executes operations.
const PLACES: [(Mode, Path, Sided); 8] = [
    (Mode::Raw, Path::Shm, Sided::One),
    (Mode::Raw, Path::Shm, Sided::Two),
    (Mode::Raw, Path::Roce, Sided::One),
    (Mode::Raw, Path::Roce, Sided::Two),
    (Mode::Share, Path::Agent, Sided::One),
    (Mode::Drum, Path::Agent, Sided::One),
    (Mode::Drum, Path::Agent, Sided::Two),
    (Mode::Unlimited, Path::Agent, Sided::One),
];

/// A bare READ of one client with one outstanding: its median, in nanoseconds.
fn bare_read_ns(bytes: u64, seconds: f64) -> Result<f64> {
    let work = Work {
        operation: Operation::Read,
        bytes,
        outstanding: 1,
        warm_up: Amount::Seconds(seconds / 10.0),
        seconds,
        waiting: Waiting::Yield,
    };
    let found = Pair::start(None, Network(None), 0, &[work])?.finish()?;
    let latency = found.first().and_then(|found| found.latency_ns);
    Ok(latency.context("the engine timed no READ")?[0])
}

pub(crate) fn run(options: &Options) -> Result<()> {
    let seconds = options.seconds();
    ensure!(seconds > 0.0 && options.clients > 0 && options.keys > 0, "nothing is to be measured");
    let sizes = options.sizes();
    ensure!(sizes.iter().all(|size| (8..=1 << 20).contains(size)), "values have 8 B to 1 MiB");
    if options.json {
        output::json(&serde_json::json!({
            "what": "run",
            "form": if options.full { "--full" } else { "--quick" },
            "seconds": seconds,
            "zipf": catchment_kv::load::ZIPF,
            "environment": Environment::detect(),
        }))?;
    } else {
        output::line(Row::HEAD)?;
    }
    if options.crowd {
        let (rows, goals) = crowd::measure(options).context("many clients")?;
        rows.iter().try_for_each(|row| output::either(options.json, row, Row::line))?;
        return goals.iter().try_for_each(|goal| output::either(options.json, goal, Goal::line));
    }
    let mut rows = Vec::new();
    for value_bytes in sizes {
        for place in PLACES {
            for (name, mix) in Mix::ALL {
                let keys = options.keys_of(value_bytes);
                let load = Load { mix, keys, value_bytes: value_bytes as usize };
                let row = in_place(options, (name, load), place, Network(None))
                    .with_context(|| format!("{name} in {place:?}"))?;
                output::either(options.json, &row, Row::line)?;
                rows.push(row);
            }
        }
    }
    // One client alone, for what one GET takes.
    let alone = Load { mix: Mix::Reads(100), keys: options.keys_of(1024), value_bytes: 1024 };
    let alone_options = Options { clients: 1, ..options.clone() };
    let alone = in_place(&alone_options, ("ycsb-c", alone), PLACES[0], Network(None))?;
    output::either(options.json, &alone, Row::line)?;
    let redis = redis::measure(seconds);
    if let Ok(row) = &redis {
        output::either(options.json, row, Row::line)?;
    }
    let bare = (bare_read_ns(64, seconds)?, bare_read_ns(1024, seconds)?);
    for goal in row::goals(&rows, &alone, bare, redis.as_ref().ok()) {
        output::either(options.json, &goal, Goal::line)?;
    }
    for goal in row::unmeasured(redis.err()) {
        output::either(options.json, &goal, Unmeasured::line)?;
    }
    Ok(())
}

/// Measures one mix at one place with fresh processes; agents over a network have an end each.
fn in_place(
    options: &Options,
    (name, load): (&'static str, Load),
    (mode, path, sided): (Mode, Path, Sided),
    network: Network<'_>,
) -> Result<Row> {
    let agent = match mode {
        Mode::Raw | Mode::None => None,
        Mode::Share => Some(AgentProcess::start_two("share", &[1.0], network)?),
        Mode::Drum if network.0.is_some() => {
            Some(AgentProcess::start_two("drum", &[1.0], network)?)
        }
        Mode::Drum => Some(AgentProcess::start("drum", &[1.0], network)?),
        Mode::Unlimited => Some(AgentProcess::start("unlimited", &[1.0], network)?),
    };
    let agents = agent.as_ref().map(|agent| [agent.name(), agent.name_of_targets()]);
    let (clients, seconds) = (options.clients, options.seconds());
    let measure = || measure(load, clients, seconds, (path, agents), (network, sided));
    // Clients are at the left end.
    let found = network.0.map_or_else(measure, |hop| hop.left.0.run(measure)?)?;
    Ok(Row::new(name, (mode, path.name(network), sided), clients, load, found))
}
