//! `catchment-lab verbs`: our programs over libibverbs.

use super::{Choice, Place};
use anyhow::{Context as _, Result};
use catchment_lab::verbs::{self, Lab, Programs};

#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    #[command(flatten)]
    choice: Choice,
}

/// Runs the cases; whether all passed.
///
/// # Errors
/// When they cannot run.
pub(crate) fn run(args: &Args) -> Result<bool> {
    let Some(cases) = args.choice.of(verbs::all())? else {
        return Ok(true);
    };
    let (_turn, kernel) = super::prepare(&args.place)?;
    let programs = Programs {
        lab: std::env::current_exe().context("cannot find the running program")?,
    };
    let mut lab = Lab::new(kernel, args.place.cache.clone(), programs)?;
    Ok(args.choice.run(&cases, &mut lab, |_| None))
}
