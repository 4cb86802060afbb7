//! What a run found, and the files that it leaves: rows and a page.
use super::claim::{Claim, Verdict};
use super::record::{Row, Written};
use super::register::Other;
use super::scenario::Scenario;
use super::{Options, Page};
use crate::csv;
use crate::host::Environment;
use crate::mechanism::Provider;
use anyhow::{Context, Result};
use std::fs;
use std::path::Path;
use std::time::Duration;

pub(super) struct Done {
    pub(super) scenario: Scenario,
    pub(super) rows: Vec<Row>,
    pub(super) table: Option<String>,
    pub(super) failures: Vec<String>,
    pub(super) verdicts: Vec<Judged>,
    pub(super) pictures: Vec<String>,
    pub(super) took: Duration,
}

pub(super) struct Judged {
    pub(super) experiment: String,
    pub(super) claim: Claim,
    pub(super) provider: Provider,
    pub(super) verdict: Verdict,
}

pub(super) struct Run<'a> {
    pub(super) which: Page,
    pub(super) options: &'a Options,
    pub(super) out: &'a Path,
    pub(super) environment: &'a Environment,
    pub(super) realtime: bool,
    pub(super) took: Duration,
    pub(super) steal: Option<f64>,
    pub(super) left: Vec<String>,
    /// Claims that no scenario measures.
    pub(super) others: &'a [Other],
}

/// Writes rows and page of what was run so far; rows of the repository in one form only.
pub(super) fn write(run: &Run<'_>, done: &[Done], page: String) -> Result<()> {
    let folder = run.out.join(run.which.name());
    let rows =
        || done.iter().flat_map(|one| &one.rows).map(|row| Written::new(row, run.environment));
    if !run.options.write {
        let lines: Result<Vec<String>, _> = rows().map(|row| serde_json::to_string(&row)).collect();
        let json = lines?.join("\n") + "\n";
        replace(&folder.join("rows.json"), json)?;
    }
    replace(&folder.join("rows.csv"), csv::table(rows())?)?;
    replace(&run.out.join(format!("{}.md", run.which.name())), page)
}

/// Whoever ends the run meanwhile leaves the old file or the new one.
fn replace(file: &Path, text: String) -> Result<()> {
    let writing = || format!("writing {}", file.display());
    let new = file.with_extension("new");
    fs::write(&new, text).with_context(writing)?;
    fs::rename(&new, file).with_context(writing)
}
