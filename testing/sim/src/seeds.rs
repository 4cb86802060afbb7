//! Runs seed after seed, of whatever a seed determines.
use crate::parallel;
use std::fmt::Display;
use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Which seeds to run.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Seeds {
    /// Number of seeds to run
    #[arg(long, default_value_t = 10_000)]
    seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    first: u64,
    /// Run only this seed and print what happened
    #[arg(long)]
    pub(crate) seed: Option<u64>,
}

/// Failed seeds after which a run stops.
const FAILURES_MOST: usize = 10;

impl Seeds {
    /// Runs them on all processors, and prints the sum; each that fails with the command, `name`, that replays it.
    pub(crate) fn hunt<S>(
        &self,
        name: &str,
        one: impl Fn(u64) -> Result<S, String> + Sync,
    ) -> Result<(), String>
    where
        S: Default + AddAssign + Display + Send,
    {
        let Self { seeds, first, .. } = *self;
        println!("seeds {first} to {}", first + seeds.max(1) - 1);
        let (mut sum, mut failures) = (S::default(), 0);
        parallel::in_order(
            seeds,
            |at| one(first + at),
            |at, result| {
                match result {
                    Ok(summary) => sum += summary,
                    Err(fault) => {
                        failures += 1;
                        let seed = first + at;
                        eprintln!("seed {seed}: {fault}; replay: {name} --seed {seed}");
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
}

/// Runs one seed; a panic of the code under test is a fault too.
pub(crate) fn guard<S, F: Display>(run: impl FnOnce() -> Result<S, F>) -> Result<S, String> {
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(result) => result.map_err(|fault| fault.to_string()),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
            Err(format!("panic: {}", text.unwrap_or("without a message")))
        }
    }
}
