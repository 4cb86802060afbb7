//! A scenario: what one experiment measures, and what must hold, written down before the run.
use super::claim::{Claim, Span};
use super::derive::Derive;
use super::plot::Plot;
use super::record::Axis;
use crate::job::Wait;
use crate::mechanism::{Mechanism, Provider};
use crate::times::Constants;
use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

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
    ("e1.19.toml", include_str!("../../scenarios/e1.19.toml")),
    ("e1.21.toml", include_str!("../../scenarios/e1.21.toml")),
    ("e1.22.toml", include_str!("../../scenarios/e1.22.toml")),
    ("e2.1.toml", include_str!("../../scenarios/e2.1.toml")),
    ("e3.5.toml", include_str!("../../scenarios/e3.5.toml")),
    ("e5.10.toml", include_str!("../../scenarios/e5.10.toml")),
    ("e5.13.toml", include_str!("../../scenarios/e5.13.toml")),
    ("e5.2.toml", include_str!("../../scenarios/e5.2.toml")),
    ("e5.4.toml", include_str!("../../scenarios/e5.4.toml")),
    ("4.5.toml", include_str!("../../scenarios/4.5.toml")),
    ("rxe.toml", include_str!("../../scenarios/rxe.toml")),
];

/// Other projects beside ours: a page of its own.
const PEERS: (&str, &str) = ("peers.toml", include_str!("../../scenarios/peers.toml"));

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Scenario {
    pub(crate) id: String,
    pub(crate) title: String,
    /// Where in the paper.
    pub(crate) source: String,
    /// How it is done here, for the page.
    pub(crate) method: String,
    pub(crate) workload: Workload,
    /// What is made of the rows when all are there.
    #[serde(default)]
    pub(crate) derive: Vec<Derive>,
    /// Lines of a table of all experiments.
    #[serde(default, rename = "line")]
    pub(crate) lines: Vec<Line>,
    #[serde(default)]
    pub(crate) measure: Vec<Measure>,
    #[serde(rename = "claim")]
    pub(crate) claims: Vec<Claim>,
    #[serde(default, rename = "plot")]
    pub(crate) plots: Vec<Plot>,
}

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
    /// The paper's synchronisation: a READ, or the time between two acknowledgements.
    Look,
    /// Frames of many cameras at their rate.
    Cameras,
    /// Nothing of its own: a table of what the others measured.
    Table,
    /// Blocks that are processed for different times by several workers.
    ReleaseOrder,
    /// Messages to and fro, then one way, between a client and a server with three threads each.
    Duplex,
    /// Events of cameras through the transmission controller, or without one, in virtual time.
    Grants,
    /// Connections of one host, each with a batch of requests outstanding, on a modelled NIC.
    Connections,
    /// One of them with a request outstanding, while the others post batches.
    Background,
    /// Clients of a key-value store on modelled NICs.
    Store,
    /// Iterations of the solver of shares.
    Solver,
}

/// A line of a table: one number of every mechanism that has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Line {
    /// What it is, unit included.
    pub(crate) says: String,
    /// Where it was measured.
    pub(crate) of: String,
    pub(crate) provider: Provider,
    pub(crate) metric: String,
    /// From the metric's unit to that of the line.
    #[serde(default = "times_one")]
    pub(crate) scale: f64,
    pub(crate) variant: Option<String>,
    /// Only rows whose value on an axis is here.
    #[serde(default)]
    pub(crate) at: BTreeMap<Axis, Span>,
}

fn times_one() -> f64 {
    1.0
}

