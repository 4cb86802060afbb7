//! What a run leaves: rows, a page, and what is said at its end.
use super::claim::{Claim, Verdict};
use super::page;
use super::record::{Row, Written};
use super::scenario::Scenario;
use crate::csv;
use crate::mechanism::Provider;
use anyhow::{Context, Result};
use serde::Serialize;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::Duration;

/// An experiment that was run.
pub(super) struct Done {
    pub(super) scenario: Scenario,
    pub(super) rows: Vec<Row>,
    /// What the experiment shows as a table.
    pub(super) table: Option<String>,
    /// What could not be measured, and why.
    pub(super) failures: Vec<String>,
    pub(super) verdicts: Vec<Judged>,
    /// Stems of the pictures' files.
    pub(super) pictures: Vec<String>,
    pub(super) took: Duration,
}

/// A claim on one provider, and what became of it.
pub(super) struct Judged {
    pub(super) experiment: String,
    pub(super) claim: Claim,
    pub(super) provider: Provider,
    pub(super) verdict: Verdict,
}

/// A line of `--json`.
#[derive(Serialize)]
struct Line<'a> {
    experiment: &'a str,
    provider: Provider,
    claim: &'a str,
    paper: Option<&'a str>,
    must: String,
    measured: Option<f64>,
    ci_low: Option<f64>,
    ci_high: Option<f64>,
    held: Option<bool>,
    disturbed: bool,
    why_not: Option<&'a str>,
}

/// Writes rows and page of what was run so far; rows of the repository in one form only.
///
/// # Errors
/// When a file cannot be written.
pub(super) fn write(run: &page::Run<'_>, done: &[Done]) -> Result<()> {
    let folder = run.out.join(run.which.name());
    let rows = || {
        let rows = done.iter().flat_map(|one| &one.rows);
        rows.map(|row| Written::new(row, run.environment))
    };
    if !run.options.write {
        let lines: Result<Vec<String>, _> = rows().map(|row| serde_json::to_string(&row)).collect();
        let json = lines?.join("\n") + "\n";
        replace(&folder.join("rows.json"), json)?;
    }
    replace(&folder.join("rows.csv"), csv::table(rows())?)?;
    let page = run.out.join(format!("{}.md", run.which.name()));
    replace(&page, page::page(run, done)?)
}

/// Whoever ends the run meanwhile leaves the old file or the new one.
fn replace(file: &Path, text: String) -> Result<()> {
    let writing = || format!("writing {}", file.display());
    let new = file.with_extension("new");
    fs::write(&new, text).with_context(writing)?;
    fs::rename(&new, file).with_context(writing)
}

/// Says what held, for a person or as JSON lines.
///
/// # Errors
/// When nobody reads it.
pub(super) fn print(done: &[Done], json: bool) -> Result<()> {
    let mut out = std::io::stdout().lock();
    for one in done {
        for judged in &one.verdicts {
            if json {
                let line = serde_json::to_string(&line(&judged.experiment, judged))?;
                writeln!(out, "{line}").context("standard output")?;
            }
        }
    }
    if !json {
        out.write_all(page::table(done).as_bytes())
            .context("standard output")?;
    }
    Ok(())
}

fn line<'a>(experiment: &'a str, judged: &'a Judged) -> Line<'a> {
    let (measured, interval, held, disturbed, why_not) = match &judged.verdict {
        Verdict::Judged {
            measured,
            interval,
            held,
            disturbed,
        } => (Some(*measured), *interval, *held, *disturbed, None),
        Verdict::Missing(reason) => (None, None, None, false, Some(reason.as_str())),
    };
    Line {
        experiment,
        provider: judged.provider,
        claim: &judged.claim.claim,
        paper: judged.claim.paper.as_deref(),
        must: judged.claim.bounds(),
        measured,
        ci_low: interval.map(|(low, _)| low),
        ci_high: interval.map(|(_, high)| high),
        held,
        disturbed,
        why_not: why_not.or(if held == Some(false) {
            judged.claim.note.as_deref()
        } else {
            None
        }),
    }
}
