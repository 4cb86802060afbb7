//! `catchment-lab guest`: one program in the guest, as if it ran here.
use super::Place;
use crate::remote::process::Output;
use crate::remote::{Ended, Start};
use crate::vm::guest::{Guest, Machine};
use crate::vm::network::SEATS;
use anyhow::Result;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What timeout(1) ends with when the time was over.
const TIME_OVER: i32 = 124;

/// What env(1) and others end with when they fail themselves.
const LAB_FAILED: u8 = 125;

/// What a shell adds to the number of a signal.
const SIGNALLED: i32 = 128;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Memory of the guest, which holds the files that it writes, too
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u32,
    /// A folder that the guest has as /run/results, writable (by default, results in the cache)
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// The command is killed after so many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// The command, which sees the files of this machine, in the same folder; it runs as root
    #[arg(trailing_var_arg = true, required = true)]
    command: Vec<String>,
}

pub(crate) fn run(args: &Args) -> ExitCode {
    match ended(args) {
        Ok(Ended::Status(status)) => ExitCode::from(u8::try_from(status).unwrap_or(1)),
        Ok(Ended::Signal(signal)) => ExitCode::from(u8::try_from(SIGNALLED + signal).unwrap_or(1)),
        Ok(Ended::NotStarted(why)) => {
            eprintln!("error: {why}");
            ExitCode::from(LAB_FAILED)
        }
        Err(error) => {
            super::report(&error);
            ExitCode::from(LAB_FAILED)
        }
    }
}

fn ended(args: &Args) -> Result<Ended> {
    let mut machine = Machine::usual(&args.place.cache, SEATS[0])?;
    machine.memory_mib = args.memory;
    if let Some(results) = &args.results {
        machine.results.clone_from(results);
    }
    let (_turn, kernel) = super::prepare(&args.place)?;
    let guest = Guest::boot(&kernel, &machine)?;
    let start = Start::like_here(args.command.iter().cloned());
    let mut process = guest.start(&start, Output::Passed)?;
    let limit = Duration::from_secs(args.limit);
    let finished = process.finished_within(limit);
    if finished.is_err() {
        eprintln!("the guest's console says:\n{}", guest.console());
    }
    if let Some(finished) = finished? {
        return Ok(finished.ended);
    }
    eprintln!("error: still running after {} s, killed", args.limit);
    // The guest ends with this process, and the program with the guest.
    let _ = process.signal(9);
    Ok(Ended::Status(TIME_OVER))
}
