//! `soak roce`: the simulator of `testing/sim`, seed after seed.

use super::new_seed;
use crate::repo::Repo;
use crate::{programs, run};
use anyhow::Result;
use std::process::Command;

/// A run of `soak roce`.
#[derive(clap::Args)]
pub(super) struct Args {
    /// How many seeds to run
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed; left out, a new one is taken and printed
    #[arg(long, conflicts_with = "seed")]
    first: Option<u64>,
    /// Run this seed alone and tell what happened, to replay it
    #[arg(long)]
    seed: Option<u64>,
    /// With --seed: write every packet to this file, for Wireshark
    #[arg(long, requires = "seed")]
    pcap: Option<String>,
}

impl Args {
    pub(super) fn short(seeds: u64) -> Self {
        Self { seeds, first: None, seed: None, pcap: None }
    }
}

pub(super) fn run(repo: &Repo, args: &Args) -> Result<()> {
    let mut command = Command::new(programs::sim(repo)?);
    command.arg("soak").args(words(args));
    command.current_dir(repo.root());
    let status = command.status()?;
    run::demand_success(&command, status)
}

fn words(args: &Args) -> Vec<String> {
    let mut words = match args.seed {
        Some(seed) => vec![format!("--seed={seed}")],
        None => {
            let first = args.first.unwrap_or_else(first_seed);
            vec![format!("--first={first}"), format!("--seeds={}", args.seeds)]
        }
    };
    words.extend(args.pcap.as_ref().map(|path| format!("--pcap={path}")));
    words
}

/// Short enough to type, far enough apart that runs do not repeat each other.
fn first_seed() -> u64 {
    new_seed() >> 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_options_reach_the_program() {
        let mut args = Args::short(300);
        args.first = Some(7);
        assert_eq!(words(&args), ["--first=7", "--seeds=300"]);
        args.seed = Some(12);
        args.pcap = Some("a.pcap".into());
        assert_eq!(words(&args), ["--seed=12", "--pcap=a.pcap"]);
        assert_ne!(words(&Args::short(1)), words(&Args::short(1)));
    }
}
