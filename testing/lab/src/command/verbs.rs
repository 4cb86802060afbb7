//! `catchment-lab verbs`: our programs over libibverbs.

use super::{Choice, Place};
use anyhow::{Context as _, Result};
use catchment_lab::verbs::{self, Lab, Programs};
use std::path::{Path, PathBuf};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    choice: Choice,
    /// The `catchment` command
    #[arg(long, value_name = "FILE")]
    catchment: PathBuf,
    /// The conformance suite of the ibverbs provider
    #[arg(long, value_name = "FILE")]
    conformance: PathBuf,
    /// The tests of what the ibverbs provider says when something is wrong
    #[arg(long, value_name = "FILE")]
    faults: PathBuf,
    /// The tests of the mechanisms over ibverbs
    #[arg(long, value_name = "FILE")]
    mechanisms: PathBuf,
}

/// Runs the cases; whether all passed.
///
/// # Errors
/// When they cannot run.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let programs = Programs {
        lab: std::env::current_exe().context("cannot find the running program")?,
        catchment: found(&args.catchment)?,
        conformance: found(&args.conformance)?,
        faults: found(&args.faults)?,
        mechanisms: found(&args.mechanisms)?,
    };
    let Some(cases) = args
        .choice
        .of(verbs::all(&programs, &|name| args.choice.holds(name))?)?
    else {
        return Ok(true);
    };
    let (_turn, kernel) = super::prepare(&args.place)?;
    let mut lab = Lab::new(kernel, args.place.cache.clone(), programs)?;
    Ok(args.choice.run(&cases, &mut lab, |_| None))
}

/// The whole path: guests start programs in other folders.
fn found(program: &Path) -> Result<PathBuf> {
    program.canonicalize().with_context(|| {
        format!(
            "no program {}: `cargo xtask lab verbs` builds it",
            program.display()
        )
    })
}
