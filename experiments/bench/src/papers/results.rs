//! What runs leave in a folder, an experiment in files of its own: all of them take hours, so that each may be of
//! another day, and later runs read back what is there.
use super::claim::{Changed, Claim, Registered, Verdict};
use super::record::{Cell, Row, Written};
use super::scenario::Scenario;
use crate::csv;
use crate::host::Environment;
use crate::mechanism::{Mechanism, Provider};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// What a run found of an experiment.
pub(super) struct Done {
    pub(super) scenario: Scenario,
    pub(super) rows: Vec<Row>,
    pub(super) table: Option<String>,
    pub(super) pictures: Vec<String>,
    pub(super) kept: Kept,
}

/// What the folder has of an experiment.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) run: Run,
    pub(super) claims: Vec<Judged>,
    /// Runs of the same day and effort that this one took the place of, the first of the day first: nobody can
    /// take the best of several and hide it.
    pub(super) replaced: Vec<Run>,
}

/// A run of one experiment.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Run {
    pub(super) experiment: String,
    pub(super) command: String,
    pub(super) full: bool,
    pub(super) seconds: u64,
    /// Whether timed parts had real-time priority.
    pub(super) realtime: bool,
    /// Time that the hypervisor gave to others; empty where the kernel does not say.
    pub(super) steal_fraction: Option<f64>,
    /// What could not be measured, and why.
    pub(super) failures: Vec<String>,
    pub(super) held: usize,
    pub(super) not_held: usize,
    pub(super) not_measured: usize,
    #[serde(flatten)]
    pub(super) environment: Environment,
}

/// A claim and what the rows say of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Judged {
    pub(super) id: String,
    pub(super) experiment: String,
    /// Empty where nothing measures it.
    pub(super) provider: Option<Provider>,
    pub(super) claim: String,
    pub(super) registered: Registered,
    pub(super) changed: Vec<Changed>,
    pub(super) paper: Option<String>,
    pub(super) must: Option<String>,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

impl Judged {
    pub(super) fn new(
        scenario: &Scenario,
        claim: &Claim,
        provider: Provider,
        verdict: Verdict,
    ) -> Self {
        Self {
            id: claim.id.clone(),
            experiment: claim.experiment.as_ref().unwrap_or(&scenario.id).clone(),
            provider: Some(provider),
            claim: claim.claim.clone(),
            registered: claim.registered.clone(),
            changed: claim.changed.clone(),
            paper: claim.paper.clone(),
            must: Some(claim.bounds()),
            verdict,
        }
    }
}

/// A line of the file of an experiment: its run, then its claims, then the runs that it replaced.
#[derive(Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
enum Line {
    Run(Run),
    Claim(Judged),
    Replaced(Run),
}

/// Returns the file of an experiment in the folder, such as `e1.13.csv`.
pub(super) fn file(folder: &Path, experiment: &str, extension: &str) -> PathBuf {
    folder.join(format!("{}.{extension}", experiment.to_lowercase()))
}

impl Kept {
    /// Reads what the folder has of an experiment; `None` if it has nothing.
    ///
    /// # Errors
    /// The file cannot be read, or is none that [`Self::write`] wrote.
    pub(super) fn read(folder: &Path, experiment: &str) -> Result<Option<Self>> {
        let path = file(folder, experiment, "jsonl");
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("reading {}", path.display()))?,
        };
        let (mut run, mut claims, mut replaced) = (None, Vec::new(), Vec::new());
        for (number, line) in text.lines().enumerate() {
            let at = || format!("{}, line {}", path.display(), number + 1);
            match serde_json::from_str(line).with_context(at)? {
                Line::Run(one) => run = Some(one),
                Line::Claim(one) => claims.push(one),
                Line::Replaced(one) => replaced.push(one),
            }
        }
        let Some(run) = run else { bail!("{} has no line with \"what\":\"run\"", path.display()) };
        Ok(Some(Self { run, claims, replaced }))
    }

    /// Takes the place of what the folder had, and notes that run if it was of the same day.
    pub(super) fn replace(mut self, before: Option<Self>) -> Self {
        let before = before.into_iter().flat_map(|one| one.replaced.into_iter().chain([one.run]));
        self.replaced = before.filter(|one| one.is_beside(&self.run)).collect();
        self
    }

    fn write(&self, folder: &Path) -> Result<()> {
        let lines = std::iter::once(Line::Run(self.run.clone()))
            .chain(self.claims.iter().cloned().map(Line::Claim))
            .chain(self.replaced.iter().cloned().map(Line::Replaced));
        let lines: Result<Vec<String>, _> =
            lines.map(|line| serde_json::to_string(&line)).collect();
        let path = file(folder, &self.run.experiment, "jsonl");
        replace(&path, (lines?.join("\n") + "\n").as_bytes())
    }
}

impl Run {
    /// Returns whether both are of one day and effort.
    fn is_beside(&self, other: &Self) -> bool {
        self.full == other.full && self.environment.date == other.environment.date
    }
}

/// Writes what was found of an experiment: rows, claims, and its page.
pub(super) fn write(
    folder: &Path,
    done: &Done,
    environment: &Environment,
    page: &str,
) -> Result<()> {
    let id = &done.scenario.id;
    let rows = done.rows.iter().map(|row| Written::new(row, environment));
    replace(&file(folder, id, "csv"), &csv::table(rows)?)?;
    done.kept.write(folder)?;
    replace(&file(folder, id, "md"), page.as_bytes())
}

/// Whoever ends the run meanwhile leaves the old file or the new one.
pub(super) fn replace(file: &Path, text: &[u8]) -> Result<()> {
    let writing = || format!("writing {}", file.display());
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    fs::write(&new, text).with_context(writing)?;
    fs::rename(&new, file).with_context(writing)
}

/// The median of a row that a run left.
#[derive(Debug)]
pub(super) struct Median {
    pub(super) metric: String,
    pub(super) cell: Cell,
    pub(super) value: f64,
}

/// Reads the rows of an experiment; there are none where it was not measured.
pub(super) fn medians(folder: &Path, experiment: &str) -> Result<Vec<Median>> {
    #[derive(Deserialize)]
    struct Columns {
        provider: Provider,
        mechanism: Mechanism,
        bytes: usize,
        blocks: usize,
        streams: Option<usize>,
        workers: Option<usize>,
        variant: Option<String>,
        x: Option<f64>,
        metric: String,
        median: f64,
    }
    let path = file(folder, experiment, "csv");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let reading = || format!("reading {}", path.display());
    let mut rows = ::csv::Reader::from_path(&path).with_context(reading)?;
    let median = |row: Result<Columns, _>| {
        let row = row.with_context(reading)?;
        let Columns { bytes, blocks, streams, workers, variant, x, .. } = row;
        let cell = Cell::new(row.provider, row.mechanism, bytes, blocks);
        let cell = Cell { streams, workers, variant, x, ..cell };
        Ok(Median { metric: row.metric, cell, value: row.median })
    };
    rows.deserialize().map(median).collect()
}
