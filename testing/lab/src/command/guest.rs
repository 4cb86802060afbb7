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

/// The exit status of timeout(1) after a timeout.
const TIMED_OUT: i32 = 124;

/// The exit status of env(1) and others when they fail themselves.
const LAB_FAILED: u8 = 125;

/// What a shell adds to a signal number to make an exit status.
const SIGNALLED: i32 = 128;

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Memory of the guest, which also holds the files it writes
    #[arg(long, value_name = "MIB", default_value_t = 1024)]
    memory: u32,
    /// A folder that the guest has as /run/results, writable (by default, results in the cache)
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
    /// Kill the command after this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    limit: u64,
    /// The command; it runs as root, in the same folder, and sees this machine's files
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
        eprintln!("console of the guest:\n{}", guest.console());
    }
    if let Some(finished) = finished? {
        return Ok(finished.ended);
    }
    eprintln!("error: still running after {} s, killed", args.limit);
    // The guest ends with this process, and the program with the guest.
    let _ = process.signal(9);
    Ok(Ended::Status(TIMED_OUT))
}
