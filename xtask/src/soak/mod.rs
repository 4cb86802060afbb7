//! `cargo xtask soak`: long runs that hunt for rare faults.
//!
//! A run is made of rounds, and a round follows from the seed and its number alone. What fails is
//! printed as the command that replays it.

mod agents;
mod duplex;
mod frames;
mod plan;
mod random;
mod residue;
mod roce;
mod round;

use crate::programs;
use crate::repo::Repo;
use agents::Setting;
use anyhow::{Context as _, Result, ensure};
use clap::CommandFactory as _;
use plan::Plan;
use round::Report;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to hunt for.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    hunt: Option<Hunt>,
}

#[derive(clap::Subcommand)]
enum Hunt {
    /// Kill source and collector at random moments and check every frame
    Kill(KillArgs),
    /// Clients of duplex channels come, go and are killed; every byte and the server's memory checked
    Duplex(duplex::Args),
    /// Everything that can go wrong between two RoCE stacks at once, in virtual time
    Roce(roce::Args),
}

/// A run of `soak kill`.
#[derive(clap::Args)]
struct KillArgs {
    /// How many rounds to run
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// Where all chance comes from; left out, a new one is taken and printed
    #[arg(long)]
    seed: Option<u64>,
    /// How long frames flow in a round, restarts and checks not counted
    #[arg(long, default_value_t = 2.0)]
    seconds_per_round: f64,
    /// Run this round alone, to replay it
    #[arg(long)]
    round: Option<u64>,
    /// How the frames go: shm or roce
    #[arg(long, default_value = "shm")]
    provider: String,
    /// The catchment command to test; left out, it is built for release
    #[arg(long)]
    binary: Option<PathBuf>,
}

#[derive(clap::Parser)]
#[command(name = "cargo xtask soak", bin_name = "cargo xtask soak")]
struct Listing {
    #[command(subcommand)]
    _hunt: Hunt,
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    match &args.hunt {
        Some(Hunt::Kill(args)) => kill(repo, args),
        Some(Hunt::Duplex(args)) => duplex::run(repo, args),
        Some(Hunt::Roce(args)) => roce::run(repo, args),
        None => {
            print!("{}", listing());
            Ok(())
        }
    }
}

fn listing() -> String {
    let command = Listing::command();
    let lines = command.get_subcommands().map(|hunt| {
        let about = hunt.get_about().map(ToString::to_string).unwrap_or_default();
        format!("cargo xtask soak {:<6} {about}\n", hunt.get_name())
    });
    lines.collect()
}

/// The short form that `cargo xtask test` runs, with a new seed, over each provider.
pub(crate) fn kill_rounds(repo: &Repo, rounds: u64, seconds_per_round: f64) -> Result<()> {
    for provider in ["shm", "roce"] {
        let args = KillArgs {
            rounds,
            seed: None,
            seconds_per_round,
            round: None,
            provider: provider.to_owned(),
            binary: None,
        };
        kill(repo, &args)?;
    }
    Ok(())
}

fn kill(repo: &Repo, args: &KillArgs) -> Result<()> {
    ensure!(
        args.seconds_per_round > 0.0 && args.seconds_per_round <= 3600.0,
        "--seconds-per-round is {}: give more than 0 and at most 3600",
        args.seconds_per_round
    );
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => programs::catchment(repo)?,
    };
    let seed = args.seed.unwrap_or_else(new_seed);
    println!("seed {seed}, provider {}", args.provider);
    let rounds = args.round.map_or(0..args.rounds, |round| round..round + 1);
    let mut sum = Report::default();
    for round in rounds {
        let report = one_round(&binary, seed, round, args)
            .with_context(|| format!("round {round}; replay: {}", replay(seed, round, args)))?;
        sum.add(&report);
    }
    println!("{sum}");
    Ok(())
}

/// A seed that nobody had before: a hasher with random keys is the chance that the standard library
/// has.
fn new_seed() -> u64 {
    RandomState::new().hash_one(0_u8)
}

pub(crate) fn duplex_seconds(repo: &Repo, seconds: f64) -> Result<()> {
    for provider in ["shm", "roce"] {
        duplex::run(repo, &duplex::Args::short(seconds, provider))?;
    }
    Ok(())
}

pub(crate) fn roce_seeds(repo: &Repo, seeds: u64) -> Result<()> {
    roce::run(repo, &roce::Args::short(seeds))
}

fn replay(seed: u64, round: u64, args: &KillArgs) -> String {
    let seconds = args.seconds_per_round;
    let binary = args.binary.as_ref().map(|path| format!(" --binary {}", path.display()));
    format!(
        "cargo xtask soak kill --provider {} --seed {seed} --round {round} \
         --seconds-per-round {seconds}{}",
        args.provider,
        binary.unwrap_or_default()
    )
}

/// Runs one round in a folder of its own, which stays when the round fails.
fn one_round(binary: &Path, seed: u64, round: u64, args: &KillArgs) -> Result<Report> {
    let plan = Plan::new(seed, round, Duration::from_secs_f64(args.seconds_per_round));
    println!("round {round}: {plan}");
    let setting = Setting::new(binary, &args.provider, &plan)?;
    let report = round::run(&setting, &plan)
        .with_context(|| format!("left for a look: {}", setting.folder().display()))?;
    println!("round {round}: {report}");
    std::fs::remove_dir_all(setting.folder())?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_replayed_by_seed_number_and_length() {
        let args = KillArgs {
            rounds: 9,
            seed: None,
            seconds_per_round: 1.5,
            round: None,
            provider: "roce".to_owned(),
            binary: None,
        };
        let expected = "cargo xtask soak kill --provider roce --seed 7 --round 3 \
                        --seconds-per-round 1.5";
        assert_eq!(replay(7, 3, &args), expected);
        assert!(listing().starts_with("cargo xtask soak kill "));
    }
}
