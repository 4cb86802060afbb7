//! `mechanisms`: blocks through every mechanism by name, measured as `catchment bench transfer`
//! measures the product's own.
mod adapter;

use crate::output;
use anyhow::{Context as _, Result};
use catchment::perf::{
    Amount, BlockPlan, ChildProcess, Client, Figure, PerfError, Row, Server, Setup, Waiting,
};
use catchment::providers::ProviderSet;
use catchment::roce::RoceOptions;
use catchment::session::path::PathRules;
use serde::Serialize;
use std::io::Read as _;
use std::net::SocketAddr;
use std::process::{Command, Stdio};

/// What a server says first, before its address.
const LISTENING: &str = "listening at ";

/// Blocks through every mechanism: status bytes, windows, rendezvous
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// What moves the blocks, or `all`: sb, sb-in-place, sb-paper, sw-paper, sw-fair, ..., rendezvous
    #[arg(short, long, value_name = "NAME", value_delimiter = ',', default_value = "all")]
    mechanism: Vec<String>,
    /// Blocks that can be on their way
    #[arg(short, long, value_name = "N", value_delimiter = ',', default_value = "16")]
    blocks: Vec<u32>,
    /// Bytes of a block
    #[arg(short, long, value_name = "BYTES", value_delimiter = ',', default_value = "65536")]
    size: Vec<u32>,
    /// Blocks of each measurement
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "duration")]
    iterations: Option<u64>,
    /// Seconds of each measurement
    #[arg(short = 'D', long, value_name = "SECONDS", default_value_t = 1.0)]
    duration: f64,
    /// Latency instead of bandwidth: half of the time of a block to the server and one back
    #[arg(long)]
    latency: bool,
    /// The provider of both sides, such as shm or roce [default: the best there is]
    #[arg(long)]
    provider: Option<String>,
    /// The machine where this runs with --listen [default: a server is started here]
    #[arg(short, long, value_name = "HOST:PORT", conflicts_with = "listen")]
    connect: Option<String>,
    /// Wait to be measured; whoever reaches this address can measure
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
    /// End when standard input closes
    #[arg(long, hide = true, requires = "listen")]
    until_stdin_closes: bool,
    /// One JSON object a line
    #[arg(long)]
    json: bool,
}

/// A measurement, with the columns of `catchment bench transfer --json`.
#[derive(Debug, Serialize)]
struct Line<'a> {
    test: &'static str,
    mechanism: &'a str,
    blocks: u32,
    #[serde(flatten)]
    row: Row,
}

pub(crate) fn run(options: &Options) -> Result<()> {
    match options.listen {
        Some(address) => serve(options, address),
        None => measure(options),
    }
}

impl Options {
    fn setup(&self) -> Setup {
        let rules =
            PathRules { require: self.provider.iter().cloned().collect(), ..PathRules::default() };
        let roce = RoceOptions {
            inline_polling: self.listen.is_some() || self.latency,
            ..RoceOptions::default()
        };
        Setup {
            providers: ProviderSet::default().rules(rules).with(roce),
            mechanisms: adapter::all(),
        }
    }

    fn is_about_all(&self) -> bool {
        self.mechanism.iter().any(|name| name == "all")
    }

    fn plans(&self) -> Vec<BlockPlan> {
        let names = self.mechanism.iter().flat_map(|name| match name.as_str() {
            "all" => adapter::all().iter().map(|one| one.name()).collect(),
            name => vec![name],
        });
        let names: Vec<&str> = names.collect();
        let (figure, waiting) = match self.latency {
            true => (Figure::Latency, Waiting::Yield),
            false => (Figure::Bandwidth, Waiting::Sleep),
        };
        let seconds = Amount::Seconds(self.duration);
        let mut plans = Vec::new();
        for bytes in &self.size {
            for blocks in &self.blocks {
                plans.extend(names.iter().map(|name| BlockPlan {
                    mechanism: (*name).to_owned(),
                    blocks: *blocks,
                    bytes: *bytes,
                    figure,
                    amount: self.iterations.map_or(seconds, Amount::Iterations),
                    waiting,
                }));
            }
        }
        plans
    }
}

fn serve(options: &Options, address: SocketAddr) -> Result<()> {
    let server = Server::bind(address, options.setup())?;
    output::line(&format!("{LISTENING}{}", server.local_address()?))?;
    if options.until_stdin_closes {
        std::thread::spawn(|| {
            // Closed or broken: the program that started this one is gone.
            let _ = std::io::stdin().read(&mut [0]);
            std::process::exit(0);
        });
    }
    loop {
        if let Err(error) = server.serve() {
            eprintln!("a client failed: {error}");
        }
    }
}

fn measure(options: &Options) -> Result<()> {
    let plans = options.plans();
    plans.iter().try_for_each(BlockPlan::check)?;
    let own = match options.connect {
        Some(_) => None,
        None => Some(OwnServer::start(options)?),
    };
    let address = options.connect.clone();
    let address = address.or_else(|| own.as_ref().map(|own| own.address.clone()));
    let address = address.context("no server")?;
    let (host, port) = address.rsplit_once(':').context("--connect needs HOST:PORT")?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut client = Client::connect((host, port.parse()?), &options.setup())?;
    for plan in plans {
        let row = match client.measure_blocks(&plan) {
            Err(error @ PerfError::Plan(_)) if options.is_about_all() => {
                eprintln!("left out: {error}");
                continue;
            }
            row => row?,
        };
        let line = Line { test: "transfer", mechanism: &plan.mechanism, blocks: plan.blocks, row };
        output::either(options.json, &line, Line::text)?;
    }
    Ok(())
}

impl Line<'_> {
    fn text(&self) -> String {
        let head = format!("{:<22} {:>5} blocks", self.mechanism, self.blocks);
        match &self.row {
            Row::Bandwidth(row) => format!(
                "{head} {:>9} bytes {:>10.1} MiB/s {:>10.0} blocks/s",
                row.bytes,
                row.average_bytes_per_s / f64::from(1 << 20),
                row.messages_per_s
            ),
            Row::Latency(row) => format!(
                "{head} {:>9} bytes {:>8.2} us typical {:>8.2} us in 99 %",
                row.bytes,
                row.typical_ns / 1e3,
                row.p99_ns / 1e3
            ),
        }
    }
}

struct OwnServer {
    _process: ChildProcess,
    address: String,
}

impl OwnServer {
    fn start(options: &Options) -> Result<OwnServer> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["mechanisms", "--listen", "127.0.0.1:0", "--until-stdin-closes"]);
        if let Some(provider) = &options.provider {
            command.args(["--provider", provider]);
        }
        command.stdin(Stdio::piped());
        let mut process = ChildProcess::start("the server", &mut command)?;
        let line = process.wait_for(|line| line.starts_with(LISTENING))?;
        Ok(OwnServer { _process: process, address: line.trim_end()[LISTENING.len()..].to_owned() })
    }
}
