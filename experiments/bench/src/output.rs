//! Standard output, a line at a time. Nobody there to read is an error, no panic. And where results are kept.
use anyhow::{Context, Result};
use serde::Serialize;
use std::io::Write;

/// Where the rows and pages of this repository are, from its root.
pub(crate) const RESULTS: &str = "docs/results";

pub(crate) fn line(text: &str) -> Result<()> {
    writeln!(std::io::stdout().lock(), "{text}").context("standard output")
}

pub(crate) fn json<T: Serialize>(value: &T) -> Result<()> {
    line(&serde_json::to_string(value)?)
}

/// Prints a value as JSON if that was asked for, else as this text.
pub(crate) fn either<T: Serialize>(
    as_json: bool,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<()> {
    if as_json { json(value) } else { line(&text(value)) }
}
