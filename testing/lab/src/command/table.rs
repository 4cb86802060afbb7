//! `catchment-lab table`: our stack in user space beside the kernel's.
use super::Place;
use crate::table::{self, Subject, Table};
use crate::vm::guest::{Guest, Machine};
use crate::vm::network::SEATS;
use anyhow::{Context as _, Result, ensure};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// How often to measure each
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Also write the page to this file
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(args.rounds > 0, "--rounds is 0: give 1 or more");
    let (_turn, kernel) = super::prepare(&args.place)?;
    let machine = Machine::usual(&args.place.cache, SEATS[0])?;
    let guest = Guest::boot(&kernel, &machine)?;
    let release = guest.run(&["uname", "-r"], Duration::from_secs(60))?.stdout;
    let table = Table::new(guest)?;
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        rounds.push(table.round()?);
        eprintln!("round {number} of {}: {:?}", args.rounds, rounds.last());
    }
    let profiles = [table.profile(Subject::Ours)?, table.profile(Subject::Kernel)?];
    let page = table::page(&rounds, &profiles, release.trim());
    print!("{page}");
    if let Some(path) = &args.markdown {
        fs::write(path, page).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
