//! The command: which seeds to run and what to report.
use super::check::Fault;
use super::scenario::Scenario;
use super::summary::Summary;
use super::trial;
use crate::roce::Capture;
use crate::{Observer, parallel};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Options of `soak roce`.
#[derive(Debug, Clone, clap::Args)]
pub struct SoakOptions {
    /// Number of seeds to run
    #[arg(long, default_value_t = 10_000)]
    pub seeds: u64,
    /// The first seed
    #[arg(long, default_value_t = 0)]
    pub first: u64,
    /// Run only this seed and print what happened
    #[arg(long)]
    pub seed: Option<u64>,
    /// With --seed: write every packet to this file, for Wireshark
    #[arg(long, requires = "seed")]
    pub pcap: Option<PathBuf>,
}

/// Failed seeds after which the run stops.
const FAILURES_MOST: usize = 10;

/// Runs the seeds.
///
/// # Errors
/// When a seed failed; each is printed with the command that replays it.
pub fn run(options: &SoakOptions) -> Result<(), String> {
    match options.seed {
        Some(seed) => replay(seed, options.pcap.as_deref()),
        None => hunt(options),
    }
}

fn hunt(options: &SoakOptions) -> Result<(), String> {
    let SoakOptions { seeds, first, .. } = *options;
    println!("seeds {first} to {}", first + seeds.max(1) - 1);
    let mut sum = Summary::default();
    let mut failures = 0;
    parallel::in_order(
        seeds,
        |at| one(first + at, None),
        |at, result| {
            match result {
                Ok(summary) => sum += summary,
                Err(fault) => {
                    failures += 1;
                    let seed = first + at;
                    eprintln!("seed {seed}: {fault}; replay: cargo xtask soak roce --seed {seed}");
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

fn replay(seed: u64, pcap: Option<&Path>) -> Result<(), String> {
    println!("{:#?}", Scenario::new(seed));
    let capture = Rc::new(RefCell::new(Capture::default()));
    let observer: Option<Box<dyn Observer>> =
        pcap.map(|_| Box::new(Rc::clone(&capture)) as Box<dyn Observer>);
    let result = one(seed, observer);
    if let Some(path) = pcap {
        let written = std::fs::write(path, capture.borrow().bytes());
        written.map_err(|error| format!("{}: {error}", path.display()))?;
    }
    let summary = result.map_err(|fault| format!("seed {seed}: {fault}"))?;
    println!("{summary}");
    Ok(())
}

/// Runs one seed; a panic of the code under test is a fault too.
pub(super) fn one(seed: u64, observer: Option<Box<dyn Observer>>) -> Result<Summary, Fault> {
    let run = AssertUnwindSafe(|| trial::run(Scenario::new(seed), observer));
    catch_unwind(run).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        Err(Fault(format!("panic: {}", text.unwrap_or("without a message"))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_seeds_end_with_the_right_bytes_or_a_clean_error() {
        for seed in 0..100 {
            let result = one(seed, None);
            assert!(result.is_ok(), "seed {seed}: {result:?}");
        }
    }
}
