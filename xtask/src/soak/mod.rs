//! `cargo xtask soak`: long runs that look for rare faults.
//!
//! A run consists of rounds, each determined by the seed and its number alone. For a failed round, the
//! command that replays it is printed.
mod agents;
mod applications;
mod duplex;
mod frames;
mod plan;
mod residue;
mod round;
mod simulator;
mod sums;

use crate::programs;
use crate::repo::Repo;
use agents::Setting;
use anyhow::{Context as _, Result, ensure};
use clap::Subcommand as _;
use fastrand::Rng;
use plan::Plan;
use round::Report;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Which soak test to run.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    soak: Option<Soak>,
}

#[derive(clap::Subcommand)]
enum Soak {
    /// Kill source and collector at random moments and check every frame
    Kill(KillArgs),
    /// Applications and agents that are killed or stand still, with what that does to others
    Agent(applications::Args),
    /// Clients of a duplex server that come, go and are killed, for hours; goes on after a stop
    Duplex(duplex::Args),
    /// All that can go wrong between sources and a transmission controller, in virtual time
    Control {
        /// --seeds N (10,000 if left out), --first SEED; --seed SEED for one
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Hosts that share rates: they die, come back, stand still and are cut off, in virtual time
    Drum {
        /// --seeds N (10,000 if left out), --first SEED; --seed SEED for one
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
    /// Everything that can go wrong between two RoCE stacks at once, in virtual time
    Roce {
        /// --seeds N (10,000 if left out), --first SEED; --seed SEED for one, with --pcap FILE
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        options: Vec<String>,
    },
}

/// A run of `soak kill`.
#[derive(clap::Args, Default)]
struct KillArgs {
    /// How many rounds to run
    #[arg(long, default_value_t = 50)]
    rounds: u64,
    /// How long frames flow in a round, without restarts and checks
    #[arg(long, default_value_t = 2.0)]
    seconds_per_round: f64,
    /// Run only this round, to replay it
    #[arg(long)]
    round: Option<u64>,
    /// Seed of all randomness; if left out, a new one is drawn and printed
    #[arg(long)]
    seed: Option<u64>,
    /// The provider: shm or roce
    #[arg(long, default_value = "shm")]
    provider: String,
    /// The program to test; if left out, a release build
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Returns the random numbers of a round, which differ from round to round.
fn random_of(seed: u64, round: u64) -> Rng {
    Rng::with_seed(Rng::with_seed(seed).u64(..) ^ round.wrapping_mul(0xd134_2543_de82_ef95))
}

fn time_below(random: &mut Rng, bound: Duration) -> Duration {
    bound.mul_f64(random.f64())
}

pub(crate) fn run(repo: &Repo, args: &Args) -> Result<()> {
    match &args.soak {
        Some(Soak::Kill(args)) => kill(repo, args),
        Some(Soak::Agent(args)) => applications::run(repo, args),
        Some(Soak::Duplex(args)) => duplex::run(repo, args),
        Some(Soak::Control { options }) => simulator::run(repo, "control", options),
        Some(Soak::Drum { options }) => simulator::run(repo, "drum-soak", options),
        Some(Soak::Roce { options }) => simulator::run(repo, "soak", options),
        None => {
            print!("{}", listing());
            Ok(())
        }
    }
}

fn listing() -> String {
    crate::listing("cargo xtask soak", &Soak::augment_subcommands(clap::Command::new("soak")))
}

/// The short form that `cargo xtask test` runs, with new seeds, over each provider.
pub(crate) fn short(repo: &Repo, rounds: u64, seconds_per_round: f64) -> Result<()> {
    ["shm", "roce"].into_iter().try_for_each(|provider| {
        let provider = provider.to_owned();
        kill(repo, &KillArgs { rounds, seconds_per_round, provider, ..KillArgs::default() })
    })
}

pub(crate) fn roce_seeds(repo: &Repo, seeds: u64) -> Result<()> {
    simulator::run(repo, "soak", &[format!("--seeds={seeds}")])
}

fn kill(repo: &Repo, args: &KillArgs) -> Result<()> {
    ensure!(
        args.seconds_per_round > 0.0 && args.seconds_per_round <= 3600.0,
        "--seconds-per-round is {}: must be more than 0 and at most 3600",
        args.seconds_per_round
    );
    let binary = match &args.binary {
        Some(binary) => binary.canonicalize().with_context(|| binary.display().to_string())?,
        None => programs::built(repo, programs::CATCHMENT)?,
    };
    let seed = args.seed.unwrap_or_else(|| fastrand::u64(..));
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

/// Runs one round in a folder of its own, which is kept if the round fails.
fn one_round(binary: &Path, seed: u64, round: u64, args: &KillArgs) -> Result<Report> {
    let plan = Plan::new(seed, round, Duration::from_secs_f64(args.seconds_per_round));
    println!("round {round}: {plan}");
    let setting = Setting::new(binary, &args.provider, &plan)?;
    let report = round::run(&setting, &plan)
        .with_context(|| format!("kept for inspection: {}", setting.folder().display()))?;
    println!("round {round}: {report}");
    std::fs::remove_dir_all(setting.folder())?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_is_replayed_by_seed_number_and_length() {
        let provider = "roce".to_owned();
        let args = KillArgs { seconds_per_round: 1.5, provider, ..KillArgs::default() };
        let expected = "cargo xtask soak kill --provider roce --seed 7 --round 3 \
                        --seconds-per-round 1.5";
        assert_eq!(replay(7, 3, &args), expected);
        assert!(listing().starts_with("cargo xtask soak kill "));
    }

    #[test]
    fn chance_follows_from_seed_and_round() {
        let draw = |seed, round| random_of(seed, round).u64(..);
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
        let limit = Duration::from_millis(3);
        assert!(time_below(&mut random_of(0, 0), limit) < limit);
    }
}
