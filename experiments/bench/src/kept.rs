//! Rows that measurements left in a file, as they printed them: JSON lines.
use crate::csv::Fields;
use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::{Map, Value};
use std::fs;
use std::path::Path;

/// Fields of a goal that are no part of where it was measured.
const OF_GOAL: [&str; 8] =
    ["what", "goal", "ratio", "value", "limit", "held", "disturbed", "why_not"];

/// A row, its fields in the order in which they were printed.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Row(Fields);

impl Row {
    /// Returns the value of a field; null where there is none.
    pub(crate) fn get(&self, name: &str) -> &Value {
        self.0.0.iter().find(|(field, _)| field == name).map_or(&Value::Null, |(_, value)| value)
    }

    pub(crate) fn what(&self) -> &str {
        self.get("what").as_str().unwrap_or_default()
    }

    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.0.iter().map(|(name, value)| (name.as_str(), value))
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.fields().map(|(name, _)| name)
    }

    /// Returns whether fields have these values, or one of a list of them.
    pub(crate) fn fits(&self, at: &Map<String, Value>) -> bool {
        at.iter().all(|(name, wanted)| {
            let all = wanted.as_array().map_or(std::slice::from_ref(wanted), Vec::as_slice);
            // TOML has no null: none of them is right where a row has none.
            let is_none = all.is_empty() && self.get(name).is_null();
            is_none || all.iter().any(|one| is_same(one, self.get(name)))
        })
    }

    /// Returns where a goal was measured.
    pub(crate) fn place(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.fields().filter(|(name, _)| !OF_GOAL.contains(name))
    }

    /// Returns what came out of a goal, where it was measured.
    pub(crate) fn reached(&self) -> Option<&Value> {
        [self.get("ratio"), self.get("value")].into_iter().find(|value| !value.is_null())
    }
}

/// A number is the same whether it is written with a point or without.
fn is_same(one: &Value, other: &Value) -> bool {
    match (one.as_f64(), other.as_f64()) {
        (Some(one), Some(other)) => one == other,
        _ => one == other,
    }
}

/// Reads the rows of a file.
///
/// # Errors
/// It cannot be read, or a line is no row.
pub(crate) fn read(path: &Path) -> Result<Vec<Row>> {
    let text = fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let rows = text.lines().enumerate().map(|(at, line)| {
        let place = || format!("{}: line {}", path.display(), at + 1);
        let row: Row = serde_json::from_str(line).with_context(place)?;
        if row.what().is_empty() {
            bail!("{} has no `what`", place());
        }
        Ok(row)
    });
    rows.collect()
}
