//! A scenario: what one experiment measures, and what must hold, written down before the run.
use super::claim::Claim;
use super::plot::Plot;
use super::simulated::Constants;
use crate::{
    job::Wait,
    mechanism::{Mechanism, Provider},
};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::{fs, path::Path};

/// The scenarios of this repository, in the order of the page.
const OURS: &[(&str, &str)] = &[
    ("e1.1.toml", include_str!("../../scenarios/e1.1.toml")),
    ("e1.10.toml", include_str!("../../scenarios/e1.10.toml")),
    ("e1.11.toml", include_str!("../../scenarios/e1.11.toml")),
    ("e1.12.toml", include_str!("../../scenarios/e1.12.toml")),
    ("e1.13.toml", include_str!("../../scenarios/e1.13.toml")),
    ("e1.15.toml", include_str!("../../scenarios/e1.15.toml")),
    ("e1.16.toml", include_str!("../../scenarios/e1.16.toml")),
    ("e1.17.toml", include_str!("../../scenarios/e1.17.toml")),
    ("e1.18.toml", include_str!("../../scenarios/e1.18.toml")),
    ("e1.22.toml", include_str!("../../scenarios/e1.22.toml")),
    ("e3.5.toml", include_str!("../../scenarios/e3.5.toml")),
];

/// One experiment.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    /// Number of the experiment, such as `E1.13`.
    pub(crate) id: String,
    /// What is measured.
    pub(crate) title: String,
    /// Where in the paper.
    pub(crate) source: String,
    /// How it is done here, for the page.
    pub(crate) method: String,
    /// The kind of measurement.
    pub(crate) workload: Workload,
    /// Which cells, each on its providers.
    pub(crate) measure: Vec<Measure>,
    /// What must hold.
    #[serde(rename = "claim")]
    pub(crate) claims: Vec<Claim>,
    /// What is drawn.
    #[serde(default, rename = "plot")]
    pub(crate) plots: Vec<Plot>,
}

/// A kind of measurement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Workload {
    /// Blocks as fast as they go, then to and fro.
    Stream,
    /// Requests and completions for each block, in lock-step.
    Interactions,
    /// From giving a block back to the source being able to use it again.
    Sync,
    /// From posting a block until the collector sees it.
    OneWay,
    /// Blocks as fast as they go, while the collector keeps one of them.
    Hold,
    /// The smallest queues, and one place less.
    Queues,
    /// Blocks that are processed for different times by several workers.
    ReleaseOrder,
}

/// Mechanisms in cells, on some providers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    pub(crate) providers: Vec<Provider>,
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Blocks of a ring, or of a window.
    pub(crate) blocks: Vec<usize>,
    /// How both sides wait.
    #[serde(default = "spin")]
    pub(crate) wait: Wait,
    /// Threads that process blocks at the receiver.
    #[serde(default)]
    pub(crate) workers: Vec<usize>,
    /// How long things take in virtual time.
    pub(crate) constants: Option<Constants>,
    pub(crate) quick: Effort,
    pub(crate) full: Effort,
}

fn spin() -> Wait {
    Wait::Spin
}

/// How much is measured.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Effort {
    /// Payload bytes of a block.
    pub(crate) bytes: Vec<usize>,
    /// Other numbers of blocks than in the scenario.
    pub(crate) blocks: Option<Vec<usize>>,
    /// Fresh processes.
    #[serde(default = "one")]
    pub(crate) restarts: usize,
    /// Measurements in each of them.
    #[serde(default = "one")]
    pub(crate) repetitions: usize,
    /// How long one of them takes.
    #[serde(default)]
    pub(crate) milliseconds: u64,
    /// Blocks, or other things, where it is their number that counts.
    #[serde(default)]
    pub(crate) count: u64,
}

fn one() -> usize {
    1
}

impl Measure {
    /// How much to measure.
    pub(crate) fn effort(&self, quick: bool) -> &Effort {
        if quick { &self.quick } else { &self.full }
    }

    /// All cells.
    pub(crate) fn cells(&self, quick: bool) -> Vec<(Mechanism, usize, usize)> {
        let mut cells = Vec::new();
        for &bytes in &self.effort(quick).bytes {
            for &blocks in self.blocks(quick) {
                cells.extend(self.mechanisms.iter().map(|&one| (one, bytes, blocks)));
            }
        }
        cells
    }

    /// Numbers of blocks to measure.
    pub(crate) fn blocks(&self, quick: bool) -> &[usize] {
        let effort = self.effort(quick);
        effort.blocks.as_deref().unwrap_or(&self.blocks)
    }
}

/// Those of this repository.
///
/// # Errors
/// If one of them is wrong, with its name and line.
pub(crate) fn ours() -> Result<Vec<Scenario>> {
    OURS.iter().map(|(name, text)| parse(name, text)).collect()
}

/// One of a user's own.
///
/// # Errors
/// If the file cannot be read or is wrong.
pub(crate) fn load(path: &Path) -> Result<Scenario> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Scenario> {
    let scenario: Scenario = toml::from_str(text).with_context(|| format!("scenario {name}"))?;
    for claim in &scenario.claims {
        claim
            .check()
            .with_context(|| format!("scenario {name}, claim {:?}", claim.claim))?;
    }
    if scenario.claims.is_empty() {
        bail!("scenario {name} claims nothing: say with [[claim]] what must hold");
    }
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_of_the_repository_are_listed_and_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let files = fs::read_dir(folder).unwrap();
        let mut files: Vec<String> = files
            .map(|file| file.unwrap().file_name().into_string().unwrap())
            .collect();
        files.sort();
        let mut listed: Vec<&str> = OURS.iter().map(|(name, _)| *name).collect();
        listed.sort();
        assert_eq!(files, listed);
        let scenarios = ours().unwrap();
        for (scenario, (name, _)) in scenarios.iter().zip(OURS) {
            let expected = format!("{}.toml", scenario.id.to_lowercase());
            assert_eq!(expected, *name);
        }
    }

    #[test]
    fn mistakes_are_named() {
        let wrong = include_str!("../../scenarios/e1.13.toml").replace("title", "titel");
        let error = format!("{:#}", parse("mine.toml", &wrong).unwrap_err());
        assert!(
            error.contains("mine.toml") && error.contains("titel"),
            "{error}"
        );
    }
}
