//! `soak agent`: everything that breaks between applications and their agents, with real processes.
//!
//! The test `soak` of `crates/agent` does it, round after round, with agents of the release build.
use crate::programs;
use crate::repo::Repo;
use crate::run::{self, Show};
use anyhow::Result;
use std::path::PathBuf;
use std::time::Duration;

/// A run of `soak agent`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How many rounds to run
    #[arg(long, default_value_t = 200)]
    rounds: u64,
    /// Run only this round, to replay it
    #[arg(long)]
    round: Option<u64>,
    /// Seed of all randomness; if left out, a new one is drawn and printed
    #[arg(long)]
    seed: Option<u64>,
    /// The program to test; if left out, a release build
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Longest time of a round.
const ROUND: Duration = Duration::from_secs(90);
/// Time for a build, and for processes to start and end.
const SPARE: Duration = Duration::from_secs(30 * 60);

pub(super) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize()?,
        None => programs::built(repo, programs::CATCHMENT)?,
    };
    let words = ["test", "--release", "--package", "catchment-agent", "--test", "soak"];
    let mut command = run::cargo(repo.root(), &words);
    command.args(["what_breaks", "--", "--nocapture"]).env("CATCHMENT_SOAK_BINARY", binary);
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..) >> 32);
    command.env("CATCHMENT_SOAK_SEED", seed.to_string());
    command.env("CATCHMENT_SOAK_ROUNDS", args.rounds.to_string());
    if let Some(round) = args.round {
        command.env("CATCHMENT_SOAK_ROUND", round.to_string());
    }
    let limit = ROUND * u32::try_from(args.rounds).unwrap_or(u32::MAX) + SPARE;
    let finished = run::finish(&mut command, limit, Show::All)?;
    run::demand_success(&command, finished.status)
}
