//! Measurements of Catchment beside its peers.
//!
//! Rules for every number: all mechanisms run with the same sizes, the same number of blocks, the
//! same cores and the same way of waiting; every role is a process of its own, bound to a core
//! before it does anything; mechanisms take turns; warm-up does not count; a batch in which a
//! polling role had less than 97 % of its core is repeated; the payload is verified by a twin run
//! in the same processes; medians are shown with the range from the 5th to the 95th percentile.
//!
//! Data in: options, scenarios (`scenarios/*.toml`). Data out: a table, lines of JSON, CSV, a page.
//!
//! | | |
//! |---|---|
//! | `job`, `pair`, `role` | what one measurement is, who starts its two processes, what these do |
//! | `link` | one end of a mechanism, as a role sees it |
//! | `mechanism`, `stats`, `host`, `output`, `csv` | names, medians, the machine, standard output |
//! | `transfer` (`grid`, `row`, `resources`, `goals`, `clauses`, `report`) | all mechanisms in cells of bytes and blocks, and what was to be reached |
//! | `papers` (and `peers`) | scenarios with claims, pictures, pages |
//! | `page` | the pages of the other measurements, out of their rows |
//! | `compared` | every mechanism, as `catchment bench` measures the product's |
//! | `duplex` | client and server of the beam-diagnostics paper beside TCP, for `papers` |
//! | `grants` | what the transmission controller's service takes, for `control` |
//! | `wan` | sources that share a narrow link between namespaces, with a controller and without |
//! | `agent` | applications that share a device, beside those that have their own |
//! | `kv` | the key-value store under mixes of operations, beside redis-server |
//! | `tunnel` | Redis through a tunnel, beside plain TCP |
//! | `roce`, `source`, `rate`, `long`, `authenticate`, `scan`, `reads` | one question each; the first by the engine of `catchment-perf` |
#![deny(unsafe_code)]
use anyhow::Result;
use catchment_cli::{BenchArgs, Program};
use clap::Parser;
use std::process::ExitCode;

mod agent;
mod authenticate;
mod bound;
mod clauses;
mod compared;
mod control;
mod csv;
mod duplex;
mod external;
mod goal;
mod goals;
mod grants;
mod grid;
mod hop;
mod host;
mod job;
mod kept;
mod kv;
mod link;
mod long;
mod mechanism;
mod output;
mod page;
mod pair;
mod papers;
mod rate;
mod reads;
/// The model is a test of the transfer crate first of all.
#[path = "../../../crates/transfer/tests/reads_model/mod.rs"]
mod reads_model;
mod report;
mod resources;
mod roce;
mod role;
mod row;
mod scan;
mod source;
mod stats;
#[allow(unsafe_code, reason = "system calls that no crate wraps; the only module with any")]
mod sys;
mod table;
mod times;
mod transfer;
mod tunnel;
mod ucx;
mod wan;

/// Measurements of Catchment beside its peers
#[derive(Parser)]
#[command(version)]
enum Command {
    Transfer(grid::Options),
    /// As `catchment bench`, with every mechanism: status bytes, windows, rendezvous
    Mechanisms(Box<BenchArgs>),
    Scan(scan::Options),
    Reads(reads::Options),
    Rate(rate::Options),
    Long(long::Options),
    Authenticate(authenticate::Options),
    Control(grants::Options),
    Wan(wan::Options),
    Agent(agent::Options),
    Kv(kv::Options),
    Tunnel(tunnel::Options),
    Roce(roce::Options),
    Source(source::Options),
    Papers(papers::Options),
    Page(page::Options),
    /// Frames of a camera beside other projects, side by side
    Peers(papers::Options),
    /// One of the two processes of a measurement; started by the program itself
    #[command(hide = true)]
    Role {
        role: String,
        job: String,
    },
    /// Client or server of a duplex channel; started by the program itself
    #[command(hide = true)]
    DuplexRole {
        side: String,
        job: String,
        port: Option<u16>,
    },
    /// One of the two processes of `source`; started by the program itself
    #[command(hide = true)]
    SourceRole(source::Role),
    /// The controller of `control`; started by the program itself
    #[command(hide = true)]
    ControlRole {
        host: std::net::IpAddr,
        capacity_bps: u64,
        queue_bytes: Option<u64>,
    },
    /// Sends datagrams back for `control`; started by the program itself
    #[command(hide = true)]
    BareRole,
    /// One of the processes of `wan`; started by the program itself
    #[command(hide = true)]
    WanRole {
        job: String,
    },
    /// The process whose memory `rate` writes; started by the program itself
    #[command(hide = true)]
    RateTarget {
        provider: String,
    },
    /// One of the processes of `agent`; started by the program itself
    #[command(hide = true)]
    AgentRole {
        role: String,
    },
    /// The store of `kv`; started by the program itself
    #[command(hide = true)]
    KvRole {
        serving: String,
    },
    /// One of the two processes of a network measurement; started by the program itself
    #[command(hide = true)]
    RoceRole {
        job: String,
    },
}

fn main() -> ExitCode {
    if std::env::args_os().next().is_some_and(|name| name == long::COMMAND) {
        return catchment_cli::main();
    }
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("catchment-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    match Command::parse() {
        Command::Transfer(options) => transfer::run(&options),
        Command::Mechanisms(args) => {
            let hint = "-m all measures each of them";
            let program = Program { command: "mechanisms", mechanisms: compared::all(), hint };
            return Ok(catchment_cli::measure(&args, &program));
        }
        Command::Scan(options) => scan::run(&options),
        Command::Reads(options) => reads::run(&options),
        Command::Rate(options) => rate::run(&options),
        Command::Long(options) => long::run(&options),
        Command::Authenticate(options) => authenticate::run(&options),
        Command::Control(options) => grants::run(&options),
        Command::ControlRole { host, capacity_bps, queue_bytes } => {
            grants::role(host, capacity_bps, queue_bytes)
        }
        Command::BareRole => grants::bare_role(),
        Command::Wan(options) => wan::run(&options),
        Command::WanRole { job } => wan::role(&serde_json::from_str(&job)?),
        Command::Agent(options) => agent::run(&options),
        Command::AgentRole { role } => agent::role(&serde_json::from_str(&role)?),
        Command::Kv(options) => kv::run(&options),
        Command::KvRole { serving } => kv::serve(&serde_json::from_str(&serving)?),
        Command::RateTarget { provider } => rate::target(&provider),
        Command::Tunnel(options) => tunnel::run(&options),
        Command::Roce(options) => roce::run(&options),
        Command::Source(options) => source::run(&options),
        Command::SourceRole(role) => source::role(&role),
        Command::Page(options) => page::run(&options),
        Command::Papers(options) => papers::run(&options, papers::Page::Papers),
        Command::Peers(options) => papers::run(&options, papers::Page::Peers),
        Command::RoceRole { job } => roce::role(&serde_json::from_str(&job)?),
        Command::DuplexRole { side, job, port } => {
            duplex::role(serde_json::from_str(&side)?, &serde_json::from_str(&job)?, port)
        }
        Command::Role { role, job } => {
            role::main(serde_json::from_str(&role)?, &serde_json::from_str(&job)?)
        }
    }?;
    Ok(ExitCode::SUCCESS)
}