/// Mechanisms in cells, on some providers.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Measure {
    pub(crate) providers: Vec<Provider>,
    pub(crate) mechanisms: Vec<Mechanism>,
    /// Something else than the scenario's.
    pub(crate) workload: Option<Workload>,
    /// Devices that send at once, or connections.
    #[serde(default)]
    pub(crate) streams: Vec<usize>,
    #[serde(default)]
    pub(crate) programs: bool,
    pub(crate) blocks: Vec<usize>,
    #[serde(default = "spin")]
    pub(crate) wait: Wait,
    /// Threads that process blocks at the receiver.
    #[serde(default)]
    pub(crate) workers: Vec<usize>,
    /// How long things take in virtual time.
    pub(crate) constants: Option<Constants>,
    /// What is offered, as parts of the bottleneck; knees are found where none is given. Of connections: polls a
    /// second.
    #[serde(default)]
    pub(crate) loads: Vec<f64>,
    /// Whether packets go over links that drop; otherwise what is granted leaves as granted.
    #[serde(default)]
    pub(crate) packets: bool,
    /// What is varied beside: `short gap`, or a round trip such as `20 ms`.
    pub(crate) variant: Option<String>,
    pub(crate) quick: Effort,
    pub(crate) full: Effort,
}

fn spin() -> Wait {
    Wait::Spin
}

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Effort {
    pub(crate) bytes: Vec<usize>,
    /// Other numbers of blocks than in the scenario.
    pub(crate) blocks: Option<Vec<usize>>,
    #[serde(default = "one")]
    pub(crate) restarts: usize,
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
    pub(crate) fn effort(&self, quick: bool) -> &Effort {
        if quick { &self.quick } else { &self.full }
    }

    /// Every number of bytes with every number of blocks.
    pub(crate) fn sizes(&self, quick: bool) -> Vec<(usize, usize)> {
        let blocks = |&bytes| self.blocks(quick).iter().map(move |&blocks| (bytes, blocks));
        self.effort(quick).bytes.iter().flat_map(blocks).collect()
    }

    pub(crate) fn cells(&self, quick: bool) -> Vec<(Mechanism, usize, usize)> {
        let of_size =
            |(bytes, blocks)| self.mechanisms.iter().map(move |&one| (one, bytes, blocks));
        self.sizes(quick).into_iter().flat_map(of_size).collect()
    }

    pub(crate) fn blocks(&self, quick: bool) -> &[usize] {
        self.effort(quick).blocks.as_deref().unwrap_or(&self.blocks)
    }
}

impl Scenario {
    pub(crate) fn experiments(&self) -> Vec<&str> {
        let others = self.claims.iter().filter_map(|one| one.experiment.as_deref());
        std::iter::once(self.id.as_str()).chain(others).collect()
    }
}

pub(crate) fn ours() -> Result<Vec<Scenario>> {
    OURS.iter().map(|(name, text)| parse(name, text)).collect()
}

pub(crate) fn peers() -> Result<Vec<Scenario>> {
    let (name, text) = PEERS;
    Ok(vec![parse(name, text)?])
}

/// One of a user's own.
pub(crate) fn load(path: &Path) -> Result<Scenario> {
    let name = path.display().to_string();
    let text = fs::read_to_string(path).with_context(|| format!("reading {name}"))?;
    parse(&name, &text)
}

fn parse(name: &str, text: &str) -> Result<Scenario> {
    let scenario: Scenario = toml::from_str(text).with_context(|| format!("scenario {name}"))?;
    for claim in &scenario.claims {
        claim.check().with_context(|| format!("scenario {name}, claim {:?}", claim.claim))?;
    }
    let counts_lines = scenario.workload == Workload::Table;
    ensure!(
        counts_lines != scenario.lines.is_empty(),
        "scenario {name}: [[line]] and workload = \"table\" belong together"
    );
    ensure!(
        counts_lines == scenario.measure.is_empty(),
        "scenario {name}: a table measures nothing by [[measure]], all others do"
    );
    let claims = !scenario.claims.is_empty();
    ensure!(claims, "scenario {name} claims nothing: say with [[claim]] what must hold");
    Ok(scenario)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_scenarios_of_the_repository_are_listed_and_right() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
        let files = fs::read_dir(folder).unwrap();
        let mut files: Vec<String> =
            files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        let all = OURS.iter().chain([&PEERS]);
        let mut listed: Vec<&str> = all.map(|(name, _)| *name).collect();
        // Claims that no scenario measures.
        listed.push("register.toml");
        assert_eq!(peers().unwrap().len(), 1);
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
        assert!(error.contains("mine.toml") && error.contains("titel"), "{error}");
    }
}
