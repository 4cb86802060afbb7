//! The command: which seeds to run and what to report.
use super::scenario::Scenario;
use super::summary::Summary;
use super::trial;
use crate::Observer;
use crate::roce::Capture;
use crate::seeds::{Seeds, guard};
use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Options of `soak roce`.
#[derive(Debug, Clone, clap::Args)]
pub struct SoakOptions {
    #[command(flatten)]
    seeds: Seeds,
    /// With --seed: write every packet to this file, for Wireshark
    #[arg(long, requires = "seed")]
    pub pcap: Option<PathBuf>,
}

/// Runs the seeds.
///
/// # Errors
/// When a seed failed; each is printed with the command that replays it.
pub fn run(options: &SoakOptions) -> Result<(), String> {
    match options.seeds.seed {
        Some(seed) => replay(seed, options.pcap.as_deref()),
        None => options.seeds.hunt("cargo xtask soak roce", |seed| one(seed, None)),
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

/// Runs one seed.
pub(super) fn one(seed: u64, observer: Option<Box<dyn Observer>>) -> Result<Summary, String> {
    guard(|| trial::run(Scenario::new(seed), observer))
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
