//! `soak duplex`: clients of a duplex server that come, talk both ways with every byte checked, end
//! or are killed, and come again; the server must be as it was afterwards (E3.8).

mod clients;
mod memory;
mod server;

use super::new_seed;
use super::random::Random;
use crate::programs;
use crate::repo::Repo;
use anyhow::{Context as _, Result, ensure};
use clients::{Clients, Ended};
use memory::Memory;
use server::{Server, Status};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// A run of `soak duplex`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How long clients come and go
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// How the messages go: shm or roce
    #[arg(long, default_value = "shm")]
    provider: String,
    /// Clients at once
    #[arg(long, default_value_t = 6)]
    clients: usize,
    /// Where the moments of strikes come from; left out, a new one is taken and printed
    #[arg(long)]
    seed: Option<u64>,
    /// The program to test, as `cargo build --example duplex` makes it; left out, it is built for
    /// release
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Args {
    pub(super) fn short(seconds: f64, provider: &str) -> Self {
        Self {
            minutes: seconds / 60.0,
            provider: provider.to_owned(),
            clients: 4,
            seed: None,
            binary: None,
        }
    }
}

const PAUSE: Duration = Duration::from_millis(600);
/// Of a hundred strikes so many are `kill -9`; the others let the client end.
const KILLS_PERCENT: u64 = 60;
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Report {
    provider: String,
    clients: usize,
    length: Duration,
    ended: Ended,
    last: Status,
    memory: Memory,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} minutes, {}, {} clients at once: {} killed, {} ended well, {} connections refused; {} \
             messages, {:.1} GB \
             right; {}; objects left 0, descriptors and threads as before",
            self.length.as_secs_f64() / 60.0,
            self.provider,
            self.clients,
            self.ended.killed,
            self.ended.well,
            self.last.refused,
            self.last.messages,
            self.last.bytes as f64 / 1e9,
            self.memory,
        )
    }
}

pub(super) fn run(repo: &Repo, args: &Args) -> Result<()> {
    ensure!(
        args.minutes > 0.0 && args.minutes <= 60.0 * 24.0,
        "--minutes is {}: give more than 0 and at most 1440",
        args.minutes
    );
    ensure!((1..=64).contains(&args.clients), "--clients is {}: give 1 to 64", args.clients);
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => programs::duplex(repo)?,
    };
    let seed = args.seed.unwrap_or_else(new_seed);
    println!("seed {seed}, provider {}", args.provider);
    let report = hunt(&binary, seed, args)
        .with_context(|| format!("seed {seed}, provider {}", args.provider))?;
    println!("{report}");
    Ok(())
}

fn hunt(binary: &Path, seed: u64, args: &Args) -> Result<Report> {
    let mut random = Random::of_round(seed, 0);
    let mut server = Server::start(binary, &args.provider)?;
    let before = server.holdings();
    let mut clients = Clients::new(binary, &args.provider, server.address());
    for _ in 0..args.clients {
        clients.start()?;
    }
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.minutes * 60.0));
    let mut memory = Memory::default();
    let mut looked = start;
    while start.elapsed() < length {
        // The clients talk meanwhile.
        thread::sleep(random.time_below(PAUSE));
        clients.strike(&mut random, KILLS_PERCENT)?;
        server.demand_right()?;
        if looked.elapsed() >= LOOK_EVERY {
            looked = Instant::now();
            memory.note(start.elapsed(), server.resident_kib()?);
        }
    }
    let length = start.elapsed();
    let ended = clients.end()?;
    let last = server.end(&ended, &before)?;
    memory.demand_flat()?;
    Ok(Report {
        provider: args.provider.clone(),
        clients: args.clients,
        length,
        ended,
        last,
        memory,
    })
}
