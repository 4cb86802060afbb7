//! The command: which seeds to run and what to report.
use super::check::Fault;
use super::scenario::Scenario;
use super::world::{self, Summary};
use crate::parallel;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Options of `soak control`.
#[derive(Debug, Clone, clap::Args)]
pub struct ControlOptions {
    /// Number of seeds to run
    #[arg(long, default_value_t = 10_000)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Run only this seed and print what happened
    #[arg(long)]
    pub seed: Option<u64>,
}

/// Failed seeds after which the run stops.
const FAILURES_MOST: usize = 10;

/// Runs the seeds.
///
/// # Errors
/// When a seed failed; each is printed with the command that replays it.
pub fn run(options: &ControlOptions) -> Result<(), String> {
    let ControlOptions { seeds, first, seed } = *options;
    if let Some(seed) = seed {
        println!("{:#?}", Scenario::new(seed));
        let (summary, hash) = one(seed).map_err(|fault| format!("seed {seed}: {fault}"))?;
        println!("{summary}; trace {hash:016x}");
        return Ok(());
    }
    println!("seeds {first} to {}", first + seeds.max(1) - 1);
    let (mut sum, mut failures) = (Summary::default(), 0);
    parallel::in_order(
        seeds,
        |at| one(first + at),
        |at, result| {
            match result {
                Ok((summary, _)) => sum += summary,
                Err(fault) => {
                    failures += 1;
                    let seed = first + at;
                    eprintln!(
                        "seed {seed}: {fault}; replay: cargo xtask soak control --seed {seed}"
                    );
                }
            }
            failures < FAILURES_MOST
        },
    );
    println!("{sum}");
    match failures {
        0 => Ok(()),
        count => Err(format!("{count} seeds failed, see above")),
    }
}

/// Runs one seed; a panic of the code under test is a fault too.
pub(super) fn one(seed: u64) -> Result<(Summary, u64), Fault> {
    let run = AssertUnwindSafe(|| world::run(&Scenario::new(seed)));
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Fault(format!("panic: {}", text.unwrap_or("without a message"))))
    })
}
