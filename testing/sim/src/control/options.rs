//! The command: which seeds to run and what to report.
use super::scenario::Scenario;
use super::world::{self, Summary};
use crate::seeds::{Seeds, guard};

/// Options of `soak control`.
#[derive(Debug, Clone, clap::Args)]
pub struct ControlOptions {
    #[command(flatten)]
    seeds: Seeds,
}

/// Runs the seeds.
///
/// # Errors
/// When a seed failed; each is printed with the command that replays it.
pub fn run(options: &ControlOptions) -> Result<(), String> {
    if let Some(seed) = options.seeds.seed {
        println!("{:#?}", Scenario::new(seed));
        let (summary, hash) = one(seed).map_err(|fault| format!("seed {seed}: {fault}"))?;
        println!("{summary}; trace {hash:016x}");
        return Ok(());
    }
    options.seeds.hunt("cargo xtask soak control", |seed| Ok(one(seed)?.0))
}

/// Runs one seed.
pub(super) fn one(seed: u64) -> Result<(Summary, u64), String> {
    guard(|| world::run(&Scenario::new(seed)))
}
