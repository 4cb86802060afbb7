//! `soak duplex`: clients of a duplex server that come, talk both ways with every byte checked, end
//! or are killed, and come again; the server must be as it was afterwards (E3.8).
mod clients;
mod memory;
mod server;

use super::{Choice, chance_of, time_below};
use crate::programs;
use crate::repo::Repo;
use anyhow::{Context as _, Result, ensure};
use clients::{Clients, Ended};
use memory::Memory;
use server::{Server, Status};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// A run of `soak duplex`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How long clients come and go
    #[arg(long, default_value_t = 5.0)]
    minutes: f64,
    /// Clients at once
    #[arg(long, default_value_t = 6)]
    clients: usize,
    #[command(flatten)]
    choice: Choice,
}

impl Args {
    pub(super) fn short(seconds: f64, choice: Choice) -> Self {
        Self { minutes: seconds / 60.0, clients: 4, choice }
    }
}

const PAUSE: Duration = Duration::from_millis(600);
/// The part of strikes that are `kill -9`; the others let the client end.
const KILLS: f64 = 0.6;
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
    let (binary, seed) = args.choice.begin(repo, programs::DUPLEX)?;
    let report = hunt(&binary, seed, args)
        .with_context(|| format!("seed {seed}, provider {}", args.choice.provider))?;
    println!("{report}");
    Ok(())
}

fn hunt(binary: &Path, seed: u64, args: &Args) -> Result<Report> {
    let mut random = chance_of(seed, 0);
    let mut server = Server::start(binary, &args.choice.provider)?;
    let before = server.holdings();
    let mut clients = Clients::new(binary, &args.choice.provider, server.address());
    for _ in 0..args.clients {
        clients.start()?;
    }
    let (start, length) = (Instant::now(), Duration::from_secs_f64(args.minutes * 60.0));
    let mut memory = Memory::default();
    let mut looked = start;
    while start.elapsed() < length {
        // The clients talk meanwhile.
        thread::sleep(time_below(&mut random, PAUSE));
        clients.strike(&mut random, KILLS)?;
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
        provider: args.choice.provider.clone(),
        clients: args.clients,
        length,
        ended,
        last,
        memory,
    })
}
